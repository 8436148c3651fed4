"""The chats and their answers: sends to the engine, writes what comes back into the chats."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from PySide6.QtCore import QObject, QTimer, Signal

from app.answer_errors import tell_context_full, tell_failure
from app.chat.model import ChatModel
from app.chat.store import AnswerStats, Chat, ChatMessage, ChatStore, MessageState, new_id
from app.engine_link.controller import EngineController
from app.engine_link.worker import EngineProblem
from app.sampling import effective_sampling
from app.settings.schema import MAX_TOKENS, SYSTEM_PROMPT
from app.settings.store import Settings
from engine.config import GenerationRequest, Message, SamplingParams
from engine.events import (
    Event,
    FinishReason,
    GenerationFailed,
    GenerationFinished,
    PrefillProgress,
    TokenEvent,
)

log = logging.getLogger("app.chat")

SAVE_MS = 400
_STATES: dict[FinishReason, MessageState] = {"cancelled": "stopped", "failed": "failed"}


@dataclass(slots=True)
class _Answer:
    """An answer under way: where it goes, and what to give back if nothing comes of it."""

    model: ChatModel
    message_id: str
    question_id: str
    question: str
    has_text: bool = False


class Conversations(QObject):
    """Owns all chats, one list model each, and the answers under way in any of them.

    Signals:
        chats_changed(): titles, order or number of chats.
        current_changed(ChatModel): another chat is open.
        request_sent(str request_id, int t_ns): Send was pressed at this time.
        activity_changed(): an answer began or ended somewhere.
        context_changed(int used): tokens of the open chat.
        draft_returned(str): a prompt was not accepted; its text goes back to the composer.
        problem_found(str what, str why): a chat could not be read or saved.
    """

    chats_changed = Signal()
    current_changed = Signal(object)
    request_sent = Signal(str, object)
    activity_changed = Signal()
    context_changed = Signal(int)
    draft_returned = Signal(str)
    problem_found = Signal(str, str)

    def __init__(
        self,
        controller: EngineController,
        store: ChatStore,
        settings: Settings,
        clock: Callable[[], int] = time.perf_counter_ns,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._controller = controller
        self._store = store
        self._settings = settings
        self._clock = clock
        self._answers: dict[str, _Answer] = {}
        self._last_request: dict[str, str] = {}
        self._context: dict[str, int] = {}
        # Sampled ids belong to the tokenizer of one model: message id -> model path.
        self._ids_of: dict[str, str] = {}
        self._counts: dict[int, tuple[str, GenerationFailed | None]] = {}
        self._deleted: ChatModel | None = None
        self._unsaved: set[str] = set()
        self._save = QTimer(self, interval=SAVE_MS, singleShot=True)
        self._save.timeout.connect(self.save)
        self._models: dict[str, ChatModel] = {}
        self._base_sampling: SamplingParams | None = None
        self._max_tokens: int | None = None
        self._current = self._adopt(store.new_chat(settings.get(SYSTEM_PROMPT)))
        controller.events_received.connect(self._on_events)
        controller.tokens_counted.connect(self._on_counted)
        controller.model_loaded.connect(lambda _: self.refresh_context())

    # --- chats ----------------------------------------------------------------------------

    @property
    def current(self) -> ChatModel:
        """The open chat."""
        return self._current

    @property
    def chats(self) -> list[Chat]:
        """The chats with something in them, newest first."""
        chats = [model.chat for model in self._models.values()]
        spoken = [chat for chat in chats if chat.messages]
        return sorted(spoken, key=lambda chat: chat.updated_at, reverse=True)

    @property
    def current_request(self) -> str | None:
        """The newest request of the open chat, for the panels."""
        return self._last_request.get(self._current.chat.id)

    @property
    def running_request(self) -> str | None:
        """The request that answers in the open chat now."""
        request_id = self.current_request
        return request_id if request_id in self._answers else None

    def generating_chats(self) -> dict[str, str]:
        """Chats in which an answer is under way: chat id -> request id."""
        return {answer.model.chat.id: r for r, answer in self._answers.items()}

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

    def new_chat(self) -> None:
        """Open an empty chat; the present one, if it is empty, is used again."""
        if self._current.chat.messages:
            self._open(self._adopt(self._store.new_chat(self._settings.get(SYSTEM_PROMPT))))

    def select(self, chat_id: str) -> None:
        """Open a chat."""
        model = self._models.get(chat_id)
        if model and model is not self._current:
            self._open(model)

    def rename(self, chat_id: str, title: str) -> None:
        """Give a chat another title."""
        if chat_id in self._models and title.strip():
            self._models[chat_id].chat.title = title.strip()
            self._changed(self._models[chat_id])

    def delete(self, chat_id: str) -> None:
        """Delete a chat; its answer stops. `undo_delete` brings it back."""
        model = self._models.pop(chat_id, None)
        if model is None:
            return
        for request_id, answer in self._answers.items():
            if answer.model is model:
                self._controller.stop(request_id)
        self._deleted = model
        self._unsaved.discard(chat_id)
        try:
            self._store.delete(chat_id)
        except OSError as error:
            self.problem_found.emit(self.tr("The chat could not be deleted."), str(error))
        if model is self._current:
            rest = self.chats
            new = self._store.new_chat(self._settings.get(SYSTEM_PROMPT))
            self._open(self._models[rest[0].id] if rest else self._adopt(new))
        self.chats_changed.emit()

    def undo_delete(self) -> None:
        """Bring the chat deleted last back."""
        if self._deleted is None:
            return
        model, self._deleted = self._deleted, None
        self._models[model.chat.id] = model
        self._changed(model)
        self._open(model)

    def set_system_prompt(self, text: str) -> None:
        """Set the open chat's system prompt; new chats begin with it too."""
        self._current.chat.system_prompt = text
        self._settings.set(SYSTEM_PROMPT, text)
        self._changed(self._current)

    # --- answers --------------------------------------------------------------------------

    def send(self, text: str) -> bool:
        """Ask in the open chat; False when it cannot be asked now and the draft must stay."""
        if not text.strip() or self._controller.model is None or self.running_request:
            return False
        if self._controller.loading is not None:
            return False
        question_id = self._current.append_user(text)
        self._ask(question_id, text)
        self.chats_changed.emit()
        return True

    @property
    def default_sampling(self) -> SamplingParams:
        """What holds where the settings say nothing: the model's own, unless `set_base` did."""
        loaded = self._controller.model
        own = loaded.model.default_sampling if loaded else SamplingParams()
        return self._base_sampling or own

    def set_base(self, sampling: SamplingParams, max_tokens: int | None) -> None:
        """Use these in place of the model's own where the settings say nothing."""
        self._base_sampling, self._max_tokens = sampling, max_tokens

    def regenerate(self, message_id: str | None = None) -> bool:
        """Answer a question anew: the one before `message_id`, or the last one.

        Where the conversation went on after it, a copy up to the question is answered, so that
        nothing said since is lost.
        """
        messages = self._current.chat.messages
        if self._controller.model is None or self.running_request:
            return False
        row = len(messages) - 1
        if message_id is not None:
            row = next((i for i, m in enumerate(messages) if m.id == message_id), row)
        while row >= 0 and messages[row].role != "user":
            row -= 1
        if row < 0:
            return False
        if any(message.role == "user" for message in messages[row + 1 :]):
            self._open(self._copy(self._current.chat, row + 1))
        elif row + 1 < len(messages):
            self._current.remove_from(messages[row + 1].id)
        question = self._current.chat.messages[row]
        self._ask(question.id, question.text)
        return True

    def stop(self) -> None:
        """Stop the answer in the open chat."""
        if self.running_request:
            self._controller.stop(self.running_request)

    def refresh_context(self) -> None:
        """Tell how full the open chat's context is; asks the engine where it is not known."""
        chat = self._current.chat
        if chat.id in self._context:
            self.context_changed.emit(self._context[chat.id])
            return
        self.context_changed.emit(0)
        messages = self._messages(chat)
        if messages and self._controller.model is not None:
            self._counts[self._controller.count_tokens(messages)] = (chat.id, None)

    # --- saving ---------------------------------------------------------------------------

    def save(self) -> None:
        """Write the changed chats."""
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

    def close(self) -> None:
        """End the answers under way where they are and save everything."""
        for answer in list(self._answers.values()):
            answer.model.finish(answer.message_id, "stopped", None, None)
        self._answers.clear()
        self._save.stop()
        self.save()

    # --- private --------------------------------------------------------------------------

    def _adopt(self, chat: Chat) -> ChatModel:
        model = ChatModel(chat, self)
        model.chat_changed.connect(lambda: self._changed(model))
        self._models[chat.id] = model
        return model

    def _copy(self, chat: Chat, length: int) -> ChatModel:
        """A new chat with the first `length` messages of another."""
        copy = self._store.new_chat(chat.system_prompt)
        copy.title = self.tr("{0} (again)").format(chat.title)
        for message in chat.messages[:length]:
            twin = replace(message, id=new_id())
            copy.messages.append(twin)
            if message.id in self._ids_of:
                self._ids_of[twin.id] = self._ids_of[message.id]
        return self._adopt(copy)

    def _open(self, model: ChatModel) -> None:
        before, self._current = self._current, model
        if not before.chat.messages:
            self._models.pop(before.chat.id, None)
        self.current_changed.emit(model)
        self.refresh_context()
        self.activity_changed.emit()

    def _changed(self, model: ChatModel) -> None:
        if model.chat.id in self._models:
            self._unsaved.add(model.chat.id)
            self._save.start()
            self.chats_changed.emit()

    def _ask(self, question_id: str, text: str) -> None:
        loaded = self._controller.model
        if loaded is None:
            return
        model = self._current
        request = GenerationRequest(
            request_id=uuid4().hex,
            messages=tuple(self._messages(model.chat)),
            sampling=effective_sampling(self._settings, self.default_sampling),
            max_tokens=self._max_tokens or self._settings.get(MAX_TOKENS),
        )
        answer = _Answer(model, model.begin_answer(), question_id, text)
        self._answers[request.request_id] = answer
        self._last_request[model.chat.id] = request.request_id
        self.request_sent.emit(request.request_id, self._clock())
        self._controller.send(request)
        self.activity_changed.emit()

    def _messages(self, chat: Chat) -> list[Message]:
        """What the model is given: system prompt, questions, answers; no error rows."""
        messages = [Message("system", chat.system_prompt)] if chat.system_prompt.strip() else []
        for each in chat.messages:
            if each.role == "user":
                messages.append(Message("user", each.text))
            elif each.role == "assistant" and each.text:
                messages.append(Message("assistant", each.text, self._ids(each)))
        return messages

    def _ids(self, message: ChatMessage) -> tuple[int, ...] | None:
        loaded = self._controller.model
        same = loaded is not None and self._ids_of.get(message.id) == loaded.config.model_path
        return message.token_ids if same else None

    def _on_events(self, events: Sequence[Event]) -> None:
        texts: dict[str, list[str]] = {}
        contexts: dict[str, int] = {}
        for event in events:
            if isinstance(event, TokenEvent):
                texts.setdefault(event.request_id, []).append(event.text)
                contexts[event.request_id] = event.context_tokens
            elif isinstance(event, PrefillProgress):
                self._on_prefill(event)
                contexts[event.request_id] = event.tokens_done
            elif isinstance(event, GenerationFinished | GenerationFailed):
                self._append(event.request_id, texts.pop(event.request_id, []))
                self._note_context(event.request_id, contexts.pop(event.request_id, 0))
                if isinstance(event, GenerationFinished):
                    self._on_finished(event)
                else:
                    self._on_failed(event)
        for request_id, pieces in texts.items():
            self._append(request_id, pieces)
        for request_id, tokens in contexts.items():
            self._note_context(request_id, tokens)

    def _append(self, request_id: str, pieces: list[str]) -> None:
        answer = self._answers.get(request_id)
        text = "".join(pieces)
        if answer and text:
            answer.has_text = True
            answer.model.append_text(answer.message_id, text)

    def _on_prefill(self, event: PrefillProgress) -> None:
        answer = self._answers.get(event.request_id)
        if answer:
            share = 100 * event.tokens_done // max(1, event.tokens_total)
            text = self.tr("Reading the prompt, {0} %").format(share)
            answer.model.set_progress(answer.message_id, text)

    def _note_context(self, request_id: str, tokens: int) -> None:
        answer = self._answers.get(request_id)
        if answer and tokens:
            self._context[answer.model.chat.id] = tokens
            if answer.model is self._current:
                self.context_changed.emit(tokens)

    def _on_finished(self, event: GenerationFinished) -> None:
        answer = self._answers.get(event.request_id)
        if answer is None:
            return
        if event.text_tail:
            answer.model.append_text(answer.message_id, event.text_tail)
        del self._answers[event.request_id]
        loaded = self._controller.model
        if loaded is not None:
            self._ids_of[answer.message_id] = loaded.config.model_path
        state: MessageState = _STATES.get(event.finish_reason, "done")
        stats = AnswerStats.from_metrics(event.metrics)
        answer.model.finish(answer.message_id, state, stats, event.token_ids)
        if event.finish_reason == "context_full":
            tell_context_full(answer.model, self._controller.model)
        self.activity_changed.emit()

    def _on_failed(self, event: GenerationFailed) -> None:
        """Take question and empty answer out again, so that the chat can go on, and say why."""
        answer = self._answers.pop(event.request_id, None)
        if answer is None:
            return
        model = answer.model
        if answer.has_text:
            model.finish(answer.message_id, "failed", None, None)
        else:
            model.remove_from(answer.question_id)
            if model is self._current:
                self.draft_returned.emit(answer.question)
        self._context.pop(model.chat.id, None)
        asked = [*self._messages(model.chat), Message("user", answer.question)]
        if self._controller.model is None:
            tell_failure(model, event, None, 0)
        else:
            self._counts[self._controller.count_tokens(asked)] = (model.chat.id, event)
        self.activity_changed.emit()

    def _on_counted(self, ticket: int, answer: int | EngineProblem) -> None:
        chat_id, failure = self._counts.pop(ticket, ("", None))
        model = self._models.get(chat_id)
        if model is None:
            return
        tokens = 0 if isinstance(answer, EngineProblem) else answer
        if failure is not None:
            tell_failure(model, failure, self._controller.model, tokens)
        elif chat_id not in self._context and tokens:
            self._context[chat_id] = tokens
            if model is self._current:
                self.context_changed.emit(tokens)
