"""Whether the machine runs on battery and whether it was told to save power."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

# Drivers whose governor "powersave" is the usual one and slows nothing.
_SELF_GOVERNING = ("intel_pstate", "amd-pstate-epp")


@dataclass(frozen=True, slots=True)
class PowerState:
    """None means that the machine does not say."""

    on_battery: bool | None
    is_saving: bool | None


def read_power_state(sys_folder: Path = Path("/sys")) -> PowerState:
    """The present state; whether power is saved is known on Linux only. Never raises."""
    return PowerState(_on_battery(), _is_saving(sys_folder))


def _on_battery() -> bool | None:
    try:
        battery = psutil.sensors_battery()
    # AttributeError: not offered on this platform; the others: odd entries in /sys.
    except (AttributeError, OSError, ValueError, RuntimeError):
        return None
    if battery is None or battery.power_plugged is None:
        return None
    return not battery.power_plugged


def _is_saving(sys_folder: Path) -> bool | None:
    cpu = sys_folder / "devices/system/cpu/cpu0/cpufreq"
    profile = _word(sys_folder / "firmware/acpi/platform_profile")
    preference = _word(cpu / "energy_performance_preference")
    governor = _word(cpu / "scaling_governor")
    if not (profile or preference or governor):
        return None
    is_slowed = governor == "powersave" and _word(cpu / "scaling_driver") not in _SELF_GOVERNING
    return profile in ("low-power", "quiet") or preference == "power" or is_slowed


def _word(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
