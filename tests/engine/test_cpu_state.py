"""Other programs' load and the processor's clock, from figures and files written by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import psutil
import pytest

from engine.cpu_state import CpuClock, OthersLoad, read_cpu_clock


class Times(NamedTuple):
    """As psutil's on Linux; a guest's time lies in the user's too."""

    user: float = 0.0
    system: float = 0.0
    idle: float = 0.0
    iowait: float = 0.0
    steal: float = 0.0
    guest: float = 0.0
    guest_nice: float = 0.0


@pytest.mark.parametrize(
    ("after", "own", "others_pct"),
    [
        (Times(user=4, idle=4), 4.0, 0.0),
        (Times(user=4, system=2, idle=2), 2.0, 50.0),
        (Times(user=2, steal=2, idle=4), 2.0, 25.0),
        (Times(user=2, iowait=2, idle=4), 2.0, 0.0),
        (Times(user=6, guest=4, idle=2), 2.0, 50.0),
        (Times(user=3.9, idle=4.1), 4.0, 0.0),
        (Times(), 0.0, None),
    ],
)
def test_others_are_what_is_busy_without_us(
    monkeypatch: pytest.MonkeyPatch, after: Times, own: float, others_pct: float | None
) -> None:
    """Of 8 core-seconds: other programs and other machines on the host, not waiting for a disk."""
    times = iter([Times(), after])
    mine = iter([0.0, own])
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(times))
    monkeypatch.setattr(
        psutil.Process, "cpu_times", lambda self: SimpleNamespace(user=next(mine), system=0.0)
    )
    assert OthersLoad().read_pct() == others_pct


CPUS = "devices/system/cpu/"


@pytest.mark.parametrize(
    ("files", "clock"),
    [
        ({}, CpuClock(None, None)),
        (
            {
                "cpu0/cpufreq/scaling_cur_freq": "800000",
                "cpu1/cpufreq/scaling_cur_freq": "2100000",
                "cpu0/cpufreq/base_frequency": "2600000",
            },
            CpuClock(2_100.0, 2_600.0),
        ),
        (
            {"cpu0/cpufreq/scaling_cur_freq": "800000", "cpu0/acpi_cppc/nominal_freq": "3400"},
            CpuClock(800.0, 3_400.0),
        ),
        (
            {"cpu0/cpufreq/scaling_cur_freq": "odd", "cpu0/acpi_cppc/nominal_freq": "0"},
            CpuClock(None, None),
        ),
    ],
    ids=["nothing", "intel", "cppc", "odd"],
)
def test_the_fastest_core_counts(tmp_path: Path, files: dict[str, str], clock: CpuClock) -> None:
    """A core that rests is slow on purpose; bases are kHz or MHz, and zero is none."""
    for name, text in files.items():
        path = tmp_path / CPUS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="ascii")
    assert read_cpu_clock(tmp_path) == clock
