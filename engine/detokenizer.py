"""Token ids to text while they come: whole characters only, and nothing past a stop string."""

from __future__ import annotations

import codecs
from typing import Protocol


class ByteVocabulary(Protocol):
    """What of a tokenizer the detokenizer needs; `engine.tokenizer.Tokenizer` is one."""

    strips_leading_space: bool

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for."""
        ...

    def is_special(self, token_id: int) -> bool:
        """Whether a token is no part of the text."""
        ...


class Detokenizer:
    """Owns the bytes of an unfinished character and the text that may yet be a stop string.

    The pieces of `add` and `finish` concatenate to `tokenizer.decode` of all ids, up to the stop
    string that is complete first. `stopped` is true from then on, and nothing more comes out.
    """

    def __init__(self, tokenizer: ByteVocabulary, stop: tuple[str, ...] = ()) -> None:
        self._tokenizer = tokenizer
        self._stop = stop
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._strip_space = tokenizer.strips_leading_space
        self._held = ""
        self.stopped = False

    def add(self, token_id: int) -> str:
        """The text that became certain with this token, possibly none."""
        if self.stopped or self._tokenizer.is_special(token_id):
            return ""
        data = self._tokenizer.token_bytes(token_id)
        if self._strip_space and data:
            data = data.removeprefix(b" ")
            self._strip_space = False
        return self._release(self._decoder.decode(data))

    def finish(self) -> str:
        """The rest, once no more tokens come; an unfinished character becomes U+FFFD."""
        if self.stopped:
            return ""
        rest = self._release(self._decoder.decode(b"", final=True)) + self._held
        self._held = ""
        return rest

    def _release(self, text: str) -> str:
        """Append `text` to what is held back and let out what no stop string can reach."""
        if not self._stop:
            return text
        self._held += text
        end = self._earliest_stop()
        if end is not None:
            released, self._held = self._held[:end], ""
            self.stopped = True
            return released
        kept = max(map(self._open_prefix, self._stop))
        cut = len(self._held) - kept
        released, self._held = self._held[:cut], self._held[cut:]
        return released

    def _earliest_stop(self) -> int | None:
        """Where the text ends: at the stop string that is complete first, the longest of such."""
        found = [
            (start + len(stop), start)
            for stop in self._stop
            if (start := self._held.find(stop)) >= 0
        ]
        return min(found)[1] if found else None

    def _open_prefix(self, stop: str) -> int:
        """Length of the longest end of the held text that begins `stop`."""
        longest = min(len(stop) - 1, len(self._held))
        return next(
            (length for length in range(longest, 0, -1) if self._held.endswith(stop[:length])), 0
        )
