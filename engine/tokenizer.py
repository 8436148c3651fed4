"""Text to token ids and back: one face over the vocabularies of both checkpoint formats.

Decoding is done on bytes here rather than by the library: ids give bytes, bytes give text, so that
a stream of single tokens and the whole answer cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

import tokenizers

from engine.session import EngineError

# How the vocabulary spells bytes: GPT-2's printable stand-ins, or SentencePiece's "▁" for a space
# and <0x0A> for bytes without a piece.
Alphabet: TypeAlias = Literal["byte_level", "sentencepiece"]

_SPACE = "\u2581"
# Merges with nothing in SentencePiece vocabularies, so what follows it is not at a text's start.
_NEUTRAL_START = "\n"


@dataclass(frozen=True, slots=True)
class TokenizerTraits:
    """What the library's tokenizer does not tell: end tokens, and how bytes are spelled.

    `prefix_ids`, `suffix_ids` are what `add_special_tokens` puts around a text.
    `strips_leading_space`: encoding puts a space before the text, decoding takes it away.
    """

    alphabet: Alphabet
    bos_token_id: int | None
    eos_token_id: int | None
    eos_token_ids: frozenset[int]
    prefix_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()
    strips_leading_space: bool = False
    has_byte_tokens: bool = False


class Tokenizer:
    """Owns the vocabulary and its byte spellings. Knows nothing of chats or of the model.

    `eos_token_ids` end an answer; `eos_token_id` is the one that the chat template may write.
    """

    def __init__(self, backend: tokenizers.Tokenizer, traits: TokenizerTraits) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._traits = traits
        self.bos_token_id = traits.bos_token_id
        self.eos_token_id = traits.eos_token_id
        self.eos_token_ids = traits.eos_token_ids
        self.strips_leading_space = traits.strips_leading_space
        self.vocab_size = max(backend.get_vocab().values(), default=-1) + 1
        added = backend.get_added_tokens_decoder()
        self._special = frozenset(id_ for id_, token in added.items() if token.special)
        self._added = frozenset(added)
        self._bytes: dict[int, bytes] = {}

    @property
    def traits(self) -> TokenizerTraits:
        """What the library's description leaves out."""
        return self._traits

    def backend_json(self) -> str:
        """The library's description of the vocabulary, as JSON."""
        description: str = self._backend.to_str()
        return description

    @property
    def add_bos(self) -> bool:
        """Whether a text is meant to begin with the BOS token."""
        return self.bos_token_id is not None and self.bos_token_id in self._traits.prefix_ids

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """Token ids of `text`; special tokens written in it are recognised.

        With `add_special_tokens` in the frame (BOS, EOS) that the model's own configuration adds.
        Other threads run meanwhile.
        """
        with library_failures():
            # Only the batch call lets go of the GIL.
            [encoding] = self._backend.encode_batch_fast([_valid(text)], add_special_tokens=False)
        ids: list[int] = encoding.ids
        if add_special_tokens:
            return [*self._traits.prefix_ids, *ids, *self._traits.suffix_ids]
        return ids

    def encode_continuation(self, text: str) -> list[int]:
        """Like encode for a text that goes on after other tokens: no space is put before it."""
        if not self.strips_leading_space:
            return self.encode(text, add_special_tokens=False)
        start = self.encode(_NEUTRAL_START, add_special_tokens=False)
        ids = self.encode(_NEUTRAL_START + text, add_special_tokens=False)
        if ids[: len(start)] != start:
            return self.encode(text, add_special_tokens=False)
        return ids[len(start) :]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of `ids`, special tokens left out; bytes that are no UTF-8 become U+FFFD."""
        data = b"".join(self.token_bytes(id_) for id_ in ids if not self.is_special(id_))
        if self.strips_leading_space:
            data = data.removeprefix(b" ")
        return data.decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for, also of a special one; empty for ids without a token."""
        data = self._bytes.get(token_id)
        if data is None:
            data = self._bytes[token_id] = self._spell(token_id)
        return data

    def token_text(self, token_id: int | None) -> str:
        """A token as the vocabulary writes it, empty for None and for ids without a token."""
        if token_id is None or not 0 <= token_id < self.vocab_size:
            return ""
        return self._backend.id_to_token(token_id) or ""

    def token_id(self, token: str) -> int | None:
        """The id of a vocabulary entry, None when there is none."""
        token_id: int | None = self._backend.token_to_id(token)
        return token_id

    def is_special(self, token_id: int) -> bool:
        """Whether the token steers the model (BOS, end of turn ...) and is no part of the text."""
        return token_id in self._special

    def _spell(self, token_id: int) -> bytes:
        token = self.token_text(token_id)
        if token_id in self._special:
            return token.encode("utf-8")
        if self._traits.alphabet == "byte_level":
            return token.encode("utf-8") if token_id in self._added else byte_level_bytes(token)
        if self._traits.has_byte_tokens and is_byte_token(token):
            return bytes([int(token[3:5], 16)])
        return token.replace(_SPACE, " ").encode("utf-8")


@contextmanager
def library_failures() -> Iterator[None]:
    """Turn what the library raises over a broken tokenizer, a Rust panic too, into EngineError."""
    try:
        yield
    except BaseException as error:
        # A panic is no Exception, and its class cannot be imported to be named here.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise EngineError(
            "The tokenizer failed.",
            f"Its description is broken: {str(error)[:200]}.",
            "Download the model again, or choose another one.",
        ) from error


def is_byte_token(token: str) -> bool:
    """Whether a SentencePiece entry stands for a byte: `<0x0A>`."""
    digits = token[3:5]
    return (
        len(token) == 6
        and token.startswith("<0x")
        and token.endswith(">")
        and all(digit in "0123456789abcdefABCDEF" for digit in digits)
    )


def byte_level_bytes(token: str) -> bytes:
    """The bytes of a byte-level BPE entry; one with a foreign character stands for its UTF-8."""
    try:
        return bytes(_BYTE_OF[character] for character in token)
    except KeyError:
        return token.encode("utf-8")


def end_of_turn_ids(tokenizer: tokenizers.Tokenizer, names: Iterable[str]) -> frozenset[int]:
    """Ids of those of `names` that the vocabulary has as special tokens."""
    special = {
        token.content: id_
        for id_, token in tokenizer.get_added_tokens_decoder().items()
        if token.special
    }
    return frozenset(special[name] for name in names if name in special)


def _valid(text: str) -> str:
    """`text` with lone surrogates, which have no UTF-8, replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _byte_alphabet(printable: Sequence[int]) -> dict[str, int]:
    """GPT-2's byte to character table: printable bytes as they are, others from U+0100 up."""
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet([*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)])
