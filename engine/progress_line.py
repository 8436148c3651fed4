"""One line on stderr that is written over while a command works."""

from __future__ import annotations

import sys
from types import TracebackType


class ProgressLine:
    """Shows the latest state on a terminal and clears it at the end; elsewhere nothing is shown.

    A log or a pipe would keep every state, and what scripts read there is only failures.
    """

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._width = 0

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.show("")
        if self._is_terminal:
            sys.stderr.write("\r")
            sys.stderr.flush()

    def show(self, text: str) -> None:
        """Replace what is shown."""
        if not self._is_terminal:
            return
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)
