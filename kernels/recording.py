"""A forward pass recorded once and replayed: the face that CUDA graphs and the CPU's tape share.

Between two replays only the contents of the tensors that the recorded pass reads may change, not
their places: lengths, positions and block tables come from buffers. The results are the same
tensors after each replay.
"""

from __future__ import annotations

import ctypes
from typing import Protocol


class CancelCell:
    """One 32-bit word that any thread may set and native code polls between operations."""

    def __init__(self) -> None:
        self._word = ctypes.c_int32(0)

    @property
    def address(self) -> int:
        """Where the word lies; valid as long as the cell."""
        return ctypes.addressof(self._word)

    def set(self) -> None:
        """Ask whoever polls to stop; thread-safe."""
        self._word.value = 1

    def clear(self) -> None:
        """Begin anew."""
        self._word.value = 0

    def __bool__(self) -> bool:
        return bool(self._word.value)


class Recording(Protocol):
    """What was recorded; `replay` runs it again on what its input tensors hold now."""

    def replay(self, cancel: CancelCell) -> bool:
        """Run to the end (on a GPU: enqueue); False when it stopped early because of `cancel`."""
        ...
