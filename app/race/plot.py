"""Both runs of a race over the seconds from Send: latency above, cache below."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.telemetry.pixel_items import make_pen
from app.telemetry.plot_area import RIGHT_MARGIN
from app.telemetry.plot_header import LegendEntry
from app.telemetry.request_trace import RequestTrace
from app.telemetry.scales import axis_top, covered, thin_by_mean, tick_labels, ticks, time_range_s
from app.telemetry.series import Array
from app.theme import LABEL_PX, Theme
from app.value_axis import LABEL_GAP, draw_value_axis

LATENCY_SHARE = 0.62  # of the height; the cache has the rest
LINE_PX = 2.0
GAP = 12
NUM_TICKS, TICK_ROOM = 4, 90
MOST_POINTS = 240
HEADROOM = 1.15
EMPTY: Array = np.empty(0)
Course = tuple[Array, Array]


@dataclass(frozen=True, slots=True)
class Pane:
    """One of the two: a unit, a colour, and the courses of the earlier and the new run."""

    unit: str
    token: str
    earlier: Course
    now: Course

    @property
    def top(self) -> float:
        """Where the axis ends; what is late beyond the 99th percentile does not flatten it."""
        most = max(covered(self.earlier[1]), covered(self.now[1]))
        return axis_top(most * HEADROOM, NUM_TICKS)


class RacePlot(QWidget):
    """A dashed line for the earlier run, a solid one for the new; `legend` names them."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._traces: tuple[RequestTrace | None, RequestTrace | None] = (None, None)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(240, 160)

    def set_theme(self, theme: Theme) -> None:
        """Draw with other colours or sizes."""
        self._theme = theme
        self.update()

    def set_runs(self, earlier: RequestTrace | None, now: RequestTrace | None) -> None:
        """Draw both as far as they have come."""
        self._traces = (earlier, now)
        self.update()

    def legend(self) -> tuple[LegendEntry, ...]:
        """Which line is which."""
        now, before = self.tr("now"), self.tr("before")
        return LegendEntry("line", "decode", now, now), LegendEntry("dash", "muted", before, before)

    def panes(self) -> tuple[Pane, Pane]:
        """What is drawn: latencies in ms, and cache in MB, over seconds from Send."""
        earlier, now = self._traces
        return (
            Pane(self.tr("ms"), "decode", _latencies(earlier), _latencies(now)),
            Pane(self.tr("MB"), "kv", _cache(earlier), _cache(now)),
        )

    @property
    def end_s(self) -> float:
        """Where the time axis ends."""
        return time_range_s(max((trace.last_s for trace in self._traces if trace), default=0.0))

    # Qt overrides

    def sizeHint(self) -> QSize:
        return QSize(600, 300)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setFont(self._theme.font(LABEL_PX))
        metrics = painter.fontMetrics()
        left = metrics.horizontalAdvance("0,000 MB") + LABEL_GAP
        inner = QRectF(self.rect()).adjusted(
            left, metrics.height() / 2, -RIGHT_MARGIN, -metrics.height() - LABEL_GAP
        )
        split = inner.top() + LATENCY_SHARE * inner.height()
        areas = (
            QRectF(inner.topLeft(), QPointF(inner.right(), split - GAP / 2)),
            QRectF(QPointF(inner.left(), split + GAP / 2), inner.bottomRight()),
        )
        for pane, area in zip(self.panes(), areas, strict=True):
            self._draw_axis(painter, area, pane)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            self._draw_line(painter, area, pane, pane.earlier, "muted", Qt.PenStyle.DashLine)
            self._draw_line(painter, area, pane, pane.now, pane.token, Qt.PenStyle.SolidLine)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        self._draw_times(painter, inner)
        painter.end()

    # --- drawing --------------------------------------------------------------------------

    def _draw_axis(self, painter: QPainter, area: QRectF, pane: Pane) -> None:
        has_room = area.height() > 4 * 1.5 * painter.fontMetrics().height()
        num_ticks = NUM_TICKS if has_room else 2
        draw_value_axis(painter, self._theme, area, pane.top, num_ticks, pane.unit)

    def _draw_times(self, painter: QPainter, inner: QRectF) -> None:
        metrics = painter.fontMetrics()
        painter.setPen(self._theme.color("faint"))
        positions = ticks(0, self.end_s, max(2, int(inner.width() / TICK_ROOM)))
        for position, label in zip(positions, tick_labels(positions), strict=True):
            text = f"{label} s" if position == positions[-1] else label
            width = metrics.horizontalAdvance(text) + 2
            x = inner.left() + position / self.end_s * inner.width() - width / 2
            x = min(x, self.width() - width)
            place = QRectF(x, inner.bottom() + LABEL_GAP / 2, width, metrics.height())
            painter.drawText(place, Qt.AlignmentFlag.AlignCenter, text)

    def _draw_line(
        self,
        painter: QPainter,
        area: QRectF,
        pane: Pane,
        course: Course,
        token: str,
        style: Qt.PenStyle,
    ) -> None:
        x, y = thin_by_mean(*course, MOST_POINTS)
        x_px = area.left() + x / self.end_s * area.width()
        y_px = area.bottom() - np.minimum(y / pane.top, 1.0) * area.height()
        painter.setPen(make_pen(self._theme.color(token), LINE_PX, style))
        painter.drawPolyline(QPolygonF([QPointF(a, b) for a, b in zip(x_px, y_px, strict=True)]))


def _latencies(trace: RequestTrace | None) -> Course:
    return (trace.tokens["t_s"][1:], trace.tokens["itl_ms"][1:]) if trace else (EMPTY, EMPTY)


def _cache(trace: RequestTrace | None) -> Course:
    return (trace.kv["t_s"], trace.kv["used"] / 1e6) if trace else (EMPTY, EMPTY)
