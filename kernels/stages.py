"""Where the time of a step goes: attention, feed-forward, head, sampling, in nanoseconds.

A model says which stage begins; operations that block (CPU) are booked by the wall clock, those
of a recorded step by the native code that runs them, and a GPU's by `kernels.gpu.event_clock`.
"""

from __future__ import annotations

import ctypes
import time
from enum import IntEnum


class Stage(IntEnum):
    """What an operation belongs to."""

    ATTENTION = 0
    FFN = 1
    HEAD = 2
    SAMPLE = 3


class StageClock:
    """Adds up nanoseconds by stage; `clear` begins a step."""

    def __init__(self) -> None:
        self.nanoseconds = (ctypes.c_int64 * len(Stage))()
        self.stage = Stage.ATTENTION
        self._began_ns: int | None = None

    def clear(self) -> None:
        """Forget what was booked; no stage runs."""
        for stage in Stage:
            self.nanoseconds[stage] = 0
        self._began_ns = None

    def begin(self, stage: Stage) -> None:
        """End the stage that runs, if any, and begin this one."""
        self.end()
        self.stage = stage
        self._began_ns = time.perf_counter_ns()

    def end(self) -> None:
        """Book the time of the stage that runs."""
        if self._began_ns is not None:
            self.nanoseconds[self.stage] += time.perf_counter_ns() - self._began_ns
        self._began_ns = None

    def settle(self) -> bool:
        """Book what a device measured of the step behind the host's back; False: it did not."""
        return False

    def __getitem__(self, stage: Stage) -> int:
        return int(self.nanoseconds[stage])
