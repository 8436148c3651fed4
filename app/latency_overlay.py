"""Latencies of several runs over the number of the token, as lines over each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.telemetry.pixel_items import make_pen
from app.telemetry.plot_area import RIGHT_MARGIN
from app.telemetry.plot_header import LegendEntry, SwatchKind
from app.telemetry.scales import axis_top, covered, thin_by_mean, tick_labels, ticks
from app.telemetry.series import Array
from app.theme import LABEL_PX, Theme
from app.value_axis import LABEL_GAP, draw_value_axis

LINE_PX = 2.0
NUM_TICKS = 5
MOST_POINTS = 240
HEADROOM = 1.08
EMPTY_TOP_MS = 10.0
TICK_ROOM = 90  # px between two ticks of the token axis


@dataclass(frozen=True, slots=True, eq=False)
class LatencyLine:
    """One run: its name, its colour token, and latencies in ms, shape [tokens so far - 1]."""

    name: str
    token: str
    itl_ms: Array
    is_dashed: bool = False

    @property
    def legend(self) -> LegendEntry:
        """How the legend names it."""
        kind: SwatchKind = "dash" if self.is_dashed else "line"
        return LegendEntry(kind, self.token, self.name, self.name)


class LatencyOverlay(QWidget):
    """The first line is drawn last, over the others."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._num_tokens = 2
        self._lines: tuple[LatencyLine, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(240, 140)

    def set_theme(self, theme: Theme) -> None:
        """Draw with other colours or sizes."""
        self._theme = theme
        self.update()

    def set_lines(self, num_tokens: int, lines: Sequence[LatencyLine]) -> None:
        """Draw these, of `num_tokens` tokens in the end."""
        self._num_tokens = max(2, num_tokens)
        self._lines = tuple(lines)
        self.update()

    @property
    def top_ms(self) -> float:
        """Where the latency axis ends."""
        most = max((covered(line.itl_ms) for line in self._lines), default=0.0)
        return axis_top(most * HEADROOM, NUM_TICKS) if most else EMPTY_TOP_MS

    def _area(self, metrics: QFontMetricsF) -> QRectF:
        labels = tick_labels(ticks(0, self.top_ms, NUM_TICKS))
        left = max(map(metrics.horizontalAdvance, labels)) + LABEL_GAP
        above, below = metrics.height() / 2, metrics.height() + LABEL_GAP
        return QRectF(self.rect()).adjusted(left, above, -RIGHT_MARGIN, -below)

    def _points(self, latencies: Array, area: QRectF) -> list[QPointF]:
        numbers = np.arange(2, len(latencies) + 2, dtype=float)
        x, y = thin_by_mean(numbers, latencies, MOST_POINTS)
        span = max(1, self._num_tokens - 2)
        x_px = area.left() + (x - 2) / span * area.width()
        y_px = area.bottom() - np.minimum(y / self.top_ms, 1.0) * area.height()
        return [QPointF(a, b) for a, b in zip(x_px, y_px, strict=True)]

    # Qt overrides

    def sizeHint(self) -> QSize:
        return QSize(600, 280)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setFont(self._theme.font(LABEL_PX))
        area = self._area(QFontMetricsF(painter.font()))
        self._draw_axes(painter, area)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for line in reversed(self._lines):
            style = Qt.PenStyle.DashLine if line.is_dashed else Qt.PenStyle.SolidLine
            painter.setPen(make_pen(self._theme.color(line.token), LINE_PX, style))
            painter.drawPolyline(QPolygonF(self._points(line.itl_ms, area)))
        painter.end()

    # --- drawing --------------------------------------------------------------------------

    def _draw_axes(self, painter: QPainter, area: QRectF) -> None:
        height = painter.fontMetrics().height()
        draw_value_axis(painter, self._theme, area, self.top_ms, NUM_TICKS)
        numbers = ticks(2, self._num_tokens, max(1, int(area.width() / TICK_ROOM)))
        for number, label in zip(numbers, tick_labels(numbers), strict=True):
            share = (number - 2) / max(1, self._num_tokens - 2)
            text = self.tr("token {0}").format(label) if number == numbers[-1] else label
            width = painter.fontMetrics().horizontalAdvance(text) + 2
            x = area.left() + share * area.width() - width / 2
            x = min(x, self.width() - width)
            place = QRectF(x, area.bottom() + LABEL_GAP / 2, width, height)
            painter.drawText(place, Qt.AlignmentFlag.AlignCenter, text)
