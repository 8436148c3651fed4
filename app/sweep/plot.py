"""One figure of a sweep over the context: a line for each pair of formats, named at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QMouseEvent, QPainter, QPaintEvent, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.sweep import words
from app.sweep.sweeping import SweepRow
from app.telemetry.format import count
from app.telemetry.pixel_items import make_pen
from app.telemetry.plot_area import RIGHT_MARGIN
from app.telemetry.scales import axis_top
from app.theme import LABEL_PX, Theme
from app.value_axis import LABEL_GAP, draw_value_axis

# By weights; the phases' own colours are left to the phases, but for the first.
TOKENS = ("decode", "kv", "device", "text", "muted", "prefill")
STYLES = (Qt.PenStyle.SolidLine, Qt.PenStyle.DashLine, Qt.PenStyle.DotLine)  # by KV format
LINE_PX, DOT_PX, RING_PX, REACH_PX = 2.0, 3.5, 6.5, 14.0
NUM_TICKS = 5
HEADROOM = 1.08
NAME_GAP = 10


@dataclass(frozen=True, slots=True)
class Point:
    """A measured combination where it is drawn."""

    row: SweepRow
    at: QPointF


class SweepPlot(QWidget):
    """Contexts stand at equal distances, whatever lies between them.

    Signals:
        pointed(SweepRow): the mouse was pressed on a combination.
    """

    pointed = Signal(object)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._rows: tuple[SweepRow, ...] = ()
        self._name = words.PLOTTED[0]
        self._chosen: SweepRow | None = None
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(240, 140)

    def set_theme(self, theme: Theme) -> None:
        """Draw with other colours or sizes."""
        self._theme = theme
        self.update()

    def set_rows(self, rows: Sequence[SweepRow], name: str) -> None:
        """Draw the figure `name` of these; what has none is left out."""
        self._rows = tuple(row for row in rows if row.value(name) is not None)
        self._name = name
        self.update()

    def choose(self, row: SweepRow | None) -> None:
        """Put a ring around a combination, or around none."""
        self._chosen = row
        self.update()

    def lines(self) -> list[list[Point]]:
        """What is drawn: the points of each pair of formats, short contexts first."""
        contexts = self._contexts()
        area, top = self._area(), self._top()

        def place(row: SweepRow) -> QPointF:
            share = (contexts.index(row.prompt_tokens) + 0.5) / len(contexts)
            value = row.value(self._name) or 0.0
            return QPointF(
                area.left() + share * area.width(), area.bottom() - value / top * area.height()
            )

        rows = sorted(self._rows, key=lambda row: (row.weights, row.kv, row.prompt_tokens))
        return [
            [Point(row, place(row)) for row in group]
            for _, group in groupby(rows, lambda row: (row.weights, row.kv))
        ]

    # Qt overrides

    def sizeHint(self) -> QSize:
        return QSize(600, 260)

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self._rows:
            return
        painter = QPainter(self)
        painter.setFont(self._theme.font(LABEL_PX))
        area = self._area()
        draw_value_axis(painter, self._theme, area, self._top(), NUM_TICKS)
        self._draw_contexts(painter, area)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        lines = self.lines()
        for points in lines:
            self._draw_line(painter, points)
        self._draw_names(painter, lines)
        painter.end()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        point = self._point_at(event.position())
        if point is None:
            QToolTip.hideText()
            return
        figure = words.figure(point.row, self._name)
        text = f"{words.row_text(point.row)}\n{words.title(self._name)}: {figure}"
        QToolTip.showText(event.globalPosition().toPoint(), text, self)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        point = self._point_at(event.position())
        if point is not None:
            self.pointed.emit(point.row)

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        QToolTip.hideText()

    # --- where things are -----------------------------------------------------------------

    def _contexts(self) -> list[int]:
        return sorted({row.prompt_tokens for row in self._rows})

    def _top(self) -> float:
        most = max((row.value(self._name) or 0.0 for row in self._rows), default=0.0)
        return axis_top(most * HEADROOM, NUM_TICKS)

    def _area(self) -> QRectF:
        metrics = self.fontMetrics()
        left = metrics.horizontalAdvance("00,000") + LABEL_GAP
        names = [self._line_name(row) for row in self._rows]
        right = max(map(metrics.horizontalAdvance, names), default=0) + NAME_GAP + RIGHT_MARGIN
        inner = QRectF(self.rect()).adjusted(left, metrics.height() / 2, -right, 0)
        return inner.adjusted(0, 0, 0, -metrics.height() - LABEL_GAP)

    def _point_at(self, at: QPointF) -> Point | None:
        points = [point for line in self.lines() for point in line]
        near = min(points, key=lambda p: (p.at - at).manhattanLength(), default=None)
        return near if near and (near.at - at).manhattanLength() <= REACH_PX else None

    def _line_name(self, row: SweepRow) -> str:
        return words.line_name(row, with_kv=len({each.kv for each in self._rows}) > 1)

    # --- drawing --------------------------------------------------------------------------

    def _token(self, row: SweepRow) -> str:
        formats = list(dict.fromkeys(each.weights for each in self._rows))
        return TOKENS[formats.index(row.weights) % len(TOKENS)]

    def _style(self, row: SweepRow) -> Qt.PenStyle:
        formats = list(dict.fromkeys(each.kv for each in self._rows))
        return STYLES[formats.index(row.kv) % len(STYLES)]

    def _draw_contexts(self, painter: QPainter, area: QRectF) -> None:
        contexts = self._contexts()
        painter.setPen(self._theme.color("faint"))
        height = painter.fontMetrics().height()
        width = area.width() / max(1, len(contexts))
        for number, context in enumerate(contexts):
            text = self.tr("{0} tokens").format(count(context))
            place = QRectF(area.left() + number * width, area.bottom() + LABEL_GAP, width, height)
            painter.drawText(place, Qt.AlignmentFlag.AlignCenter, text)

    def _draw_line(self, painter: QPainter, points: list[Point]) -> None:
        color = self._theme.color(self._token(points[0].row))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(make_pen(color, LINE_PX, self._style(points[0].row)))
        painter.drawPolyline(QPolygonF([point.at for point in points]))
        for point in points:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(color)
            painter.drawEllipse(point.at, DOT_PX, DOT_PX)
            if point.row is self._chosen:
                painter.setBrush(Qt.BrushStyle.NoBrush)
                painter.setPen(make_pen(self._theme.color("text"), 1.5))
                painter.drawEllipse(point.at, RING_PX, RING_PX)

    def _draw_names(self, painter: QPainter, lines: list[list[Point]]) -> None:
        """Right of the last points, pushed apart downwards where they would overlap."""
        height = painter.fontMetrics().height()
        left = self._area().right() + NAME_GAP
        y = -float(height)
        for points in sorted(lines, key=lambda line: line[-1].at.y()):
            row = points[-1].row
            y = max(y + height, points[-1].at.y() - height / 2)
            painter.setPen(self._theme.color(self._token(row)))
            painter.drawText(
                QRectF(left, y, self.width() - left, height),
                Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter,
                self._line_name(row),
            )
