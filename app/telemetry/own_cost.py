"""What telemetry itself costs: processor time of its own code, as a share of one core."""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, ParamSpec, TypeVar, get_args

# sensors: reading them, the process that reads NVML included. recording: taking in events and
# readings, tables, the session's recording. panels: bringing plots, ribbon and map up to date and
# painting them.
Part = Literal["sensors", "recording", "panels"]
PARTS: tuple[Part, ...] = get_args(Part)
WINDOW_S = 10.0
MIN_WINDOW_S = 1.0  # of less than that one redraw would be most

_P = ParamSpec("_P")
_R = TypeVar("_R")


class OwnCost:
    """Adds up processor time by part; `shares` is over the last ten seconds. GUI thread only.

    Not counted: labels and frames, which Qt paints by itself, and what other code waits for.
    """

    def __init__(
        self,
        clock: Callable[[], int] = time.perf_counter_ns,
        thread_clock: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._clock, self._thread_clock = clock, thread_clock
        self._spent_ns = dict.fromkeys(PARTS, 0.0)
        self._part: Part | None = None  # which one runs now, and since when
        self._since_ns = 0
        self._marks: deque[tuple[int, dict[Part, float]]] = deque()

    def counted(self, part: Part) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
        """Count what a function takes."""

        def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
            @functools.wraps(function)
            def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
                with self.spending(part):
                    return function(*args, **kwargs)

            return run

        return decorate

    @contextmanager
    def spending(self, part: Part) -> Iterator[None]:
        """Count what the block takes; of one within another only the inner one runs."""
        outer = self._switch(part)
        try:
            yield
        finally:
            self._switch(outer)

    def add(self, part: Part, cost_ms: float) -> None:
        """Count time of another thread or process."""
        self._spent_ns[part] += 1e6 * cost_ms

    def mark(self) -> None:
        """Remember the sums up to now: a few times a second while something is measured."""
        now_ns = self._clock()
        self._marks.append((now_ns, dict(self._spent_ns)))
        while now_ns - self._marks[0][0] > WINDOW_S * 1e9:
            self._marks.popleft()

    def shares(self) -> dict[Part, float] | None:
        """Each part's share of one core (1 is all of it) over the marks of the last ten seconds.

        None while they are less than a second apart.
        """
        if not self._marks:
            return None
        (then_ns, before), (now_ns, after) = self._marks[0], self._marks[-1]
        elapsed_ns = now_ns - then_ns
        if elapsed_ns < MIN_WINDOW_S * 1e9:
            return None
        return {part: (after[part] - before[part]) / elapsed_ns for part in PARTS}

    def _switch(self, part: Part | None) -> Part | None:
        now_ns = self._thread_clock()
        if self._part is not None:
            self._spent_ns[self._part] += now_ns - self._since_ns
        before, self._part, self._since_ns = self._part, part, now_ns
        return before


# One for the process, as its processor time is one: panels of every window count into it.
OWN_COST = OwnCost()
