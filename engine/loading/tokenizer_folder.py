"""The tokenizer of a Hugging Face folder: tokenizer.json and the configs beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from engine.loading.files import CheckpointError, bad_file, checked_size, unsupported
from engine.loading.generation_defaults import END_OF_TURN_TOKENS
from engine.tokenizer import Alphabet, Tokenizer, TokenizerTraits, end_of_turn_ids, library_failures

_MAX_TOKENIZER_BYTES = 256 * 2**20  # a vocabulary of 262,000 takes 33 MB
_PROBE = "a"


@dataclass(frozen=True, slots=True)
class TokenizerFolder:
    """A folder with a tokenizer.json; `bos_token`, `eos_token` as tokenizer_config.json has them.

    `add_bos`, `add_eos` are the config's explicit choice, None when it makes none.
    """

    folder: Path
    bos_token: str | None
    eos_token: str | None
    add_bos: bool | None
    add_eos: bool | None


def tokenizer_from_folder(source: TokenizerFolder, eos_token_ids: frozenset[int]) -> Tokenizer:
    """The tokenizer; its end tokens are `eos_token_ids`, its own and the ends of a turn.

    Raises CheckpointError for a missing, broken or unknown tokenizer.json.
    """
    path = source.folder / "tokenizer.json"
    backend = _read_backend(path)
    decoder = _decoder_parts(backend)
    prefix_ids, suffix_ids = _frame(backend)
    bos_id = _token_id(backend, source.bos_token)
    eos_id = _token_id(backend, source.eos_token)
    own_eos = frozenset() if eos_id is None else frozenset({eos_id})
    traits = TokenizerTraits(
        alphabet=_alphabet(decoder, path),
        bos_token_id=bos_id,
        eos_token_id=eos_id,
        eos_token_ids=eos_token_ids | own_eos | end_of_turn_ids(backend, END_OF_TURN_TOKENS),
        prefix_ids=_chosen(prefix_ids, source.add_bos, bos_id),
        suffix_ids=_chosen(suffix_ids, source.add_eos, eos_id),
        strips_leading_space=any(map(_strips_leading_space, decoder)),
        has_byte_tokens=any(part.get("type") == "ByteFallback" for part in decoder),
    )
    return Tokenizer(backend, traits)


def _read_backend(path: Path) -> tokenizers.Tokenizer:
    if not path.exists():
        raise CheckpointError(
            "not_found",
            "The model has no tokenizer.json.",
            f"Without it no text can be turned into tokens; it was looked for in {path.parent}.",
            "Download tokenizer.json into the folder.",
        )
    if checked_size(path) > _MAX_TOKENIZER_BYTES:
        raise bad_file(path, "It is too large for a tokenizer.")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise bad_file(path, f"{error.strerror or error}.") from error
    with library_failures():
        return tokenizers.Tokenizer.from_buffer(data)


def _decoder_parts(backend: tokenizers.Tokenizer) -> list[dict[str, Any]]:
    """The decoder's steps as the file describes them."""
    if backend.decoder is None:
        return []
    decoder: dict[str, Any] = json.loads(backend.decoder.__getstate__())
    parts: list[dict[str, Any]] = decoder.get("decoders", [decoder])
    return parts


def _alphabet(decoder: list[dict[str, Any]], path: Path) -> Alphabet:
    kinds = {str(part.get("type")) for part in decoder}
    if "ByteLevel" in kinds:
        return "byte_level"
    if kinds & {"Metaspace", "ByteFallback"}:
        return "sentencepiece"
    raise unsupported(
        f"The tokenizer's decoder ({', '.join(sorted(kinds)) or 'none'})",
        f"{path.name} is neither byte-level nor SentencePiece.",
        "Choose a model of a known architecture.",
    )


def _strips_leading_space(part: dict[str, Any]) -> bool:
    if part.get("type") == "Strip":
        return part.get("content") == " " and bool(part.get("start"))
    return part.get("type") == "Metaspace" and part.get("prepend_scheme") != "never"


def _frame(backend: tokenizers.Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the tokenizer's post-processor puts before and after a text."""
    with library_failures():
        bare = backend.encode(_PROBE, add_special_tokens=False).ids
        framed = backend.encode(_PROBE, add_special_tokens=True).ids
    for start in range(len(framed) - len(bare) + 1):
        if framed[start : start + len(bare)] == bare:
            return tuple(framed[:start]), tuple(framed[start + len(bare) :])
    return (), ()


def _chosen(
    frame_ids: tuple[int, ...], choice: bool | None, token_id: int | None
) -> tuple[int, ...]:
    """The frame after an explicit add_bos_token or add_eos_token."""
    if choice is None or token_id is None:
        return frame_ids
    if choice:
        return frame_ids if token_id in frame_ids else (token_id, *frame_ids)
    return tuple(id_ for id_ in frame_ids if id_ != token_id)


def _token_id(backend: tokenizers.Tokenizer, token: str | None) -> int | None:
    return None if token is None else backend.token_to_id(token)
