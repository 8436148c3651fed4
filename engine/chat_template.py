"""A conversation to the text and the token ids that the model was trained to see it as."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

import jinja2

from engine.config import Message
from engine.session import EngineError
from engine.template_sandbox import (
    MAX_SOURCE_CHARS,
    TEMPLATE_FILE,
    BoundedEnvironment,
    TemplateRefusal,
    TemplateTimeout,
    TemplateTooLarge,
    render_bounded,
    run_with_deadline,
)
from engine.tokenizer import Tokenizer

DEFAULT_DEADLINE_S = 2.0
_MAX_OUTPUT_FACTOR = 8  # a template may repeat a conversation, not multiply it
_MAX_OUTPUT_EXTRA = 2**20
_CHATML_TOKEN = "<|im_start|>"
_NEXT_STEP = "Choose another model, or send raw text without a chat template."


class ChatTemplate:
    """Owns a model's jinja2 template. Knows the tokenizer only as an argument of `encode`.

    `source` None: the model brings no template, and a plain one of ours takes its place (ChatML
    where the vocabulary has its tokens, else "role: content" lines). It is compiled at first use,
    so a broken one fails the chat and not the load.
    """

    def __init__(
        self,
        source: str | None,
        bos_token: str,
        eos_token: str,
        *,
        deadline_s: float = DEFAULT_DEADLINE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.has_template = source is not None
        self._source = source
        self._variables = {"bos_token": bos_token, "eos_token": eos_token}
        self._deadline_s = deadline_s
        self._clock = clock
        self._environment = BoundedEnvironment()
        self._compiled: dict[str, jinja2.Template] = {}

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """The conversation as text. Raises EngineError when the template fails or refuses it."""
        source = self._source if self._source is not None else _own_template("plain")
        return self._render_adapted(source, messages, add_generation_prompt)[0]

    def encode(
        self,
        messages: Sequence[Message],
        tokenizer: Tokenizer,
        add_generation_prompt: bool = True,
    ) -> list[int]:
        """The conversation as token ids, beginning with one BOS if the tokenizer wants any.

        Assistant messages with `token_ids` stand as those ids, not as what their text would be
        encoded to, so that the cache of the turn that sampled them is found again. Where a
        template rewrites such a message its text is encoded after all. Raises EngineError.
        """
        source = self._source if self._source is not None else _fallback(tokenizer)
        text, adapted = self._render_adapted(source, messages, add_generation_prompt)
        ids = self._encode_with_kept_ids(source, text, adapted, tokenizer, add_generation_prompt)
        if ids is None:
            ids = tokenizer.encode(text, add_special_tokens=False)
        bos = tokenizer.bos_token_id
        if tokenizer.add_bos and bos is not None and ids[:1] != [bos]:
            ids.insert(0, bos)
        return ids

    def _render_adapted(
        self, source: str, messages: Sequence[Message], add_generation_prompt: bool
    ) -> tuple[str, list[Message]]:
        """The rendering and the messages it is of: those given, or what the template accepts.

        A template that wants roles to alternate gets neighbours of one role merged (a chat stopped
        before its answer has two user turns in a row); one without a system role gets the system
        prompt at the head of the first user turn. Each is tried once.
        """
        adapted = list(messages)
        untried = list(_ADAPTATIONS)
        while True:
            try:
                return self._render_once(source, adapted, add_generation_prompt), adapted
            except TemplateRefusal as refusal:
                complaint = str(refusal)
                for adaptation in untried:
                    changed = adaptation.adapt(adapted)
                    if adaptation.answers(complaint) and changed != adapted:
                        break
                else:
                    raise _refused(complaint) from None
                untried.remove(adaptation)
                adapted = changed

    def _render_once(
        self, source: str, messages: Sequence[Message], add_generation_prompt: bool
    ) -> str:
        """One rendering. Raises TemplateRefusal when the template says no, else EngineError."""
        turns: list[dict[str, Any]] = [
            {"role": message.role, "content": message.content} for message in messages
        ]
        num_chars = sum(len(message.content) for message in messages)
        max_chars = _MAX_OUTPUT_FACTOR * num_chars + _MAX_OUTPUT_EXTRA
        variables = {
            "messages": turns,
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            **self._variables,
        }
        self._environment.start_budget(num_chars)
        try:
            return run_with_deadline(
                lambda: render_bounded(self._template(source), max_chars, variables),
                self._deadline_s,
                self._clock,
            )
        except TemplateRefusal:
            raise
        except TemplateTimeout:
            why = f"It was stopped after {self._deadline_s:g} s; it seems to loop."
            raise EngineError("The chat template does not end.", why, _NEXT_STEP) from None
        except (TemplateTooLarge, MemoryError):
            why = "It asks for far more text than the conversation has."
            raise EngineError("The chat template grows without end.", why, _NEXT_STEP) from None
        except Exception as error:  # whatever a template does wrong is the template's failure
            why = f"{type(error).__name__}: {str(error)[:300].rstrip('.')}."
            raise EngineError("The chat template failed.", why, _NEXT_STEP) from error

    def _template(self, source: str) -> jinja2.Template:
        if source not in self._compiled:
            if len(source) > MAX_SOURCE_CHARS:
                raise TemplateTooLarge
            code = self._environment.compile(source, filename=TEMPLATE_FILE)
            self._compiled[source] = jinja2.Template.from_code(
                self._environment, code, self._environment.globals
            )
        return self._compiled[source]

    def _encode_with_kept_ids(
        self,
        source: str,
        text: str,
        messages: Sequence[Message],
        tokenizer: Tokenizer,
        add_generation_prompt: bool,
    ) -> list[int] | None:
        """Ids with the kept ones in place; None when there are none or the template moves them."""
        kept = [
            (index, message.token_ids, message.content)
            for index, message in enumerate(messages)
            if message.role == "assistant" and message.token_ids
        ]
        if not kept:
            return None
        sentinels = _sentinels(len(kept), text)
        marked = list(messages)
        for (index, _, _), sentinel in zip(kept, sentinels, strict=True):
            marked[index] = replace(marked[index], content=sentinel)
        try:
            rendering = self._render_once(source, marked, add_generation_prompt)
        except TemplateRefusal:
            return None
        pieces = _split_at(rendering, sentinels)
        contents = [content for _, _, content in kept]
        if pieces is None or _interleave(pieces, contents) != text:
            return None
        return _encode_around(pieces, [ids for _, ids, _ in kept], tokenizer)


@dataclass(frozen=True, slots=True)
class _Adaptation:
    """A change to the messages that answers refusals with one of the `words` in them."""

    adapt: Callable[[list[Message]], list[Message]]
    words: tuple[str, ...]

    def answers(self, complaint: str) -> bool:
        return any(word in complaint.lower() for word in self.words)


def merge_same_roles(messages: list[Message]) -> list[Message]:
    """Neighbours of the same role as one message, a blank line between their texts."""
    merged: list[Message] = []
    for message in messages:
        if merged and merged[-1].role == message.role:
            texts = [text for text in (merged[-1].content, message.content) if text]
            merged[-1] = Message(message.role, "\n\n".join(texts))
        else:
            merged.append(message)
    return merged


def fold_system_prompt(messages: list[Message]) -> list[Message]:
    """The leading system message at the head of the first user message."""
    if len(messages) < 2 or messages[0].role != "system" or messages[1].role != "user":
        return messages
    system, user, *rest = messages
    return [Message("user", f"{system.content}\n\n{user.content}"), *rest]


_ADAPTATIONS = (
    _Adaptation(merge_same_roles, ("alternat",)),
    _Adaptation(fold_system_prompt, ("system", "role")),
)


def _refused(complaint: str) -> EngineError:
    return EngineError(
        "The chat template does not take this conversation.",
        f"It says: {complaint.rstrip('.')}.",
        "Edit or delete the last messages, or choose another model.",
    )


def _own_template(name: str) -> str:
    return files("resources").joinpath("templates", f"{name}.jinja").read_text(encoding="utf-8")


def _fallback(tokenizer: Tokenizer) -> str:
    return _own_template("plain" if tokenizer.token_id(_CHATML_TOKEN) is None else "chatml")


def _sentinels(count: int, text: str) -> list[str]:
    """Words that occur nowhere in `text` and that no template has a reason to change."""
    salt = 0
    while f"kept{salt}x" in text:
        salt += 1
    return [f"kept{salt}x{index}x" for index in range(count)]


def _split_at(text: str, sentinels: list[str]) -> list[str] | None:
    """The text around the sentinels; None unless each is there once and in order."""
    pieces: list[str] = []
    for sentinel in sentinels:
        before, found, text = text.partition(sentinel)
        if not found:
            return None
        pieces.append(before)
    return [*pieces, text]


def _interleave(pieces: list[str], contents: list[str]) -> str:
    rest = "".join(content + after for content, after in zip(contents, pieces[1:], strict=True))
    return pieces[0] + rest


def _encode_around(
    pieces: list[str], kept: list[tuple[int, ...]], tokenizer: Tokenizer
) -> list[int]:
    """Ids of the text pieces with the kept ids between them."""
    ids: list[int] = []
    for position, piece in enumerate(pieces):
        kept_ids = kept[position] if position < len(kept) else ()
        if _carries_own_space(kept_ids, tokenizer):
            piece = piece.removesuffix(" ")
        if position == 0:
            ids += tokenizer.encode(piece, add_special_tokens=False)
        else:
            ids += tokenizer.encode_continuation(piece)
        ids += kept_ids
    return ids


def _carries_own_space(kept_ids: tuple[int, ...], tokenizer: Tokenizer) -> bool:
    """Whether the space that a template writes before an answer was sampled as part of it.

    SentencePiece models begin an answer with a piece such as "▁Hello", whose space decoding
    takes away and the template puts back.
    """
    if not tokenizer.strips_leading_space:
        return False
    spelled = (tokenizer.token_bytes(id_) for id_ in kept_ids if not tokenizer.is_special(id_))
    return next((data.startswith(b" ") for data in spelled if data), False)
