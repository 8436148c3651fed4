"""How figures are written everywhere in the window: three significant digits, unit apart.

Never scientific notation; a value that is missing is an en dash.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication

NO_VALUE = "–"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A figure and its unit, apart so that the unit can be drawn in a quieter tone."""

    value: str
    unit: str

    @property
    def text(self) -> str:
        """Both in one string, e.g. "118 ms"."""
        return f"{self.value} {self.unit}"


def three_digits(value: float | None) -> str:
    """`value` with three significant digits and thousands separated; an en dash for no value."""
    if value is None or not math.isfinite(value):
        return NO_VALUE
    if value == 0:
        return "0"
    if abs(value) < 0.001:
        return "<0.001"
    rounded = f"{value:.2e}"
    exponent = int(rounded.partition("e")[2])
    return f"{float(rounded):,.{max(0, 2 - exponent)}f}"


def count(number: int | None) -> str:
    """A whole number, exact, thousands separated."""
    return NO_VALUE if number is None else f"{number:,}"


def milliseconds(ms: float | None) -> Quantity:
    """A duration: ms below one second, seconds from there."""
    if ms is not None and ms >= 999.5:
        return Quantity(three_digits(ms / 1e3), "s")
    return Quantity(three_digits(ms), "ms")


def millisecond_pair(low_ms: float | None, high_ms: float | None) -> Quantity:
    """Two durations in the unit of the larger one, e.g. "7.20 / 8.60" ms."""
    if low_ms is None or high_ms is None:
        return Quantity(NO_VALUE, "ms")
    in_seconds = high_ms >= 999.5
    scale = 1e-3 if in_seconds else 1.0
    pair = f"{three_digits(low_ms * scale)} / {three_digits(high_ms * scale)}"
    return Quantity(pair, "s" if in_seconds else "ms")


def tokens_per_second(rate: float | None) -> Quantity:
    """A pace in tokens a second."""
    return Quantity(three_digits(rate), QCoreApplication.translate("Units", "tok/s"))


def memory(num_bytes: float | None) -> Quantity:
    """Bytes in decimal MB, or GB from one thousand MB."""
    if num_bytes is not None and num_bytes >= 999.5e6:
        return Quantity(three_digits(num_bytes / 1e9), "GB")
    return Quantity(three_digits(None if num_bytes is None else num_bytes / 1e6), "MB")


def operations(flops: float) -> Quantity:
    """Floating-point operations in MFLOP, GFLOP or TFLOP."""
    return _in_thousands(flops, ("MFLOP", "GFLOP", "TFLOP"))


def operation_rate(flops_per_second: float) -> Quantity:
    """Floating-point operations a second in MFLOP/s, GFLOP/s or TFLOP/s."""
    return _in_thousands(flops_per_second, ("MFLOP/s", "GFLOP/s", "TFLOP/s"))


def bandwidth(bytes_per_second: float) -> Quantity:
    """Bytes a second in MB/s, GB/s or TB/s."""
    return _in_thousands(bytes_per_second, ("MB/s", "GB/s", "TB/s"))


def _in_thousands(value: float, units: tuple[str, ...]) -> Quantity:
    """In the first of `units`, from millions up by thousands, that needs no fourth digit."""
    scaled = value / 1e6
    for unit in units[:-1]:
        if scaled < 999.5:
            return Quantity(three_digits(scaled), unit)
        scaled /= 1e3
    return Quantity(three_digits(scaled), units[-1])


def percent(value: float | None) -> Quantity:
    """A share of one hundred."""
    return Quantity(three_digits(value), "%")


def clock(seconds: float) -> str:
    """A time since some start as on a stop watch: "0:07", "12:40", "1:02:00", "0:01.5"."""
    tenths = round(seconds * 10)
    minutes, rest = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    head = f"{hours}:{minutes:02d}" if hours else f"{minutes}"
    tail = f".{rest % 10}" if rest % 10 else ""
    return f"{head}:{rest // 10:02d}{tail}"


def duration(seconds: float) -> str:
    """A length of time in its largest unit: "45 s", "3 min", "2.5 h"."""
    if seconds < 99.5:
        return QCoreApplication.translate("Units", "%1 s").replace("%1", f"{seconds:.0f}")
    if seconds < 99.5 * 60:
        minutes = f"{seconds / 60:.0f}"
        return QCoreApplication.translate("Units", "%1 min").replace("%1", minutes)
    hours = three_digits(seconds / 3600)
    return QCoreApplication.translate("Units", "%1 h").replace("%1", hours)


def about_seconds(seconds: float) -> str:
    """A rough time left in words: "under 1 s", "about 5 s", "about 3 min"."""
    if seconds < 1:
        return QCoreApplication.translate("Units", "under 1 s")
    if seconds < 99.5:
        return QCoreApplication.translate("Units", "about %1 s").replace("%1", f"{seconds:.0f}")
    minutes = f"{seconds / 60:.0f}"
    return QCoreApplication.translate("Units", "about %1 min").replace("%1", minutes)
