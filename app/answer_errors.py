"""The rows that tell why there is no answer, why it ended early, or what it did not see."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication

from app.chat.model import ChatModel
from app.chat.store import ErrorAction
from app.telemetry.format import count
from engine.config import ContextPolicy
from engine.events import ContextCut, GenerationFailed, ModelLoaded


def tell_failure(
    model: ChatModel, failure: GenerationFailed, loaded: ModelLoaded | None, prompt_tokens: int
) -> None:
    """Say what the engine said; a prompt of `prompt_tokens` that is too long gets a button."""
    limit = (loaded.config.context_length or 0) if loaded else 0
    actions = longer_contexts(loaded, prompt_tokens) if prompt_tokens >= limit else []
    model.append_error(failure.what, failure.why, failure.next, actions)


def tell_context_full(model: ChatModel, loaded: ModelLoaded | None, policy: ContextPolicy) -> None:
    """Say that the answer met the end of the context."""
    limit = (loaded.config.context_length or 0) if loaded else 0
    model.append_error(
        _tr("The context is full."),
        _tr("This chat and its answer take all {0} tokens.").format(count(limit)),
        _tr("The next message leaves the oldest turns out.")
        if policy == "drop_turns"
        else _tr("Load with a longer context, or start a new chat."),
        [*longer_contexts(loaded, limit), ErrorAction("new-chat", _tr("New chat"))],
    )


def tell_context_cut(model: ChatModel, cut: ContextCut, before_id: str) -> None:
    """Say before a message, the first that is seen again, what the model no longer sees."""
    above = cut.dropped_messages
    many = _tr("the {0} messages above").format(count(above))
    gone = _tr("the message above") if above == 1 else many
    if cut.kept_first:
        # That the first tokens are still seen is in the tooltip: the line is to stay a line.
        rest = _tr("part of the message below")
        gone = _tr("{0} and part of the next").format(gone) if above else rest
        why = _tr(
            "{0} tokens have left the context, which was full. Of this chat the model sees the "
            "first {1} tokens and the latest {2}, and what is said from here on."
        )
    else:
        why = _tr(
            "They take {0} tokens. The oldest turns are left out so that the question and its "
            "answer have room; the system prompt stays."
        )
    text = _tr("The model no longer sees {0}").format(gone)
    why = why.format(*map(count, (cut.dropped_tokens, cut.kept_first, cut.kept_last)))
    model.show_divider(before_id, text, why)


def longer_contexts(loaded: ModelLoaded | None, tokens: int) -> list[ErrorAction]:
    """A button that loads with enough context for `tokens`, where the model has it."""
    if loaded is None:
        return []
    present, longest = loaded.config.context_length or 1, loaded.model.context_length
    length = present
    while length <= tokens and length < longest:
        length *= 2
    length = min(length, longest)
    if length <= max(tokens, present):
        return []
    label = _tr("Load with {0} context").format(count(length))
    return [ErrorAction(f"context:{length}", label)]


def _tr(text: str) -> str:
    return QCoreApplication.translate("AnswerErrors", text)
