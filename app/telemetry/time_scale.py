"""Where moments lie on the time axis: seconds as they are, idle ones left out, or tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from app.telemetry.request_trace import RequestTrace
from app.telemetry.series import Array

# An idle time longer than a gap is drawn as one. Gaps stay visible as the session grows: they
# double until the busy time is at most this many of them.
_LEAST_GAP_S, _MOST_GAPS = 2.0, 64


@dataclass(frozen=True, slots=True)
class Gap:
    """An idle time that was left out: its ends on the axis, and how long it was."""

    start: float
    end: float
    seconds: float


@dataclass(frozen=True, slots=True)
class TimeScale:
    """A course that never falls, from seconds to places on the axis: straight between its knots.

    `seconds` and `places`, shape [n] each, n >= 1, never fall. Beyond its ends it goes on with
    `slope`: 1 where places are seconds, 0 where nothing is known there.
    """

    seconds: Array
    places: Array
    slope: float = 1.0
    gaps: tuple[Gap, ...] = ()

    def place(self, seconds: Array) -> Array:
        """Where these moments lie, shape [n]."""
        first, last = self.seconds[0], self.seconds[-1]
        beyond = seconds - np.clip(seconds, first, last)
        return np.interp(seconds, self.seconds, self.places) + self.slope * beyond

    def place_of(self, second: float) -> float:
        """Where one moment lies."""
        return float(self.place(np.array([second]))[0])

    def second_at(self, place: float) -> float:
        """The moment that lies there; the earliest where several do."""
        clipped = min(max(place, float(self.places[0])), float(self.places[-1]))
        index = int(np.searchsorted(self.places, clipped))
        if index == 0 or self.places[index] == clipped:
            second = float(self.seconds[index])
        else:
            second = float(np.interp(clipped, self.places, self.seconds))
        return second + self.slope * (place - clipped)


SECONDS = TimeScale(np.zeros(1), np.zeros(1))


def token_scale(trace: RequestTrace) -> TimeScale:
    """Moments of a request as tokens that were in its context by then, dropped ones included."""
    tokens = len(trace.tokens)
    before = len(trace.kv) - tokens  # rows of the prefill
    read = trace.kv["context"][:before]
    prompt = float(read[-1]) if before else 0.0
    places = np.concatenate(([0.0], read, prompt + 1.0 + np.arange(tokens)))
    seconds = np.concatenate(([0.0], trace.kv["t_s"]))
    if before:
        places[0] = read[0]  # at Send the cached prefix is there
    # What was read again after others had taken the blocks counts once.
    rising = np.maximum.accumulate(places)
    return TimeScale(np.maximum.accumulate(seconds), rising, slope=0.0)


def session_scale(stretches: Iterable[tuple[float, float]]) -> TimeScale:
    """Busy times one after the other, each idle time between them at most a gap long.

    `stretches` are starts and ends in seconds, in any order; they may overlap. The first one
    begins at place 0.
    """
    busy = _merged(stretches)
    if not busy:
        return SECONDS
    gap_s = _gap_s(busy)
    seconds, places, gaps = [busy[0][0]], [0.0], []
    for number, (start, end) in enumerate(busy):
        if number:
            idle = start - seconds[-1]
            width = min(idle, gap_s)
            if width < idle:
                gaps.append(Gap(places[-1], places[-1] + width, idle))
            seconds.append(start)
            places.append(places[-1] + width)
        seconds.append(end)
        places.append(places[-1] + (end - start))
    return TimeScale(np.array(seconds), np.array(places), gaps=tuple(gaps))


def _merged(stretches: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start, end in sorted(stretches):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, max(start, end)))
    return merged


def _gap_s(busy: list[tuple[float, float]]) -> float:
    gap_s = _LEAST_GAP_S
    total = sum(end - start for start, end in busy)
    while gap_s * _MOST_GAPS < total:
        gap_s *= 2
    return gap_s
