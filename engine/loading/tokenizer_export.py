"""A tokenizer as the tokenizer.json that Hugging Face's libraries read."""

from __future__ import annotations

import tokenizers
from tokenizers import decoders, processors

from engine.tokenizer import Tokenizer, library_failures

_SPACE = "\u2581"


def tokenizer_json(tokenizer: Tokenizer) -> str:
    """The library's description of a tokenizer built from a GGUF file, made complete.

    Such a one keeps the decoder and the frame of special tokens beside it. Raises EngineError.
    """
    with library_failures():
        backend = tokenizers.Tokenizer.from_str(tokenizer.backend_json())
        if tokenizer.traits.alphabet == "sentencepiece":
            backend.decoder = _sentencepiece_decoder(tokenizer.strips_leading_space)
        if tokenizer.traits.prefix_ids or tokenizer.traits.suffix_ids:
            backend.post_processor = _frame(tokenizer)
        text: str = backend.to_str(pretty=True)
        return text


def _sentencepiece_decoder(strips_leading_space: bool) -> decoders.Decoder:
    steps: list[decoders.Decoder] = [
        decoders.Replace(_SPACE, " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
    ]
    if strips_leading_space:
        steps.append(decoders.Strip(" ", 1, 0))
    return decoders.Sequence(steps)


def _frame(tokenizer: Tokenizer) -> processors.PostProcessor:
    traits = tokenizer.traits
    before = [tokenizer.token_text(token_id) for token_id in traits.prefix_ids]
    after = [tokenizer.token_text(token_id) for token_id in traits.suffix_ids]
    ids = {*traits.prefix_ids, *traits.suffix_ids}
    return processors.TemplateProcessing(
        single=" ".join([*before, "$A", *after]),
        pair=" ".join([*before, "$A", *after, *(f"{t}:1" for t in before), "$B:1"]),
        special_tokens=[(tokenizer.token_text(token_id), token_id) for token_id in sorted(ids)],
    )
