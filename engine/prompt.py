"""From a request to the token ids its answer begins with, fitted into the context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.config import GenerationRequest, Message
from engine.context_policy import answer_room, drop_turns, kept_when_sliding, messages_before
from engine.events import ContextCut
from engine.model_loader import LoadedModel
from engine.session import EngineError


@dataclass(frozen=True, slots=True)
class Prompt:
    """Ids to begin with, and what had to be left out for them to fit."""

    ids: list[int]
    cut: ContextCut | None = None


def make_prompt(request: GenerationRequest, loaded: LoadedModel, t_ns: int) -> Prompt:
    """Encode a request and fit it by its policy, cutting it at `t_ns` if it must be cut.

    Raises EngineError where it cannot be answered.
    """
    ids = _encode(request, loaded)
    context = loaded.facts.context_length
    prompt = Prompt(ids)
    if request.on_context_full == "drop_turns" and request.messages:
        prompt = _without_old_turns(request, loaded, ids, t_ns)
    elif request.on_context_full == "slide" and len(ids) >= context:
        first, last = kept_when_sliding(context)
        cut = slide_cut(request, loaded, len(ids) - first - last, t_ns)
        prompt = Prompt(ids[:first] + ids[-last:], cut)
    _check(prompt.ids, loaded)
    return prompt


def slide_cut(
    request: GenerationRequest, loaded: LoadedModel, dropped_tokens: int, t_ns: int
) -> ContextCut:
    """What a context that slid leaves out, all tokens dropped so far counted."""

    def count(messages: Sequence[Message]) -> int:
        return len(loaded.template.encode(messages, loaded.tokenizer, add_generation_prompt=False))

    first, last = kept_when_sliding(loaded.facts.context_length)
    gone = messages_before(request.messages, count, first + dropped_tokens)
    return ContextCut(request.request_id, t_ns, gone, dropped_tokens, first, last)


def _encode(request: GenerationRequest, loaded: LoadedModel) -> list[int]:
    if request.prompt_ids is not None:
        return list(request.prompt_ids)
    if request.prompt is not None:
        return loaded.tokenizer.encode(request.prompt, add_special_tokens=True)
    return loaded.template.encode(request.messages, loaded.tokenizer)


def _without_old_turns(
    request: GenerationRequest, loaded: LoadedModel, ids: list[int], t_ns: int
) -> Prompt:
    context = loaded.facts.context_length
    limit = context - answer_room(context, request.max_tokens)

    def encode(messages: Sequence[Message]) -> list[int]:
        return loaded.template.encode(messages, loaded.tokenizer)

    if len(ids) <= limit:
        return Prompt(ids)
    messages, dropped = drop_turns(request.messages, lambda m: len(encode(m)), limit)
    if not dropped:
        return Prompt(ids)
    kept = encode(messages)
    num_dropped = len(ids) - len(kept)
    return Prompt(kept, ContextCut(request.request_id, t_ns, dropped, num_dropped, 0, len(kept)))


def _check(ids: list[int], loaded: LoadedModel) -> None:
    context, vocab = loaded.facts.context_length, loaded.info.vocab_size
    if not ids:
        raise EngineError("The prompt is empty.", "There is nothing to read.", "Type a text.")
    if len(ids) >= context:
        raise EngineError(
            f"The prompt is {len(ids):,} tokens long.",
            f"The context holds {context:,}, and the answer needs room in it too.",
            "Shorten the prompt, start a new chat, or load the model with a longer context.",
        )
    if min(ids) < 0 or max(ids) >= vocab:
        raise EngineError(
            "The prompt has a token that the model does not know.",
            f"Its vocabulary has {vocab:,} tokens.",
            "Check that tokenizer and model belong together.",
        )
