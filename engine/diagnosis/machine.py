"""What held the machine back while a phase of an answer ran, by what its sensors said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from engine.sensors import SensorSample

# others: other programs computed. clock: the processor below its base clock. gpu: the GPU lowered
# its clocks, for the reasons it gives.
Hindrance = Literal["gpu", "others", "clock", "power saving", "battery"]

# Others' share of all cores from which on they are felt: a model reads memory with all of them. A
# GPU needs one core to feed it, and lacks that only when nearly all are taken.
OTHERS_PCT, OTHERS_PCT_ON_GPU = 20.0, 80.0
# Turbo clocks come and go; below its base a processor is held down.
LOW_CLOCK = 0.9
# Of the readings: a limit that is touched now and then is how a GPU regulates itself.
OFTEN = 0.3


@dataclass(frozen=True, slots=True)
class MachineState:
    """Means over the readings of a phase; None or False: not so, or the machine does not say.

    `others_cpu_pct` is of all cores. `gpu_slowed` is the share of readings, 0 to 1, with each
    reason, the most frequent first.
    """

    others_cpu_pct: float | None = None
    cpu_clock_mhz: float | None = None
    cpu_base_mhz: float | None = None
    power_saving: bool = False
    on_battery: bool = False
    gpu_slowed: tuple[tuple[str, float], ...] = ()
    gpu_sm_active_pct: float | None = None
    gpu_dram_active_pct: float | None = None

    def hindrances(self, on_gpu: bool) -> tuple[Hindrance, ...]:
        """What is likely to have slowed a model there, the most direct first."""
        others = OTHERS_PCT_ON_GPU if on_gpu else OTHERS_PCT
        found: list[tuple[Hindrance, bool]] = [
            ("gpu", on_gpu and any(share >= OFTEN for _, share in self.gpu_slowed)),
            ("others", (self.others_cpu_pct or 0.0) >= others),
            ("clock", self._is_clock_low()),
            ("power saving", self.power_saving),
            ("battery", self.on_battery),
        ]
        return tuple(name for name, is_so in found if is_so)

    def _is_clock_low(self) -> bool:
        clock, base = self.cpu_clock_mhz, self.cpu_base_mhz
        return clock is not None and base is not None and clock < LOW_CLOCK * base


def machine_state(samples: Iterable[SensorSample]) -> MachineState:
    """Put the readings of a phase together."""
    taken = list(samples)
    slowed = Counter(reason for each in taken for reason in each.gpu_slowed_by or ())
    return MachineState(
        others_cpu_pct=_mean([each.others_cpu_pct for each in taken]),
        cpu_clock_mhz=_mean([each.cpu_clock_mhz for each in taken]),
        cpu_base_mhz=_mean([each.cpu_base_mhz for each in taken]),
        power_saving=_mostly([each.power_saving for each in taken]),
        on_battery=_mostly([each.on_battery for each in taken]),
        gpu_slowed=tuple((words, num / len(taken)) for words, num in slowed.most_common()),
        gpu_sm_active_pct=_mean([each.gpu_sm_active_pct for each in taken]),
        gpu_dram_active_pct=_mean([each.gpu_dram_active_pct for each in taken]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _mostly(flags: Sequence[bool | None]) -> bool:
    return 2 * sum(flag is True for flag in flags) > len(flags)
