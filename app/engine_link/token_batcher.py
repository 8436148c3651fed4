"""Gathers engine events so that the window is told now and then, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.events import Event, GenerationFailed, GenerationFinished, ModelLoaded, TokenEvent

BATCH_NS = 33_000_000
# Where the engine computes on the cores that the window draws with, each update costs tokens.
SHARED_CORES_BATCH_NS = 100_000_000


def batch_interval_ns(loaded: ModelLoaded, cores: int) -> int:
    """How often the window is told, on a machine with that many processor cores."""
    takes_all_cores = loaded.device_uuid is None and loaded.threads >= cores
    return SHARED_CORES_BATCH_NS if takes_all_cores else BATCH_NS


class TokenBatcher:
    """Keeps events in order until they are due: at once for a first token and for an end.

    Between them every `interval_ns`. `clock` gives nanoseconds.
    """

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.interval_ns = BATCH_NS
        self._clock = clock
        self._events: list[Event] = []
        self._last_take_ns = clock()
        self._last_step_ns = 0

    @property
    def pending(self) -> bool:
        """Whether events wait to be taken."""
        return bool(self._events)

    def add(self, events: list[Event], step_ns: int) -> bool:
        """Append what a step of `step_ns` gave; True when the batch should be taken now."""
        self._events += events
        self._last_step_ns = step_ns
        if not self._events:
            return False
        if self._clock() - self._last_take_ns >= self.interval_ns:
            return True
        return any(_is_urgent(event) for event in events)

    def due_before_step(self) -> bool:
        """Whether the next step, if it takes as long as the last, would make the batch late."""
        age_ns = self._clock() - self._last_take_ns
        return self.pending and age_ns + self._last_step_ns >= self.interval_ns

    def take(self) -> list[Event]:
        """All events gathered so far, oldest first."""
        batch, self._events = self._events, []
        self._last_take_ns = self._clock()
        return batch


def _is_urgent(event: Event) -> bool:
    if isinstance(event, TokenEvent):
        return event.index == 0
    return isinstance(event, GenerationFinished | GenerationFailed)
