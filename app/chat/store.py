"""Chats on disk: one JSON file a chat, written atomically, so that a crash loses no turn."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast, get_args
from uuid import uuid4

from app.safe_files import set_aside, write_whole
from engine.events import FinishReason, RequestMetrics

MessageRole = Literal["user", "assistant", "error", "notice", "divider"]
MessageState = Literal["streaming", "done", "stopped", "failed"]

SCHEMA_VERSION = 1
TITLE_LENGTH = 60


@dataclass(frozen=True, slots=True)
class AnswerStats:
    """The figures under an answer, defined in docs/metrics.md. None: no value."""

    ttft_ms: float | None = None
    prefill_tok_s: float | None = None
    decode_tok_s: float | None = None
    itl_p50_ms: float | None = None
    itl_p95_ms: float | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    finish_reason: FinishReason = "stop"

    @classmethod
    def from_metrics(cls, metrics: RequestMetrics) -> AnswerStats:
        """Keep what the line under an answer shows of a request's metrics."""
        return cls(**{f.name: getattr(metrics, f.name) for f in fields(cls)})


@dataclass(frozen=True, slots=True)
class ErrorAction:
    """A button on an error card: `id` is what the window acts on, `label` what it says."""

    id: str
    label: str


@dataclass(frozen=True, slots=True)
class AnswerNote:
    """What is said of an answer under its figures: a headline, a sentence, and what to try.

    `tone` is the theme colour of its edge. `details` are shown when it is open.
    """

    tone: Literal["prefill", "decode"]
    headline: str
    text: str
    details: tuple[str, ...] = ()
    actions: tuple[ErrorAction, ...] = ()
    is_open: bool = False


@dataclass(slots=True)
class ChatMessage:
    """One row of a conversation.

    `token_ids` are the ids the engine sampled: given back, the next turn re-uses the cache.
    An error row says what happened in `text`, then `why` and `next_step`, and offers `actions`.
    A divider says what the model does not see of the rows above it, and `why`.
    `progress` stands in place of the text before the first token, `note` under an answer's figures;
    `revision` grows with each change of what is shown. None of them is saved.
    """

    id: str
    role: MessageRole
    text: str = ""
    state: MessageState = "done"
    stats: AnswerStats | None = None
    token_ids: tuple[int, ...] | None = None
    why: str = ""
    next_step: str = ""
    actions: tuple[ErrorAction, ...] = ()
    progress: str = field(default="", compare=False)
    note: AnswerNote | None = field(default=None, compare=False)
    revision: int = field(default=0, compare=False)


@dataclass(slots=True)
class Chat:
    """A conversation. Times are UTC. An empty `title` is taken from the first user message."""

    id: str
    title: str
    created_at: datetime
    updated_at: datetime
    system_prompt: str = ""
    messages: list[ChatMessage] = field(default_factory=list)

    @classmethod
    def new(cls, system_prompt: str = "") -> Chat:
        """An empty chat that begins now."""
        now = datetime.now(UTC)
        return cls(new_id(), "", now, now, system_prompt)

    def add(self, message: ChatMessage) -> None:
        """Append a message; the first one of the user names the chat."""
        self.messages.append(message)
        self.touch()
        if message.role == "user" and not self.title:
            self.title = title_from(message.text)

    def touch(self) -> None:
        """Note that the chat changed now."""
        self.updated_at = datetime.now(UTC)


def new_id() -> str:
    """An identifier for a chat or a message, unique everywhere."""
    return uuid4().hex


def title_from(text: str) -> str:
    """The first line that says something, at most `TITLE_LENGTH` characters, as a title."""
    words = " ".join(text[: 20 * TITLE_LENGTH].split())
    return words if len(words) <= TITLE_LENGTH else words[: TITLE_LENGTH - 1].rstrip() + "…"


