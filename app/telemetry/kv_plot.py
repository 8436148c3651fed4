"""The cache plot: memory used, allocated in blocks, and reserved by the context length."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter

from app.telemetry.format import count, three_digits
from app.telemetry.ghost import GhostLine
from app.telemetry.labels import label_height
from app.telemetry.pixel_items import Line, PixelItem, make_pen
from app.telemetry.plot_area import PlotArea
from app.telemetry.plot_header import LegendEntry, PlotHeader
from app.telemetry.plot_panel import EMPTY, Curves, PlotPanel
from app.telemetry.request_trace import RequestTrace
from app.telemetry.scales import axis_top, thin_by_stride
from app.telemetry.telemetry_model import TelemetryModel
from app.theme import LABEL_PX, Theme

_NUM_TICKS = 3
# Above this many times what is allocated, the whole pool would leave the used part unreadable.
_READABLE_RATIO = 8.0
_FILL_ALPHA = 0.3


class ReservedLine(PixelItem):
    """The pool's size: a dashed line with its label above, or a label at the top edge."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.setZValue(5)
        self.theme = theme
        self.value: float | None = None
        self.top = 1.0
        self.label = ""

    @property
    def above_axis(self) -> bool:
        """Whether the pool is too large for the axis."""
        return self.value is not None and self.value > self.top

    def draw(self, painter: QPainter, area: QRectF) -> None:
        """The line where it belongs; the label keeps to the lane above it."""
        if self.value is None:
            return
        font = self.theme.font(LABEL_PX)
        metrics = QFontMetricsF(font)
        bottom = area.top() + _lane_px(self.theme)
        if not self.above_axis:
            bottom = round(self.px(0, self.value).y()) + 0.5
            painter.setPen(make_pen(self.theme.color("faint"), 1, Qt.PenStyle.DashLine))
            painter.drawLine(QPointF(area.left(), bottom), QPointF(area.right(), bottom))
        text = f"↑ {self.label}" if self.above_axis else self.label
        width = metrics.horizontalAdvance(text) + 2
        painter.setFont(font)
        painter.setPen(self.theme.color("muted"))
        rect = QRectF(area.right() - width, bottom - metrics.height() - 2, width, metrics.height())
        painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, text)


class KvPlot(PlotPanel):
    """KV-cache memory of the selected request over the seconds from Send."""

    def __init__(self, theme: Theme) -> None:
        area = PlotArea(theme, _NUM_TICKS)
        super().__init__(theme, PlotHeader(theme), area)
        self.header.set_title(self.tr("KV cache"))
        self._legend = (
            LegendEntry("line", "kv", self.tr("used"), self.tr("used")),
            LegendEntry("line", "faint", self.tr("allocated"), self.tr("allocated")),
            LegendEntry("dash", "faint", self.tr("reserved"), self.tr("reserved")),
        )
        self.header.set_legend(self._legend)
        area.setAccessibleName(self.tr("Plot of the KV cache"))
        self._allocated = Line(smooth=False)
        self._used = Line()
        self._reserved = ReservedLine(theme)
        self._ghost = GhostLine("kv")
        for item in (self._ghost, self._allocated, self._used, self._reserved):
            area.addItem(item, ignoreBounds=True)
        area.resized.connect(self._apply_axis)
        self.set_theme(theme)

    def refresh(self, model: TelemetryModel) -> None:
        trace, reserved = model.selected, model.kv_bytes_reserved
        self._shade(trace, model.now_ns())
        largest = max(_allocated(trace), _allocated(self._ghost.trace))
        in_gb = _axis_bytes(largest, reserved) >= 1e9
        self._name_unit(in_gb)
        unit = 1e9 if in_gb else 1e6
        self._reserved.value = reserved / unit if reserved else None
        self._reserved.top = _axis_bytes(largest, reserved) / unit
        self._reserved.label = self._reserved_label(model, unit)
        self._apply_axis()
        self._curves = self._scaled(trace, unit)
        if trace and reserved:
            x = np.array([0.0, max(trace.elapsed_s(model.now_ns()), 1e-3)])
            self._curves["kv reserved"] = (x, np.full(2, reserved / unit))
        self._used.set_data(*self._curves["kv used"])
        self._allocated.set_data(*self._curves["kv allocated"])
        self._reserved.update()
        ghost = self._ghost.trace
        x, y = (ghost.kv["t_s"], ghost.kv["used"]) if ghost else (EMPTY, EMPTY)
        self._ghost.set_course(x, y / unit)

    def set_ghost(self, trace: RequestTrace | None) -> None:
        """Draw an earlier run behind the present one; None: no more."""
        self._ghost.trace = trace
        self.header.set_legend((*self._legend, *self._ghost.legend()))

    def set_theme(self, theme: Theme) -> None:
        super().set_theme(theme)
        self._used.pen = make_pen(theme.color("kv"), 1.5)
        self._used.fill = theme.color("kv", _FILL_ALPHA)
        self._allocated.pen = make_pen(theme.color("faint"), 1)
        self._ghost.set_theme(theme)
        self._reserved.theme = theme
        for item in (self._used, self._allocated, self._reserved):
            item.update()
        self._apply_axis()

    def _scaled(self, trace: RequestTrace | None, unit: float) -> Curves:
        curves: Curves = {}
        for column in ("used", "allocated"):
            x, y = (trace.kv["t_s"], trace.kv[column]) if trace else (EMPTY, EMPTY)
            x, y = thin_by_stride(x, y, self.area.points_for(x) // 2)
            curves[f"kv {column}"] = (x, y / unit)
        return curves

    def _name_unit(self, in_gb: bool) -> None:
        if in_gb:
            self.header.set_subtitle(self.tr("GB, memory this chat takes"), self.tr("GB"))
        else:
            self.header.set_subtitle(self.tr("MB, memory this chat takes"), self.tr("MB"))

    def _reserved_label(self, model: TelemetryModel, unit: float) -> str:
        if model.kv_bytes_reserved is None:
            return ""
        size = three_digits(model.kv_bytes_reserved / unit)
        if model.pool_tokens is None:
            return self.tr("reserved %1").replace("%1", size)
        text = self.tr("reserved %1 (%2 tokens)")
        return text.replace("%1", size).replace("%2", count(model.pool_tokens))

    def _apply_axis(self) -> None:
        self.area.set_y_axis(self._reserved.top, _lane_px(self._theme))


def _lane_px(theme: Theme) -> float:
    """Room for the label of the reserved pool, above everything that can be used."""
    return label_height(theme) + 4


def _allocated(trace: RequestTrace | None) -> float:
    return (trace.kv.last("allocated") if trace else None) or 0.0


def _axis_bytes(largest: float, reserved: int | None) -> float:
    if reserved and (not largest or reserved <= _READABLE_RATIO * largest):
        return float(reserved)
    unit = 1e9 if largest >= 1e9 else 1e6
    return axis_top(largest * 1.3 / unit, _NUM_TICKS) * unit if largest else 100e6
