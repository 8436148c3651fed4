"""Axis arithmetic: where a range ends, where its ticks stand, how a long line is thinned."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from app.telemetry.series import Array

_NO_ROWS = np.empty(0, dtype=np.intp)

# The time axis grows in these steps, so that the picture holds still between them.
_TIME_RANGES_S = (1.2, 3.0, 6.0, 12.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3000.0, 6000.0)
_TIME_HEADROOM = 1.03
_TOKEN_FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_CLOCK_STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)
_TICK_FACTORS = (1.0, 2.0, 2.5, 4.0, 5.0, 10.0)


def time_range_s(elapsed_s: float) -> float:
    """The end of a time axis that holds `elapsed_s` with a little room, from a fixed ladder."""
    needed = elapsed_s * _TIME_HEADROOM
    for end in _TIME_RANGES_S:
        if needed <= end:
            return end
    hour = 3600.0
    return math.ceil(needed / hour) * hour


def token_range(tokens: float) -> float:
    """The end of an axis that holds so many tokens with a little room, from a fixed ladder."""
    needed = max(64.0, tokens * _TIME_HEADROOM)
    power = 10.0 ** math.floor(math.log10(needed))
    return next(f * power for f in _TOKEN_FACTORS if f * power >= needed)


def tick_step(span: float, max_ticks: int) -> float:
    """The smallest step of the form 1, 2, 2.5, 4, 5 x 10^n that gives at most `max_ticks` steps."""
    if span <= 0:
        return 1.0
    raw = span / max(1, max_ticks)
    power = 10.0 ** math.floor(math.log10(raw))
    return next(f * power for f in _TICK_FACTORS if f * power >= raw * (1 - 1e-9))


def clock_step(span_s: float, max_ticks: int) -> float:
    """The smallest step that a clock counts in, which gives at most `max_ticks` steps."""
    raw = span_s / max(1, max_ticks)
    for step in _CLOCK_STEPS_S:
        if step >= raw:
            return step
    hour = 3600.0
    return math.ceil(raw / hour) * hour


def ticks(low: float, high: float, max_ticks: int) -> list[float]:
    """Round tick positions within [low, high]."""
    step = tick_step(high - low, max_ticks)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]


def tick_labels(positions: list[float]) -> list[str]:
    """Tick texts with as many decimals as their step needs and thousands separated."""
    if len(positions) < 2:
        return [f"{p:,g}" for p in positions]
    step = positions[1] - positions[0]
    decimals = next(d for d in range(11) if abs(step * 10**d - round(step * 10**d)) < 1e-6)
    return [f"{p:,.{decimals}f}" for p in positions]


def axis_top(value: float, max_ticks: int) -> float:
    """The end of an axis from zero that holds `value`: the next half tick step above it."""
    if value <= 0:
        return 1.0
    half = tick_step(value, max_ticks) / 2
    return math.ceil(value / half - 1e-9) * half


def covered(values: Array, point: float = 99.0) -> float:
    """The value an axis must reach to hold `point` percent of `values`; 0 without any.

    The lower neighbour and not the interpolated percentile: otherwise a single late token
    among fewer than a hundred would still flatten the rest.
    """
    return float(np.percentile(values, point, method="lower")) if len(values) else 0.0


def thin_by_mean(
    x: Array, y: Array, bins: int, keep: NDArray[np.bool_] | None = None
) -> tuple[Array, Array]:
    """About `bins` points of a line, each the mean of the neighbours it stands for.

    Those of `keep` [n] come on top and stay as they are. A line with more points than pixels
    costs time and shows no more.
    """
    kept = np.flatnonzero(keep) if keep is not None else _NO_ROWS
    if len(x) - len(kept) <= bins:
        return x, y
    starts = np.linspace(0, len(x), max(1, bins), endpoint=False).astype(np.intp)
    starts = np.unique(np.concatenate((starts, kept, kept[kept + 1 < len(x)] + 1)))
    sizes = np.diff(np.append(starts, len(x)))
    return np.add.reduceat(x, starts) / sizes, np.add.reduceat(y, starts) / sizes


def thin_by_stride(
    x: Array, y: Array, points: int, keep: NDArray[np.intp] | None = None
) -> tuple[Array, Array]:
    """About `points` points of a smooth line, first and last among them, values untouched.

    The rows of `keep` are among them too.
    """
    if len(x) <= points:
        return x, y
    rows = np.linspace(0, len(x) - 1, points).round().astype(np.intp)
    rows = np.unique(np.concatenate((rows, keep if keep is not None else _NO_ROWS)))
    return x[rows], y[rows]


def thin_steps(x: Array, y: Array, steps: int) -> tuple[Array, Array]:
    """At most `steps` steps, each the mean over the time of those it stands for.

    `x` and `y` are the corners of steps, start and end in turn, shape [2 x number of steps].
    """
    count = len(x) // 2
    if count <= steps:
        return x, y
    size = -(-count // steps)
    first = np.arange(0, count, size)
    last = np.minimum(first + size, count) - 1
    starts, ends, values = x[::2], x[1::2], y[::2]
    durations = np.maximum(ends - starts, 1e-9)
    means = np.add.reduceat(values * durations, first) / np.add.reduceat(durations, first)
    return np.column_stack((starts[first], ends[last])).ravel(), np.repeat(means, 2)
