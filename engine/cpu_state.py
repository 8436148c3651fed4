"""What the processor does besides: other programs' load, and its clock against the base clock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil


class OthersLoad:
    """Other processes' part of all cores, between one reading and the next."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._before = self._times()

    def read_pct(self) -> float | None:
        """0 to 100; None where no time has passed. Raises psutil.Error and OSError.

        What a hypervisor gave to other machines counts as theirs.
        """
        before, self._before = self._before, self._times()
        total, busy, own = (now - then for now, then in zip(self._before, before, strict=True))
        if total <= 0:
            return None
        return min(100.0, max(0.0, 100 * (busy - own) / total))

    def _times(self) -> tuple[float, float, float]:
        """All cores' seconds since boot: in total, busy, and this process' own."""
        times = psutil.cpu_times()._asdict()
        # Time of guests is in the user's time already (Linux).
        total = sum(times.values()) - times.get("guest", 0.0) - times.get("guest_nice", 0.0)
        own = self._process.cpu_times()
        return total, total - times["idle"] - times.get("iowait", 0.0), own.user + own.system


@dataclass(frozen=True, slots=True)
class CpuClock:
    """Of the fastest core, and what the maker warrants under load; None: not told."""

    mhz: float | None
    base_mhz: float | None


def read_cpu_clock(sys_folder: Path = Path("/sys")) -> CpuClock:
    """The present clock (Linux only). Never raises.

    A core that idles is slow on purpose, hence the fastest. Base: Intel's base_frequency, or the
    nominal frequency of ACPI CPPC (AMD, ARM).
    """
    cpus = sys_folder / "devices/system/cpu"
    clocks = [_number(path) for path in cpus.glob("cpu[0-9]*/cpufreq/scaling_cur_freq")]
    fastest_khz = max((each for each in clocks if each is not None), default=None)
    base_khz = _number(cpus / "cpu0/cpufreq/base_frequency")
    nominal_mhz = _number(cpus / "cpu0/acpi_cppc/nominal_freq")
    return CpuClock(
        None if fastest_khz is None else fastest_khz / 1e3,
        nominal_mhz if base_khz is None else base_khz / 1e3,
    )


def _number(path: Path) -> float | None:
    """Of a file that has nothing else; None for zero, which firmware without a value says."""
    try:
        return float(path.read_text(encoding="ascii")) or None
    except (OSError, ValueError):
        return None
