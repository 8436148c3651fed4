"""How a text longer than the context is cut so that each token is scored once.

Hugging Face's strided perplexity (transformers, docs/source/en/perplexity.md): windows of `window`
tokens begin every `stride` tokens; each scores the tokens that no earlier one held, given all
that precede them in the window.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens `begin` up to `end` of the text; those from `first_scored` on are scored here."""

    begin: int
    end: int
    first_scored: int

    @property
    def num_tokens(self) -> int:
        """Its length."""
        return self.end - self.begin

    @property
    def num_scored(self) -> int:
        """Tokens scored in it."""
        return self.end - self.first_scored


def strided_windows(num_tokens: int, window: int, stride: int) -> list[Window]:
    """The windows over a text of `num_tokens`, the last one as short as what is left.

    A window's first token has nothing before it and is not scored: that is the text's first one,
    and each window's where `stride` equals `window`. Raises ValueError for a stride that would
    leave tokens out and for a window of a single token.
    """
    if window < 2:
        raise ValueError("window: at least 2 tokens")
    if not 1 <= stride <= window:
        raise ValueError(f"stride: between 1 and the window's {window:,} tokens")
    windows: list[Window] = []
    previous_end = 0
    for begin in range(0, num_tokens, stride):
        end = min(begin + window, num_tokens)
        first_scored = max(previous_end, begin + 1)
        if first_scored < end:
            windows.append(Window(begin, end, first_scored))
        previous_end = end
        if end == num_tokens:
            break
    return windows
