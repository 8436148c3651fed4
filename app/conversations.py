"""Answers: sends questions to the engine and writes what comes back into the chats."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from PySide6.QtCore import QObject, Signal

from app.answer_errors import tell_context_cut, tell_context_full, tell_failure
from app.chat.model import ChatModel
from app.chat.store import AnswerStats, Chat, ChatMessage, ChatStore, MessageState
from app.chat_library import ChatLibrary
from app.engine_link.controller import EngineController
from app.engine_link.worker import EngineProblem
from app.sampling import effective_sampling
from app.settings.schema import CONTEXT_POLICY, MAX_TOKENS, SYSTEM_PROMPT
from app.settings.store import Settings
from engine.config import GenerationRequest, Message, SamplingParams
from engine.events import (
    ContextCut,
    Event,
    FinishReason,
    GenerationFailed,
    GenerationFinished,
    ModelLoaded,
    PrefillProgress,
    TokenEvent,
)

log = logging.getLogger("app.chat")

_STATES: dict[FinishReason, MessageState] = {"cancelled": "stopped", "failed": "failed"}


@dataclass(slots=True)
class _Answer:
    """An answer under way: where it goes, and what to give back if nothing comes of it."""

    model: ChatModel
    message_id: str
    question_id: str
    question: str
    given_ids: tuple[str, ...]  # the chat's messages in the request, in its order
    has_text: bool = False
    is_cut: bool = False


class Conversations(QObject):
    """Owns the answers under way in any chat, and which chat is open.

    Attributes:
        library: the chats themselves.

    Signals:
        current_changed(ChatModel): another chat is open.
        request_sent(str request_id, int t_ns): Send was pressed at this time.
        activity_changed(): an answer began or ended somewhere.
        context_changed(int used): tokens of the open chat.
        draft_returned(str): a prompt was not accepted; its text goes back to the composer.
        answered(ChatModel, str message_id, GenerationFinished): an answer is complete.
    """

    current_changed = Signal(object)
    request_sent = Signal(str, object)
    activity_changed = Signal()
    context_changed = Signal(int)
    draft_returned = Signal(str)
    answered = Signal(object, str, object)

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
        self.library = ChatLibrary(store, self)
        self._settings = settings
        self._clock = clock
        self._answers: dict[str, _Answer] = {}
        self._last_request: dict[str, str] = {}
        self._context: dict[str, int] = {}
        # Sampled ids belong to the tokenizer of one model: message id -> model path.
        self._ids_of: dict[str, str] = {}
        # By the answer's message id: what was asked, with the seed that was drawn, and of whom.
        self._asked: dict[str, tuple[GenerationRequest, ModelLoaded]] = {}
        self._counts: dict[int, tuple[str, GenerationFailed | None]] = {}
        self._base_sampling: SamplingParams | None = None
        self._max_tokens: int | None = None
        self._current = self._empty_chat()
        controller.events_received.connect(self._on_events)
        controller.tokens_counted.connect(self._on_counted)
        controller.model_loaded.connect(lambda _: self.refresh_context())

    # --- chats ----------------------------------------------------------------------------

    @property
    def current(self) -> ChatModel:
        """The open chat."""
        return self._current

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

    def new_chat(self) -> None:
        """Open an empty chat; the present one, if it is empty, is used again."""
        if self._current.chat.messages:
            self._open(self._empty_chat())

    def select(self, chat_id: str) -> None:
        """Open a chat."""
        model = self.library.model(chat_id)
        if model and model is not self._current:
            self._open(model)

    def delete(self, chat_id: str) -> None:
        """Delete a chat; its answer stops. `undo_delete` brings it back."""
        model = self.library.delete(chat_id)
        for request_id, answer in self._answers.items():
            if answer.model is model:
                self._controller.stop(request_id)
        if model is self._current:
            rest = self.library.chats
            newest = self.library.model(rest[0].id) if rest else None
            self._open(newest or self._empty_chat())

    def undo_delete(self) -> None:
        """Bring the chat deleted last back and open it."""
        model = self.library.undo_delete()
        if model:
            self._open(model)

    def set_system_prompt(self, text: str) -> None:
        """Set the open chat's system prompt; new chats begin with it too."""
        self._current.chat.system_prompt = text
        self._settings.set(SYSTEM_PROMPT, text)
        self.library.changed(self._current)

    # --- answers --------------------------------------------------------------------------

    def send(self, text: str) -> bool:
        """Ask in the open chat; False when it cannot be asked now and the draft must stay."""
        if not text.strip() or not self._can_ask():
            return False
        self._ask(self._current.append_user(text), text)
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
        if not self._can_ask():
            return False
        row = len(messages) - 1
        if message_id is not None:
            row = next((i for i, m in enumerate(messages) if m.id == message_id), row)
        while row >= 0 and messages[row].role != "user":
            row -= 1
        if row < 0:
            return False
        if any(message.role == "user" for message in messages[row + 1 :]):
            copy, old_ids = self.library.copy(self._current.chat, row + 1)
            self._ids_of |= {n: self._ids_of[o] for n, o in old_ids.items() if o in self._ids_of}
            self._open(copy)
        elif row + 1 < len(messages):
            self._current.remove_from(messages[row + 1].id)
        question = self._current.chat.messages[row]
        self._ask(question.id, question.text)
        return True

    def answer(self, message_id: str | None = None) -> ChatMessage | None:
        """An answer of the open chat that has ended, the newest by default."""
        ended = (m for m in reversed(self._current.chat.messages) if m.stats is not None)
        return next((m for m in ended if message_id in (None, m.id)), None)

    def asked(self, message_id: str) -> GenerationRequest | None:
        """What the loaded model was, or else would be, asked for an answer of the open chat.

        One that this very model gave comes with its request id and the seed it was sampled by.
        """
        request, asked_of = self._asked.get(message_id, (None, None))
        if request is not None and asked_of is self._controller.model:
            return request
        messages = self._current.chat.messages
        row = next((i for i, m in enumerate(messages) if m.id == message_id), None)
        return None if row is None else self._request(self._current.chat, row)

    def stop(self) -> None:
        """Stop the answer in the open chat."""
        if self.running_request:
            self._controller.stop(self.running_request)

    def stop_chat(self, chat_id: str) -> None:
        """Stop the answer in any chat."""
        request_id = self.generating_chats().get(chat_id)
        if request_id:
            self._controller.stop(request_id)

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

    def close(self) -> None:
        """End the answers under way where they are and save everything."""
        for answer in list(self._answers.values()):
            answer.model.finish(answer.message_id, "stopped", None, None)
        self._answers.clear()
        self.library.save()

    # --- private --------------------------------------------------------------------------

    def _empty_chat(self) -> ChatModel:
        return self.library.new(self._settings.get(SYSTEM_PROMPT))

    def _can_ask(self) -> bool:
        ready = self._controller.model is not None and self._controller.loading is None
        return ready and self.running_request is None

    def _open(self, model: ChatModel) -> None:
        before, self._current = self._current, model
        self.library.drop_if_empty(before)
        self.current_changed.emit(model)
        self.refresh_context()
        self.activity_changed.emit()

    def _ask(self, question_id: str, text: str) -> None:
        loaded = self._controller.model
        if loaded is None:
            return
        model = self._current
        request = self._request(model.chat, len(model.chat.messages))
        given_ids = tuple(each.id for each in _spoken(model.chat.messages))
        answer = _Answer(model, model.begin_answer(), question_id, text, given_ids)
        self._asked[answer.message_id] = (request, loaded)
        self._answers[request.request_id] = answer
        self._last_request[model.chat.id] = request.request_id
        self.request_sent.emit(request.request_id, self._clock())
        self._controller.send(request)
        self.activity_changed.emit()

    def _request(self, chat: Chat, length: int) -> GenerationRequest:
        """What is asked after the first `length` messages of a chat, as the settings are now."""
        return GenerationRequest(
            request_id=uuid4().hex,
            messages=tuple(self._messages(chat, length)),
            sampling=effective_sampling(self._settings, self.default_sampling),
            max_tokens=self._max_tokens or self._settings.get(MAX_TOKENS),
            on_context_full=self._settings.get(CONTEXT_POLICY),
        )

    def _messages(self, chat: Chat, length: int | None = None) -> list[Message]:
        """What the model is given: system prompt, questions, answers; no error rows."""
        messages = [Message("system", chat.system_prompt)] if chat.system_prompt.strip() else []
        for each in _spoken(chat.messages[:length]):
            if each.role == "user":
                messages.append(Message("user", each.text))
            else:
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
            elif isinstance(event, ContextCut):
                self._on_cut(event)
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
            if not answer.is_cut:
                answer.model.remove_divider()
            share = 100 * event.tokens_done // max(1, event.tokens_total)
            text = self.tr("Reading the prompt, {0} %").format(share)
            answer.model.set_progress(answer.message_id, text)

    def _on_cut(self, event: ContextCut) -> None:
        answer = self._answers.get(event.request_id)
        if answer:
            answer.is_cut = True
            ids = (*answer.given_ids, answer.message_id)
            tell_context_cut(answer.model, event, ids[event.dropped_messages])

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
        if answer.message_id in self._asked:
            request, asked_of = self._asked[answer.message_id]
            sampling = replace(request.sampling, seed=event.metrics.seed)
            self._asked[answer.message_id] = (replace(request, sampling=sampling), asked_of)
        state: MessageState = _STATES.get(event.finish_reason, "done")
        stats = AnswerStats.from_metrics(event.metrics)
        answer.model.finish(answer.message_id, state, stats, event.token_ids)
        if event.finish_reason == "context_full":
            policy = self._settings.get(CONTEXT_POLICY)
            tell_context_full(answer.model, self._controller.model, policy)
        self.answered.emit(answer.model, answer.message_id, event)
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
        model = self.library.model(chat_id)
        if model is None:
            return
        tokens = 0 if isinstance(answer, EngineProblem) else answer
        if failure is not None:
            tell_failure(model, failure, self._controller.model, tokens)
        elif chat_id not in self._context and tokens:
            self._context[chat_id] = tokens
            if model is self._current:
                self.context_changed.emit(tokens)


def _spoken(messages: Sequence[ChatMessage]) -> Iterator[ChatMessage]:
    """Questions and answers; what the window itself says to the person is left out."""
    for each in messages:
        if each.role == "user" or (each.role == "assistant" and each.text):
            yield each
