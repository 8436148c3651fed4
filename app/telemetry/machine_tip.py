"""What the sensors say besides the curve, as the tip over the utilization plot: every GPU."""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import QCoreApplication, QObject
from PySide6.QtWidgets import QWidget

from app.telemetry.format import Quantity, count, memory, percent, three_digits
from app.telemetry.own_cost import OWN_COST, Part
from engine.nvml.readings import GpuReading
from engine.sensors import SensorSample


class MachineTip(QObject):
    """Keeps the tip of a widget at the newest reading."""

    def __init__(self, widget: QWidget) -> None:
        super().__init__(widget)
        self._widget = widget

    def show_sample(self, sample: SensorSample) -> None:
        """Say what this reading has."""
        text = "\n".join(filter(None, (machine_text(sample), own_cost_text(OWN_COST.shares()))))
        self._widget.setToolTip(text)
        self._widget.setAccessibleDescription(text)


def machine_text(sample: SensorSample) -> str:
    """A line for the model's GPU and one for each of the others, of what is measured."""
    lines = []
    if sample.gpu_problem:
        lines.append(_tr("No GPU values: %1.").replace("%1", sample.gpu_problem))
        lines.append(_tr("The model runs on. If this lasts, reinstall the GPU's driver."))
    if sample.device_index is not None:
        lines.append(_line(_tr("This model's GPU"), sample.gpu))
    lines += (_line(_name(gpu), gpu) for gpu in sample.other_gpus)
    return "\n".join(lines)


def own_cost_text(shares: dict[Part, float] | None) -> str:
    """What telemetry itself takes of one core; "" while it is not known."""
    if shares is None:
        return ""
    names: dict[Part, str] = {
        "sensors": _tr("sensors"),
        "recording": _tr("recording"),
        "panels": _tr("panels"),
    }
    parts = ", ".join(f"{name} {_share(shares[part])}" for part, name in names.items())
    text = _tr("Telemetry itself: %1 of one core in the last 10 s (%2)")
    return text.replace("%1", _share(sum(shares.values()))).replace("%2", parts)


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"


def _name(gpu: GpuReading) -> str:
    number = "" if gpu.index is None else str(gpu.index)
    return f"GPU {number} {gpu.name or ''}".replace("  ", " ").strip()


def _line(name: str, gpu: GpuReading) -> str:
    return f"{name}: {', '.join(_figures(gpu)) or _tr('no values')}"


def _figures(gpu: GpuReading) -> Iterator[str]:
    if gpu.util_pct is not None:
        yield _tr("%1 busy").replace("%1", percent(gpu.util_pct).text)
    if gpu.mem_used_bytes is not None:
        yield memory(gpu.mem_used_bytes).text
    if gpu.process_mem_bytes is not None:
        yield _tr("%1 of it ours").replace("%1", memory(gpu.process_mem_bytes).text)
    if gpu.power_w is not None:
        yield Quantity(three_digits(gpu.power_w), "W").text
    if gpu.temperature_c is not None:
        yield Quantity(count(gpu.temperature_c), "°C").text
    if gpu.sm_clock_mhz is not None:
        yield Quantity(count(gpu.sm_clock_mhz), "MHz").text
    if gpu.sm_active_pct is not None and gpu.dram_active_pct is not None:
        yield (
            _tr("SM active %1, memory active %2")
            .replace("%1", percent(gpu.sm_active_pct).text)
            .replace("%2", percent(gpu.dram_active_pct).text)
        )


def _tr(text: str) -> str:
    return QCoreApplication.translate("MachineTip", text)
