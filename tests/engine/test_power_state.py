"""Battery and power saving from files and figures written by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from engine.power_state import read_power_state

CPU = "devices/system/cpu/cpu0/cpufreq/"


@pytest.mark.parametrize(
    ("files", "is_saving"),
    [
        ({}, None),
        ({"firmware/acpi/platform_profile": "low-power"}, True),
        ({"firmware/acpi/platform_profile": "balanced"}, False),
        ({CPU + "energy_performance_preference": "power"}, True),
        ({CPU + "energy_performance_preference": "balance_power"}, False),
        ({CPU + "scaling_governor": "powersave", CPU + "scaling_driver": "acpi-cpufreq"}, True),
        ({CPU + "scaling_governor": "powersave", CPU + "scaling_driver": "intel_pstate"}, False),
    ],
)
def test_saving_is_what_slows(
    tmp_path: Path, files: dict[str, str], is_saving: bool | None
) -> None:
    """The governor "powersave" is Intel's usual one and no sign of saving; no files, no answer."""
    for name, word in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(word + "\n", encoding="ascii")
    assert read_power_state(tmp_path).is_saving is is_saving


@pytest.mark.parametrize(
    ("battery", "on_battery"),
    [
        (None, None),
        (SimpleNamespace(power_plugged=True), False),
        (SimpleNamespace(power_plugged=False), True),
        (SimpleNamespace(power_plugged=None), None),
    ],
)
def test_battery_counts_when_unplugged(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    battery: SimpleNamespace | None,
    on_battery: bool | None,
) -> None:
    """A machine without a battery does not run on one."""
    monkeypatch.setattr(psutil, "sensors_battery", lambda: battery, raising=False)
    assert read_power_state(tmp_path).on_battery is on_battery
