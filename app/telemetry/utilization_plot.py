"""The utilization plot: what the sensor says, and what each step made of compute and memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import Qt

from app.telemetry.labels import label_height
from app.telemetry.pixel_items import Line, make_pen
from app.telemetry.plot_area import PlotArea
from app.telemetry.plot_header import LegendEntry, PlotHeader
from app.telemetry.plot_panel import EMPTY, PlotPanel
from app.telemetry.scales import thin_by_mean, thin_steps
from app.telemetry.series import Array
from app.telemetry.step_line import NO_STEPS, StepLine
from app.telemetry.timeline import Timeline
from app.theme import Theme

_NUM_TICKS = 2
_STEP_PX = 5
_WIDTH = 1.3


class UtilizationPlot(PlotPanel):
    """Device utilization, MFU and MBU in percent over the time axis."""

    def __init__(self, theme: Theme) -> None:
        area = PlotArea(theme, _NUM_TICKS)
        super().__init__(theme, PlotHeader(theme), area)
        self.header.set_title(self.tr("Utilization"))
        self.header.set_subtitle("%", "%")
        area.setAccessibleName(self.tr("Plot of the utilization"))
        self._device = Line(smooth=False)
        self._mfu = Line()
        self._mbu = Line()
        for item in (self._device, self._mfu, self._mbu):
            area.addItem(item, ignoreBounds=True)
        area.resized.connect(self._apply_axis)
        self._top_pct = 100.0
        self.set_theme(theme)

    def refresh(self, timeline: Timeline) -> None:
        model = timeline.model
        self._mark_times(timeline)
        steps, device = _readings(timeline)
        device = thin_steps(*device, self.area.points_for(device[0]) // _STEP_PX)
        unavailable = any(map(model.device_is_silent, timeline.traces[-1:]))
        self._name_device(model.on_gpu, unavailable)
        x = timeline.scale.place(steps.t_s)
        self._curves = {
            "mfu": self._line(x, steps.mfu_pct, steps.is_edge),
            "mbu": self._line(x, steps.mbu_pct, steps.is_edge),
        }
        if not unavailable:
            self._curves["device"] = device
        self._device.set_data(*device)
        self._mfu.set_data(*self._curves["mfu"])
        self._mbu.set_data(*self._curves["mbu"])
        # A cache that fits in the processor's own is read faster than memory: MBU passes 100.
        values = np.concatenate([y for _, y in self._curves.values()])
        self._top_pct = max(100.0, float(values.max(initial=0.0)))
        self._apply_axis()

    def set_theme(self, theme: Theme) -> None:
        super().set_theme(theme)
        self._device.pen = make_pen(theme.color("device"), 1, Qt.PenStyle.DashLine)
        self._mfu.pen = make_pen(theme.color("prefill"), _WIDTH)
        self._mbu.pen = make_pen(theme.color("decode"), _WIDTH)
        for line in (self._device, self._mfu, self._mbu):
            line.update()
        self._apply_axis()

    def _line(self, x: Array, values: Array, is_edge: NDArray[np.bool_]) -> tuple[Array, Array]:
        known = ~np.isnan(values)
        x, values = x[known], values[known]
        return thin_by_mean(x, values, self.area.points_for(x) // 2, is_edge[known])

    def _name_device(self, on_gpu: bool, unavailable: bool) -> None:
        name, short = self.tr("process CPU"), self.tr("process CPU")
        if on_gpu:
            name = short = self.tr("GPU")
        if unavailable:
            name = short = self.tr("%1 n/a").replace("%1", name)
        self.header.set_legend(
            (
                LegendEntry("dash", "device", name, short),
                LegendEntry("line", "prefill", self.tr("compute (MFU)"), self.tr("MFU")),
                LegendEntry("line", "decode", self.tr("bandwidth (MBU)"), self.tr("MBU")),
            )
        )

    def _apply_axis(self) -> None:
        # Half of the topmost tick's label stands above its line.
        self.area.set_y_axis(self._top_pct, label_height(self._theme) / 2)


def _readings(timeline: Timeline) -> tuple[StepLine, tuple[Array, Array]]:
    """Steps at their moments, and corners of the device's utilization at their places."""
    model, trace = timeline.model, timeline.trace
    if timeline.is_session and timeline.traces:
        steps, (moments, device) = model.session_steps(), model.session_device()
    elif trace is not None:
        steps, (moments, device) = model.steps_of(trace), model.device_steps(trace)
    else:
        return NO_STEPS, (EMPTY, EMPTY)
    return steps, (timeline.scale.place(moments), device)
