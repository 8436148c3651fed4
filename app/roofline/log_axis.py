"""Logarithmic axes: where a range ends, where its ticks stand, which pixel a value has."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from app.telemetry.series import Array

_LADDER = (1.0, 2.0, 5.0, 10.0)
_SHORT = 3.0  # decades: a shorter axis has ticks between the powers of ten too


@dataclass(frozen=True, slots=True)
class LogAxis:
    """From `low` to `high`, both above zero, over `length` px from `start` (may be negative)."""

    low: float
    high: float
    start: float
    length: float

    def px(self, value: float) -> float:
        """Where a value stands."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * self.length

    def pixels(self, values: Array) -> Array:
        """The same for many, shape [n]."""
        shares = np.log(values / self.low) / math.log(self.high / self.low)
        pixels: Array = self.start + shares * self.length
        return pixels

    def value(self, px: float) -> float:
        """What stands at a place."""
        return float(self.low * (self.high / self.low) ** ((px - self.start) / self.length))


def rung_below(value: float) -> float:
    """The nearest of 1, 2, 5 x 10^n that is not above: a range that grows holds still between."""
    power = 10.0 ** math.floor(math.log10(value))
    return max(step * power for step in _LADDER if step * power <= value * (1 + 1e-9))


def rung_above(value: float) -> float:
    """The nearest of 1, 2, 5 x 10^n that is not below."""
    power = 10.0 ** math.floor(math.log10(value))
    return min(step * power for step in _LADDER if step * power >= value * (1 - 1e-9))


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten within [low, high]; on a short axis 2 and 5 times these too."""
    steps = _LADDER[:3] if math.log10(high / low) < _SHORT else _LADDER[:1]
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    # 10.0 ** -1 is exact where 10.0 ** 0 * 0.1 would not be.
    positions = (step * 10.0**exponent for exponent in exponents for step in steps)
    return [p for p in positions if low * (1 - 1e-9) <= p <= high * (1 + 1e-9)]
