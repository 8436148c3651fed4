"""What the plots are made of: the plot area, items drawn in pixels, the header row, time labels.

Cost decides the form. Three stock pyqtgraph plots with grids and scatter items of 1,000 points
take 40 ms a redraw on two cores; lines one pixel wide, dots in one call and a few grid lines of
our own take a tenth of it (tests/benchmarks/telemetry_redraw.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen, QPolygonF, QResizeEvent, QTransform
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QWidget

from app.telemetry.labels import ThemedLabel
from app.telemetry.scales import tick_labels, ticks
from app.telemetry.series import Array
from app.theme import LABEL_PX, Theme

AXIS_WIDTH = 34
RIGHT_MARGIN = 8
FLOOR_MARGIN = 8
PREFILL_SHADE = 0.17
MIN_SPAN_S = 0.02
_WORD_GAP, _SWATCH_GAP, _ENTRY_GAP = 8, 5, 12
SwatchKind = Literal["line", "dash", "dot", "band"]


def make_pen(color: QColor, width: float, style: Qt.PenStyle = Qt.PenStyle.SolidLine) -> QPen:
    """A pen for drawing in logical pixels, so that it is as thick on a 2x screen."""
    pen = QPen(color, width, style)
    pen.setCapStyle(Qt.PenCapStyle.FlatCap)
    return pen


class PixelItem(pg.GraphicsObject):  # type: ignore[misc]
    """An item that draws in pixels of the plot area; `draw` says what."""

    def __init__(self) -> None:
        super().__init__()
        self._transform = QTransform()

    def draw(self, painter: QPainter, area: QRectF) -> None:
        """Draw within `area`, the plot area in pixels."""
        raise NotImplementedError

    def px(self, x: float, y: float) -> QPointF:
        """The pixel of a point given in axis units. Valid while drawing."""
        return self._transform.map(QPointF(x, y))

    def polygon(self, x: Array, y: Array) -> QPolygonF:
        """The pixels of many points, shape [n] each. Valid while drawing."""
        t = self._transform
        pixels: QPolygonF = pg.functions.arrayToQPolygonF(
            x * t.m11() + t.dx(), y * t.m22() + t.dy()
        )
        return pixels

    def viewTransformChanged(self) -> None:
        super().viewTransformChanged()
        self.prepareGeometryChange()

    def boundingRect(self) -> QRectF:
        return QRectF(self.viewRect())

    def paint(self, painter: QPainter, *_: object) -> None:
        self._transform = painter.worldTransform()
        area = self._transform.mapRect(QRectF(self.viewRect()))
        painter.save()
        painter.resetTransform()
        painter.setClipRect(area)
        self.draw(painter, area)
        painter.restore()


class Backdrop(PixelItem):
    """Behind the data: the prefill's shade, then horizontal grid lines."""

    def __init__(self) -> None:
        super().__init__()
        self.setZValue(-10)
        self.shade: tuple[float, float] | None = None
        self.grid: Sequence[float] = ()
        self.shade_color = QColor()
        self.grid_color = QColor()

    def draw(self, painter: QPainter, area: QRectF) -> None:
        """The shade over the full height, one line a tick."""
        if self.shade:
            left, right = (self.px(x, 0).x() for x in self.shade)
            painter.fillRect(
                QRectF(left, area.top(), right - left, area.height()), self.shade_color
            )
        painter.setPen(make_pen(self.grid_color, 1))
        for y in self.grid:
            line = round(self.px(0, y).y()) + 0.5
            painter.drawLine(QPointF(area.left(), line), QPointF(area.right(), line))


class Dots(PixelItem):
    """One round dot a point, all in one call: a tenth of a ScatterPlotItem's cost."""

    def __init__(self, diameter: float) -> None:
        super().__init__()
        self._diameter = diameter
        self._x = np.empty(0)
        self._y = np.empty(0)
        self.color = QColor()

    def set_data(self, x: Array, y: Array) -> None:
        """The points to draw, shape [n] each."""
        self._x, self._y = x, y
        self.update()

    def draw(self, painter: QPainter, area: QRectF) -> None:
        """The dots, as a pen with a round cap draws points."""
        if not len(self._x):
            return
        pen = make_pen(self.color, self._diameter)
        pen.setCapStyle(Qt.PenCapStyle.RoundCap)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(pen)
        painter.drawPoints(self.polygon(self._x, self._y))


