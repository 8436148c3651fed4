"""The cache plot: memory used, allocated in blocks, and reserved by the context length."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter

from app.telemetry.format import count, three_digits
from app.telemetry.ghost import GhostLine
from app.telemetry.labels import label_height
from app.telemetry.pixel_items import Line, PixelItem, make_pen
from app.telemetry.plot_area import PlotArea
from app.telemetry.plot_header import LegendEntry, PlotHeader
from app.telemetry.plot_panel import EMPTY, PlotPanel
from app.telemetry.request_trace import RequestTrace
from app.telemetry.scales import axis_top, thin_by_stride
from app.telemetry.series import Array
from app.telemetry.telemetry_model import TelemetryModel
from app.telemetry.timeline import Timeline
from app.theme import LABEL_PX, Theme

_NUM_TICKS = 3
# Above this many times what is allocated, the whole pool would leave the used part unreadable.
_READABLE_RATIO = 8.0
_FILL_ALPHA = 0.3
Rows = NDArray[np.intp]
_NO_ROWS: Rows = np.empty(0, dtype=np.intp)


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
    """KV-cache memory over the time axis; in a session, what all requests take together."""

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

    def refresh(self, timeline: Timeline) -> None:
        model = timeline.model
        reserved = model.kv_bytes_reserved
        self._mark_times(timeline)
        curves = {f"kv {c}": cache_course(timeline, c) for c in ("used", "allocated")}
        largest = float(curves["kv allocated"][1].max(initial=_allocated(self._ghost.trace)))
        in_gb = _axis_bytes(largest, reserved) >= 1e9
        self._name_unit(in_gb, timeline.is_session)
        unit = 1e9 if in_gb else 1e6
        self._reserved.value = reserved / unit if reserved else None
        self._reserved.top = _axis_bytes(largest, reserved) / unit
        self._reserved.label = self._reserved_label(model, unit)
        self._apply_axis()
        self._curves = {name: self._thinned(*curve, unit) for name, curve in curves.items()}
        if timeline.traces and reserved:
            end = max(timeline.place(t, t.elapsed_s(model.now_ns())) for t in timeline.traces)
            self._curves["kv reserved"] = (np.array([0.0, end]), np.full(2, reserved / unit))
        self._used.set_data(*self._curves["kv used"])
        self._allocated.set_data(*self._curves["kv allocated"])
        self._reserved.update()
        ghost = None if timeline.is_session else self._ghost.trace
        x, y = (ghost.kv["t_s"], ghost.kv["used"]) if ghost else (EMPTY, EMPTY)
        self._ghost.set_course(timeline.ghost_places(ghost, x) if ghost else x, y / unit)

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

    def _thinned(self, x: Array, y: Array, corners: Rows, unit: float) -> tuple[Array, Array]:
        x, y = thin_by_stride(x, y, self.area.points_for(x) // 2, corners)
        return x, y / unit

    def _name_unit(self, in_gb: bool, of_all: bool) -> None:
        unit = self.tr("GB") if in_gb else self.tr("MB")
        whole = (
            self.tr("%1, memory all answers take")
            if of_all
            else self.tr("%1, memory this chat takes")
        )
        self.header.set_subtitle(whole.replace("%1", unit), unit)

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


Course = tuple[Array, Array, Rows]


def cache_course(timeline: Timeline, column: str) -> Course:
    """Places and bytes of a column of the requests' cache, summed up where several ran.

    Then the rows of the line's corners, where a request took its first bytes or gave all back.
    """
    trace = timeline.trace
    if trace is not None:
        return timeline.places(trace, trace.kv["t_s"]), trace.kv[column], _NO_ROWS
    places, changes, corners = [EMPTY], [EMPTY], [np.empty(0, dtype=bool)]
    for each in timeline.traces:
        t_s, taken = each.kv["t_s"], each.kv[column]
        if not len(t_s):
            continue
        # Points before the first and after the last value, so that it stands on the floor.
        end_s = t_s[-1] if each.end_s is None else each.end_s
        left = taken[-1] if each.end_s is None else 0.0
        t_s = np.concatenate((t_s[:1], t_s, [end_s, end_s]))
        taken = np.concatenate(([0.0], taken, [taken[-1], left]))
        places.append(timeline.places(each, t_s))
        changes.append(np.diff(taken, prepend=0.0))
        corners.append(np.isin(np.arange(len(t_s)), (0, 1, len(t_s) - 2, len(t_s) - 1)))
    x, change = np.concatenate(places), np.concatenate(changes)
    order = np.argsort(x, kind="stable")
    rows = np.flatnonzero(np.concatenate(corners)[order])
    return x[order], np.cumsum(change[order]), rows


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
