"""What is read of a GPU, and how it goes through the pipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Bits of nvmlClocksEventReasons (nvml.h) in words. Being idle and sync boost are no trouble.
SLOWDOWNS = {
    0x02: "clocks set",
    0x04: "power limit",
    0x08: "hardware slowdown",
    0x20: "heat",
    0x40: "heat (hardware)",
    0x80: "power brake",
}


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What NVML says of a GPU; None is what it does not say.

    `index` is NVML's number, not CUDA's. `process_mem_bytes` is the part of the process that asked.
    `slowed_by` is empty when nothing holds the clocks back. `sm_active_pct` and `dram_active_pct`
    are means since the reading before, where the card has GPM counters.
    """

    index: int | None = None
    name: str | None = None
    util_pct: float | None = None
    mem_used_bytes: int | None = None
    power_w: float | None = None
    process_mem_bytes: int | None = None
    sm_clock_mhz: int | None = None
    mem_clock_mhz: int | None = None
    temperature_c: int | None = None
    slowed_by: tuple[str, ...] | None = None
    sm_active_pct: float | None = None
    dram_active_pct: float | None = None


@dataclass(frozen=True, slots=True)
class NvmlAnswer:
    """All GPUs at one moment: the watched one, None where it cannot be read, and the others.

    `cpu_s` is the processor time that the reading process has taken since it began. `missing` has
    the fields that have no value, and why, where that was not told before. `problem` says why there
    is no value at all, and what comes next; "" while there are some.
    """

    watched: GpuReading | None = None
    others: tuple[GpuReading, ...] = ()
    cpu_s: float = 0.0
    missing: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


def answer_from(fields: Any) -> NvmlAnswer:
    """From what `dataclasses.asdict` makes of an answer. Raises ValueError where it is not that."""
    try:
        watched = fields["watched"]
        return NvmlAnswer(
            watched=None if watched is None else _reading(watched),
            others=tuple(_reading(each) for each in fields["others"]),
            cpu_s=float(fields["cpu_s"]),
            missing={str(name): str(why) for name, why in fields["missing"].items()},
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not an answer: {error}") from error


def _reading(fields: dict[str, Any]) -> GpuReading:
    texts = {"name", "slowed_by"}
    numbers = (value for name, value in fields.items() if name not in texts and value is not None)
    if not all(isinstance(value, int | float) for value in numbers):
        raise ValueError("a reading that is not a number")
    name, reasons = fields["name"], fields["slowed_by"]
    words = None if reasons is None else tuple(str(each) for each in reasons)
    return GpuReading(**{**fields, "name": None if name is None else str(name), "slowed_by": words})
