"""All chats of the person, one list model each, kept in step with the disk."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QObject, QTimer, Signal

from app.chat.model import ChatModel
from app.chat.store import Chat, ChatStore, new_id

SAVE_MS = 400


class ChatLibrary(QObject):
    """Owns the chats; saves what changed a moment later. Knows nothing of the engine.

    Signals:
        chats_changed(): titles, order or number of chats.
        problem_found(str what, str why): a chat could not be read, saved or deleted.
    """

    chats_changed = Signal()
    problem_found = Signal(str, str)

    def __init__(self, store: ChatStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self._models: dict[str, ChatModel] = {}
        self._deleted: ChatModel | None = None
        self._unsaved: set[str] = set()
        self._timer = QTimer(self, interval=SAVE_MS, singleShot=True)
        self._timer.timeout.connect(self.save)

    @property
    def chats(self) -> list[Chat]:
        """The chats with something in them, newest first."""
        chats = [model.chat for model in self._models.values()]
        spoken = [chat for chat in chats if chat.messages]
        return sorted(spoken, key=lambda chat: chat.updated_at, reverse=True)

    def model(self, chat_id: str) -> ChatModel | None:
        """The list model of a chat."""
        return self._models.get(chat_id)

    def read(self) -> None:
        """Read the saved chats; damaged files are told and set aside."""
        try:
            chats, damaged = self._store.load_all()
        except OSError as error:
            self.problem_found.emit(self.tr("The saved chats could not be read."), str(error))
            return
        for chat in chats:
            self._adopt(chat)
        if damaged:
            names = ", ".join(path.name for path in damaged)
            what = self.tr("Some saved chats are damaged and were set aside.")
            self.problem_found.emit(what, names)
        self.chats_changed.emit()

    def new(self, system_prompt: str) -> ChatModel:
        """An empty chat; nothing is written before something is said in it."""
        return self._adopt(self._store.new_chat(system_prompt))

    def copy(self, chat: Chat, length: int) -> tuple[ChatModel, dict[str, str]]:
        """A new chat with the first `length` messages of another; new message id -> old id."""
        copy = self._store.new_chat(chat.system_prompt)
        copy.title = self.tr("{0} (again)").format(chat.title)
        copy.messages = [
            replace(message, id=new_id(), note=None) for message in chat.messages[:length]
        ]
        pairs = zip(copy.messages, chat.messages, strict=False)
        return self._adopt(copy), {new.id: old.id for new, old in pairs}

    def drop_if_empty(self, model: ChatModel) -> None:
        """Forget a chat in which nothing was said."""
        if not model.chat.messages and model.chat.id in self._models:
            del self._models[model.chat.id]
            model.deleteLater()

    def rename(self, chat_id: str, title: str) -> None:
        """Give a chat another title; an empty one changes nothing."""
        model = self._models.get(chat_id)
        if model and title.strip():
            model.chat.title = title.strip()
            self.changed(model)

    def delete(self, chat_id: str) -> ChatModel | None:
        """Delete a chat; gives its model. `undo_delete` brings the last one back."""
        model = self._models.pop(chat_id, None)
        if model is None:
            return None
        self._deleted = model
        self._unsaved.discard(chat_id)
        try:
            self._store.delete(chat_id)
        except OSError as error:
            self.problem_found.emit(self.tr("The chat could not be deleted."), str(error))
        self.chats_changed.emit()
        return model

    def undo_delete(self) -> ChatModel | None:
        """Bring the chat deleted last back."""
        model, self._deleted = self._deleted, None
        if model:
            self._models[model.chat.id] = model
            self.changed(model)
        return model

    def changed(self, model: ChatModel) -> None:
        """Note that a chat is to be saved."""
        if model.chat.id in self._models:
            self._unsaved.add(model.chat.id)
            self._timer.start()
            self.chats_changed.emit()

    def save(self) -> None:
        """Write the changed chats now."""
        self._timer.stop()
        unsaved, self._unsaved = self._unsaved, set()
        for chat_id in unsaved:
            model = self._models.get(chat_id)
            if model is None or not model.chat.messages:
                continue
            try:
                self._store.save(model.chat)
            except OSError as error:
                self._unsaved.add(chat_id)
                self.problem_found.emit(self.tr("The chat could not be saved."), str(error))

    def _adopt(self, chat: Chat) -> ChatModel:
        model = ChatModel(chat, self)
        model.chat_changed.connect(lambda: self.changed(model))
        self._models[chat.id] = model
        return model
