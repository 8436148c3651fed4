"""How fast bytes come, over the last seconds rather than since the start."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

WINDOW_S = 5.0
# Before this much time has passed a rate would be a guess.
MIN_SPAN_S = 0.5


class TransferRate:
    """A sliding window over what arrived. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started_s = clock()
        self._arrivals: deque[tuple[float, int]] = deque()

    def add(self, num_bytes: int) -> None:
        """So many bytes have come now."""
        now = self._clock()
        self._arrivals.append((now, num_bytes))
        while self._arrivals[0][0] < now - WINDOW_S:
            self._arrivals.popleft()

    def per_second(self) -> float | None:
        """Bytes a second over the window, None while too little time has passed."""
        span = min(self._clock() - self._started_s, WINDOW_S)
        if span < MIN_SPAN_S:
            return None
        recent = self._clock() - WINDOW_S
        return sum(size for when, size in self._arrivals if when >= recent) / span