class ChatStore:
    """The chats of one folder. Every method raises OSError when the disk refuses."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def new_chat(self, system_prompt: str = "") -> Chat:
        """An empty chat; nothing is written before `save`."""
        return Chat.new(system_prompt)

    def load_all(self) -> tuple[list[Chat], list[Path]]:
        """Every chat, newest first, and the files set aside as `.bad` because they are damaged."""
        chats: list[Chat] = []
        damaged: list[Path] = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                chats.append(_read(path))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                damaged.append(set_aside(path))
        chats.sort(key=lambda chat: chat.updated_at, reverse=True)
        return chats, damaged

    def save(self, chat: Chat) -> None:
        """Write a chat so that the file holds either the old or the new state, never half."""
        document = {"schema_version": SCHEMA_VERSION, **_chat_to_dict(chat)}
        data = json.dumps(document, ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass")
        write_whole(self._path(chat.id), data)

    def delete(self, chat_id: str) -> None:
        """Remove a chat's file; to undo, save the chat again."""
        self._path(chat_id).unlink(missing_ok=True)

    def _path(self, chat_id: str) -> Path:
        if not chat_id.isalnum():
            raise ValueError(f"not a chat id: {chat_id!r}")
        return self._folder / f"{chat_id}.json"


def _chat_to_dict(chat: Chat) -> dict[str, Any]:
    document = asdict(chat)
    document["created_at"] = chat.created_at.isoformat()
    document["updated_at"] = chat.updated_at.isoformat()
    for message in document["messages"]:
        del message["progress"], message["note"], message["revision"]
    return document


def _read(path: Path) -> Chat:
    document = json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
    chat = Chat(
        id=_text(document["id"]),
        title=_text(document["title"]),
        created_at=_time(document["created_at"]),
        updated_at=_time(document["updated_at"]),
        system_prompt=_text(document["system_prompt"]),
        messages=[_read_message(message) for message in document["messages"]],
    )
    if chat.id != path.stem:
        raise ValueError(f"{path.name} holds the chat {chat.id!r}")
    return chat


def _read_message(document: dict[str, Any]) -> ChatMessage:
    state = _one_of(document["state"], get_args(MessageState))
    ids = document["token_ids"]
    return ChatMessage(
        id=_text(document["id"]),
        role=cast(MessageRole, _one_of(document["role"], get_args(MessageRole))),
        text=_text(document["text"]),
        # A message that was still streaming was cut off by the end of the program.
        state="stopped" if state == "streaming" else cast(MessageState, state),
        stats=None if document["stats"] is None else _read_stats(document["stats"]),
        token_ids=None if ids is None else tuple(_whole(i) for i in ids),
        why=_text(document["why"]),
        next_step=_text(document["next_step"]),
        actions=tuple(ErrorAction(_text(a["id"]), _text(a["label"])) for a in document["actions"]),
    )


def _read_stats(document: dict[str, Any]) -> AnswerStats:
    reason = _one_of(document["finish_reason"], get_args(FinishReason))
    return AnswerStats(
        ttft_ms=_number(document["ttft_ms"]),
        prefill_tok_s=_number(document["prefill_tok_s"]),
        decode_tok_s=_number(document["decode_tok_s"]),
        itl_p50_ms=_number(document["itl_p50_ms"]),
        itl_p95_ms=_number(document["itl_p95_ms"]),
        prompt_tokens=_whole(document["prompt_tokens"]),
        cached_tokens=_whole(document["cached_tokens"]),
        completion_tokens=_whole(document["completion_tokens"]),
        finish_reason=cast(FinishReason, reason),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {type(value).__name__}")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"expected a whole number, found {type(value).__name__}")
    return value


def _number(value: object) -> float | None:
    if value is not None and not isinstance(value, int | float):
        raise TypeError(f"expected a number, found {type(value).__name__}")
    return value


def _one_of(value: object, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"{value!r} is not one of {', '.join(choices)}")
    return str(value)


def _time(value: object) -> datetime:
    moment = datetime.fromisoformat(_text(value))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