class Line(PixelItem):
    """A line through points, with the area down to the plot's floor filled if `fill` is set."""

    def __init__(self, *, smooth: bool = True) -> None:
        super().__init__()
        self._smooth = smooth
        self._x = np.empty(0)
        self._y = np.empty(0)
        self.pen = QPen()
        self.fill: QColor | None = None

    def set_data(self, x: Array, y: Array) -> None:
        """The points in order, shape [n] each."""
        self._x, self._y = x, y
        self.update()

    def draw(self, painter: QPainter, area: QRectF) -> None:
        """The filled area, then the line over it."""
        if len(self._x) < 2:
            return
        if self.fill:
            ends = np.array([self._x[-1], self._x[0]])
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self.fill)
            painter.drawPolygon(
                self.polygon(
                    np.concatenate((self._x, ends)), np.concatenate((self._y, np.zeros(2)))
                )
            )
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, self._smooth)
        painter.setPen(self.pen)
        painter.drawPolyline(self.polygon(self._x, self._y))


class PlotArea(pg.PlotWidget):  # type: ignore[misc]
    """A plot without border, menu or automatic ranges: x pans and zooms, y is set by its owner.

    Signals:
        panned(): the person moved or zoomed the time axis.
        resized(): the plot area has another size.
    """

    panned = Signal()
    resized = Signal()

    def __init__(self, theme: Theme, num_ticks: int) -> None:
        super().__init__()
        self._num_ticks = num_ticks
        self._y_axis: tuple[float, float, float] | None = None
        plot = self.getPlotItem()
        plot.hideButtons()
        plot.setMenuEnabled(False)
        plot.hideAxis("bottom")
        # The lowest tick's label is centred on the floor: half of it stands below.
        plot.setContentsMargins(0, 0, RIGHT_MARGIN, FLOOR_MARGIN)
        self.setFrameShape(self.Shape.NoFrame)
        self.setAccessibleName(self.tr("Plot"))
        self._axis = plot.getAxis("left")
        self._axis.setWidth(AXIS_WIDTH)
        self._axis.setStyle(tickLength=0, tickTextOffset=8, hideOverlappingLabels=False)
        self.view_box = plot.getViewBox()
        self.view_box.disableAutoRange()
        self.view_box.setMouseEnabled(x=True, y=False)
        self.view_box.setLimits(xMin=0.0, minXRange=MIN_SPAN_S)
        self.view_box.setDefaultPadding(0.0)
        self.view_box.sigRangeChangedManually.connect(self.panned)
        self.view_box.sigResized.connect(self.resized)
        self.backdrop = Backdrop()
        self.addItem(self.backdrop, ignoreBounds=True)
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self.setBackground(theme.color("surface"))
        self._axis.setPen(make_pen(QColor(0, 0, 0, 0), 1))
        self._axis.setTextPen(theme.color("faint"))
        self._axis.setTickFont(theme.font(LABEL_PX))
        self.backdrop.grid_color = theme.color("line")
        self.backdrop.shade_color = theme.color("prefill", PREFILL_SHADE)
        self.backdrop.update()

    def set_y_axis(self, top: float, lane_px: float = 0.0) -> None:
        """Let y run from zero to `top`, with `lane_px` kept free above it for markers."""
        wanted = (top, lane_px, float(self.view_box.height()))
        if wanted == self._y_axis:
            return  # laying out the labels anew costs more than drawing the data
        self._y_axis = wanted
        positions = ticks(0.0, top, self._num_ticks)
        labels = tick_labels(positions)
        self._axis.setTicks([list(zip(positions, labels, strict=True))])
        self.backdrop.grid = positions
        self.backdrop.update()
        height = wanted[2]
        stretch = height / (height - lane_px) if height > 2 * lane_px else 1.0
        self.view_box.setYRange(0.0, top * stretch, padding=0)

    def points_for(self, x: Array) -> int:
        """How many points of a line over `x` the pixels can show at the present zoom."""
        if len(x) < 2:
            return len(x)
        start, end = self.view_box.viewRange()[0]
        share = (x[-1] - x[0]) / max(end - start, MIN_SPAN_S)
        return max(64, int(self.view_box.width() * share))

    def set_shade(self, shade: tuple[float, float] | None) -> None:
        """Shade the prefill from start to end in seconds, None for no shade."""
        if shade != self.backdrop.shade:
            self.backdrop.shade = shade
            self.backdrop.update()


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A sign of the legend: how it is drawn, its colour token, its name in full and in short."""

    kind: SwatchKind
    token: str
    name: str
    short: str


class Swatch(QWidget):
    """The little sign before a legend's name; its form says the same as its colour."""

    def __init__(self, kind: SwatchKind, color: QColor) -> None:
        super().__init__()
        self._kind, self._color = kind, color

    def sizeHint(self) -> QSize:
        return QSize(6 if self._kind == "dot" else 10, 8)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        middle = self.height() / 2
        width = self.width()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self._kind == "dash":
            painter.setPen(make_pen(self._color, 2))
            for start in (0.0, 6.0):
                painter.drawLine(QPointF(start, middle), QPointF(start + 4, middle))
            return
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._color)
        if self._kind == "dot":
            painter.drawEllipse(QPointF(width / 2, middle), 2.2, 2.2)
        elif self._kind == "line":
            painter.drawRoundedRect(QRectF(0, middle - 1, width, 2.5), 1, 1)
        else:
            painter.drawRect(QRectF(0, middle - 4, width, 8))


