"""The rows that tell why there is no answer, or why it ended early, with the button that helps."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication

from app.chat.model import ChatModel
from app.chat.store import ErrorAction
from app.telemetry.format import count
from engine.events import GenerationFailed, ModelLoaded


def tell_failure(
    model: ChatModel, failure: GenerationFailed, loaded: ModelLoaded | None, prompt_tokens: int
) -> None:
    """Say what the engine said; a prompt of `prompt_tokens` that is too long gets a button."""
    limit = (loaded.config.context_length or 0) if loaded else 0
    actions = longer_contexts(loaded, prompt_tokens) if prompt_tokens >= limit else []
    model.append_error(failure.what, failure.why, failure.next, actions)


def tell_context_full(model: ChatModel, loaded: ModelLoaded | None) -> None:
    """Say that the answer met the end of the context."""
    limit = (loaded.config.context_length or 0) if loaded else 0
    model.append_error(
        _tr("The context is full."),
        _tr("This chat and its answer take all {0} tokens.").format(count(limit)),
        _tr("Load with a longer context, or start a new chat."),
        [*longer_contexts(loaded, limit), ErrorAction("new-chat", _tr("New chat"))],
    )


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
