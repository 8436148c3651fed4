"""The rows of one conversation as a Qt list model; the only place that changes its messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import IntEnum

from PySide6.QtCore import (
    QAbstractListModel,
    QByteArray,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    Qt,
    Signal,
)

from app.chat.stats_line import plain_text, stats_items
from app.chat.store import (
    AnswerNote,
    AnswerStats,
    Chat,
    ChatMessage,
    ErrorAction,
    MessageState,
    new_id,
)


class ChatRole(IntEnum):
    """What a row tells; `dataChanged` names these."""

    ROLE = Qt.ItemDataRole.UserRole + 1
    TEXT = Qt.ItemDataRole.UserRole + 2
    STATE = Qt.ItemDataRole.UserRole + 3
    STATS = Qt.ItemDataRole.UserRole + 4
    MESSAGE_ID = Qt.ItemDataRole.UserRole + 5
    REVISION = Qt.ItemDataRole.UserRole + 6
    PROGRESS = Qt.ItemDataRole.UserRole + 7
    NOTE = Qt.ItemDataRole.UserRole + 8


_ROLE_NAMES = {
    ChatRole.ROLE: b"role",
    ChatRole.TEXT: b"text",
    ChatRole.STATE: b"state",
    ChatRole.STATS: b"stats",
    ChatRole.MESSAGE_ID: b"messageId",
    ChatRole.REVISION: b"revision",
    ChatRole.PROGRESS: b"progress",
    ChatRole.NOTE: b"note",
}
_NO_PARENT = QModelIndex()


class ChatModel(QAbstractListModel):
    """Lists the messages of one `Chat` and changes them in place.

    Methods that take a message id raise KeyError when this chat has no such message.

    Signals:
        chat_changed: something worth saving changed (not each piece of a streaming text).
    """

    chat_changed = Signal()

    def __init__(self, chat: Chat, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._chat = chat

    @property
    def chat(self) -> Chat:
        """The conversation shown."""
        return self._chat

    def set_chat(self, chat: Chat) -> None:
        """Show another conversation."""
        self.beginResetModel()
        self._chat = chat
        self.endResetModel()

    def message(self, row: int) -> ChatMessage:
        """The message in a row; treat it as read-only."""
        return self._chat.messages[row]

    def append_user(self, text: str) -> str:
        """Add what the person said; returns the message id."""
        return self._append(ChatMessage(new_id(), "user", text))

    def begin_answer(self) -> str:
        """Add an empty answer that streams; returns the message id."""
        return self._append(ChatMessage(new_id(), "assistant", state="streaming"))

    def append_error(self, what: str, why: str, next: str, actions: Sequence[ErrorAction]) -> str:
        """Add an error card: what happened, why, what to do next, and buttons that do it."""
        message = ChatMessage(new_id(), "error", what, "failed")
        message.why, message.next_step, message.actions = why, next, tuple(actions)
        return self._append(message)

    def append_notice(self, text: str) -> str:
        """Add one quiet line, e.g. that the model was changed."""
        return self._append(ChatMessage(new_id(), "notice", text))

    def show_divider(self, before_id: str, text: str, why: str) -> None:
        """Say before a message what the model no longer sees; a chat has one such divider."""
        row = self._divider_row()
        if row is not None and row + 1 == self._row(before_id):
            self.message(row).text, self.message(row).why = text, why
            self._changed(row, ChatRole.TEXT)
        else:
            self.remove_divider()
            self._insert(self._row(before_id), ChatMessage(new_id(), "divider", text, why=why))
        self.chat_changed.emit()

    def remove_divider(self) -> None:
        """The model sees the whole chat again."""
        row = self._divider_row()
        if row is not None:
            self.beginRemoveRows(_NO_PARENT, row, row)
            del self._chat.messages[row]
            self.endRemoveRows()
            self.chat_changed.emit()

    def append_text(self, message_id: str, delta: str) -> None:
        """Add to a streaming answer."""
        row = self._row(message_id)
        self.message(row).text += delta
        self._changed(row, ChatRole.TEXT)

    def set_progress(self, message_id: str, text: str) -> None:
        """Say how far the prompt is read; shown in place of the text before the first token."""
        row = self._row(message_id)
        self.message(row).progress = text
        self._changed(row, ChatRole.PROGRESS)

    def set_note(self, message_id: str, note: AnswerNote | None) -> None:
        """Say something under an answer's figures, or nothing."""
        row = self._row(message_id)
        self.message(row).note = note
        self._changed(row, ChatRole.NOTE)

    def toggle_note(self, message_id: str) -> None:
        """Show or hide the details of what is said under an answer."""
        note = self.message(self._row(message_id)).note
        if note is not None:
            self.set_note(message_id, replace(note, is_open=not note.is_open))

    def finish(
        self,
        message_id: str,
        state: MessageState,
        stats: AnswerStats | None,
        token_ids: tuple[int, ...] | None,
    ) -> None:
        """End a streaming answer; from now on it is shown as Markdown."""
        row = self._row(message_id)
        message = self.message(row)
        message.state, message.stats, message.token_ids = state, stats, token_ids
        message.progress = ""
        self._chat.touch()
        self._changed(row, ChatRole.STATE, ChatRole.STATS, ChatRole.PROGRESS)
        self.chat_changed.emit()

    def remove_from(self, message_id: str) -> None:
        """Remove a message and all that follow it."""
        row = self._row(message_id)
        self.beginRemoveRows(_NO_PARENT, row, len(self._chat.messages) - 1)
        del self._chat.messages[row:]
        self._chat.touch()
        self.endRemoveRows()
        self.chat_changed.emit()

    def _append(self, message: ChatMessage) -> str:
        row = len(self._chat.messages)
        self.beginInsertRows(_NO_PARENT, row, row)
        self._chat.add(message)
        self.endInsertRows()
        self.chat_changed.emit()
        return message.id

    def _insert(self, row: int, message: ChatMessage) -> None:
        self.beginInsertRows(_NO_PARENT, row, row)
        self._chat.messages.insert(row, message)
        self.endInsertRows()

    def _divider_row(self) -> int | None:
        rows = (row for row, each in enumerate(self._chat.messages) if each.role == "divider")
        return next(rows, None)

    def _row(self, message_id: str) -> int:
        # From the end: what changes is nearly always the newest message.
        for row in range(len(self._chat.messages) - 1, -1, -1):
            if self._chat.messages[row].id == message_id:
                return row
        raise KeyError(message_id)

    def _changed(self, row: int, *roles: ChatRole) -> None:
        self._chat.messages[row].revision += 1
        index = self.index(row)
        self.dataChanged.emit(index, index, [*map(int, roles), int(ChatRole.REVISION)])

    def _accessible_text(self, message: ChatMessage) -> str:
        speaker = {
            "user": self.tr("You"),
            "assistant": self.tr("Answer"),
            "error": self.tr("Error"),
            "notice": self.tr("Notice"),
            "divider": self.tr("Notice"),
        }[message.role]
        return " ".join(_filled(f"{speaker}:", message.text, message.why, message.next_step))

    # Qt overrides

    def rowCount(self, parent: QModelIndex | QPersistentModelIndex = _NO_PARENT) -> int:
        return 0 if parent.isValid() else len(self._chat.messages)

    def roleNames(self) -> dict[int, QByteArray]:
        return super().roleNames() | {int(k): QByteArray(v) for k, v in _ROLE_NAMES.items()}

    def flags(self, index: QModelIndex | QPersistentModelIndex) -> Qt.ItemFlag:
        flags = super().flags(index)
        # The "editor" of a row is the read-only text in which a person selects.
        return flags | Qt.ItemFlag.ItemIsEditable if index.isValid() else flags

    def data(self, index: QModelIndex | QPersistentModelIndex, role: int = 0) -> object:
        if not index.isValid():
            return None
        message = self._chat.messages[index.row()]
        match role:
            case Qt.ItemDataRole.AccessibleTextRole:
                return self._accessible_text(message)
            case Qt.ItemDataRole.ToolTipRole:
                return message.why if message.role == "divider" else None
            case Qt.ItemDataRole.AccessibleDescriptionRole:
                return _description(message)
            case ChatRole.ROLE:
                return message.role
            case ChatRole.TEXT:
                return message.text
            case ChatRole.STATE:
                return message.state
            case ChatRole.STATS:
                return message.stats
            case ChatRole.MESSAGE_ID:
                return message.id
            case ChatRole.REVISION:
                return message.revision
            case ChatRole.PROGRESS:
                return message.progress
            case ChatRole.NOTE:
                return message.note
        return None


def _description(message: ChatMessage) -> str:
    figures, note = plain_text(stats_items(message.stats, message.state)), message.note
    if note is None:
        return figures
    details = note.details if note.is_open else ()
    return " ".join(_filled(figures, note.headline, note.text, *details))


def _filled(*parts: str) -> Iterable[str]:
    return (part for part in parts if part)