class PlotHeader(QWidget):
    """Title, subtitle and legend of a plot in one row; short names where the row is narrow."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._subtitles = ("", "")
        self._entries: tuple[LegendEntry, ...] = ()
        self._names: list[tuple[QLabel, LegendEntry]] = []
        self._title = ThemedLabel(theme, LABEL_PX + 1, "text", bold=True)
        self._subtitle = ThemedLabel(theme, LABEL_PX + 0.5, "muted")
        self._legend = QHBoxLayout()
        self._legend.setSpacing(0)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, RIGHT_MARGIN, 0)
        row.setSpacing(_WORD_GAP)
        row.addWidget(self._title)
        row.addWidget(self._subtitle)
        row.addStretch(1)
        row.addLayout(self._legend)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def set_title(self, title: str) -> None:
        """What the plot shows, in one term of the field."""
        self._title.setText(title)

    def set_legend(self, entries: Sequence[LegendEntry]) -> None:
        """Show these entries; nothing happens when they are shown already."""
        if tuple(entries) != self._entries:
            self._entries = tuple(entries)
            self._rebuild()

    def set_subtitle(self, subtitle: str, short_subtitle: str) -> None:
        """The plain words for it with the unit, and the unit alone."""
        if (subtitle, short_subtitle) != self._subtitles:
            self._subtitles = (subtitle, short_subtitle)
            self._fit()

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        self._title.set_theme(theme)
        self._subtitle.set_theme(theme)
        self._rebuild()

    def _rebuild(self) -> None:
        while item := self._legend.takeAt(0):
            if widget := item.widget():
                widget.setParent(None)
                widget.deleteLater()
        self._names = []
        for entry in self._entries:
            if self._names:
                self._legend.addSpacing(_ENTRY_GAP)
            self._legend.addWidget(Swatch(entry.kind, self._theme.color(entry.token)))
            self._legend.addSpacing(_SWATCH_GAP)
            label = ThemedLabel(self._theme, LABEL_PX + 0.5, "muted")
            self._legend.addWidget(label)
            self._names.append((label, entry))
        self._fit()

    def _fit(self) -> None:
        for short in (False, True):
            self._subtitle.setText(self._subtitles[short])
            for label, entry in self._names:
                label.setText(entry.short if short else entry.name)
            if self._needed_width() <= self.width():
                return

    def _needed_width(self) -> int:
        # Not the layout's own figure: it leaves out labels that are not shown yet.
        signs = sum(
            label.sizeHint().width() + _SWATCH_GAP + (6 if entry.kind == "dot" else 10)
            for label, entry in self._names
        )
        gaps = _ENTRY_GAP * max(0, len(self._names) - 1)
        words = self._title.sizeHint().width() + self._subtitle.sizeHint().width()
        return words + 2 * _WORD_GAP + signs + gaps + RIGHT_MARGIN

    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()


class TimeAxis(QWidget):
    """The labels of the one time axis, under the lowest plot: seconds from Send."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._range = (0.0, 1.2)
        self.setAccessibleName(self.tr("Seconds from Send"))
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        self.setFont(theme.font(LABEL_PX))
        self.setFixedHeight(self.fontMetrics().height() + 4)
        self.update()

    def set_range(self, start_s: float, end_s: float) -> None:
        """The span the plots show."""
        if (start_s, end_s) != self._range:
            self._range = (start_s, end_s)
            self.update()

    def labels(self) -> list[tuple[QRectF, str]]:
        """Where which text stands; no two overlap, the last one carries the unit."""
        start, end = self._range
        width = self.width() - AXIS_WIDTH - RIGHT_MARGIN
        if width <= 0 or end <= start:
            return []
        metrics = self.fontMetrics()
        positions = ticks(start, end, max(2, min(7, width // 64)))
        texts = tick_labels(positions)
        texts[-1:] = [f"{texts[-1]} s"] if texts else []
        placed: list[tuple[QRectF, str]] = []
        for position, text in zip(positions, texts, strict=True):
            advance = metrics.horizontalAdvance(text) + 2
            center = AXIS_WIDTH + (position - start) / (end - start) * width
            left = min(center - advance / 2, self.width() - advance)
            placed.append((QRectF(left, 2, advance, metrics.height()), text))
        return placed

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setFont(self.font())
        painter.setPen(self._theme.color("faint"))
        for rect, text in self.labels():
            painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, text)
