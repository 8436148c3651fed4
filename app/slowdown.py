"""What holds the machine back at present, in words for the status line."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication

from engine.sensors import SensorSample


def _tr(text: str) -> str:
    return QCoreApplication.translate("Slowdown", text)


def slowdown_text(sample: SensorSample) -> str:
    """Why this machine computes slower than it could, as its sensors say; empty: it does not."""
    parts = []
    if sample.gpu_slowed_by:
        reasons = ", ".join(reason_text(each) for each in sample.gpu_slowed_by)
        parts.append(_tr("GPU slowed: %1").replace("%1", reasons))
    if sample.power_saving:
        on_battery = _tr("Power saving, on battery")
        parts.append(on_battery if sample.on_battery else _tr("Power saving is on"))
    return " · ".join(parts)


def reason_text(reason: str) -> str:
    """Why a GPU holds its clocks back: a word of `engine.nvml.readings.SLOWDOWNS`, translated."""
    return {
        "clocks set": _tr("clocks set"),
        "power limit": _tr("power limit"),
        "hardware slowdown": _tr("hardware slowdown"),
        "heat": _tr("heat"),
        "heat (hardware)": _tr("heat (hardware)"),
        "power brake": _tr("power brake"),
    }.get(reason, reason)
