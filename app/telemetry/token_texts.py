"""The texts of an answer's tokens, end to end in one buffer: some eight bytes a token."""

from __future__ import annotations

from array import array


class TokenTexts:
    """Texts in order, read by row. A list of strings would take ten times the memory."""

    def __init__(self) -> None:
        self._utf8 = bytearray()
        self._ends = array("I")

    def __len__(self) -> int:
        return len(self._ends)

    def append(self, text: str) -> None:
        """Add the text of the next token, possibly empty."""
        # A lone surrogate, half of a character, is kept as it came.
        self._utf8 += text.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._utf8))

    def __getitem__(self, row: int) -> str:
        """The text of one token. Raises IndexError beyond the last."""
        start = self._ends[row - 1] if row > 0 else 0
        return self._utf8[start : self._ends[row]].decode("utf-8", "surrogatepass")
