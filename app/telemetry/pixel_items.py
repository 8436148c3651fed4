"""What the plots draw with: items that paint in pixels, cheap enough to share the cores.

Three stock pyqtgraph plots with grids and scatter items of 1,000 points take 40 ms a redraw.
Stamped dots, thinned lines and a few grid lines of our own take a sixth of it
(tests/benchmarks/telemetry_redraw.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyqtgraph as pg
from pyqtgraph.Qt import internals
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QPainter, QPen, QPixmap, QPolygonF, QTransform

from app.telemetry.series import Array

PREFILL_SHADE, GAP_HATCH = 0.17, 0.5  # opacity
_MIN_GAP_PX = 3.0
_MOST_DOTS = 4_000  # from here on one a pixel is drawn
_NEAR = 4  # px: a dot this far outside still shows


def make_pen(color: QColor, width: float, style: Qt.PenStyle = Qt.PenStyle.SolidLine) -> QPen:
    """A pen for drawing in logical pixels, so that it is as thick on a 2x screen."""
    pen = QPen(color, width, style)
    pen.setCapStyle(Qt.PenCapStyle.FlatCap)
    return pen


Spans = Sequence[tuple[float, float]]


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

    def pixels(self, x: Array, y: Array) -> tuple[Array, Array]:
        """The pixels of many points, shape [n] each. Valid while drawing."""
        t = self._transform
        return x * t.m11() + t.dx(), y * t.m22() + t.dy()

    def polygon(self, x: Array, y: Array) -> QPolygonF:
        """The same as a polygon."""
        pixels: QPolygonF = pg.functions.arrayToQPolygonF(*self.pixels(x, y))
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
        painter.setClipRect(area.toAlignedRect())  # whole pixels: others are clipped by a mask
        self.draw(painter, area)
        painter.restore()


class Backdrop(PixelItem):
    """Behind the data: the prefills' shade, horizontal grid lines, a hatch over idle gaps."""

    def __init__(self) -> None:
        super().__init__()
        self.setZValue(-10)
        self.shades: Spans = ()
        self.gaps: Spans = ()
        self.grid: Sequence[float] = ()
        self.shade_color = QColor()
        self.gap_color = QColor()
        self.grid_color = QColor()

    def set_times(self, shades: Spans, gaps: Spans) -> None:
        """From where to where prompts were read, and idle times left out."""
        if (shades, gaps) != (self.shades, self.gaps):
            self.shades, self.gaps = shades, gaps
            self.update()

    def draw(self, painter: QPainter, area: QRectF) -> None:
        """The shades over the full height, one line a tick, the hatches."""
        for span in self.shades:
            painter.fillRect(self._column(span, area, 1.0).toRect(), self.shade_color)
        for span in self.gaps:
            hatch = QBrush(self.gap_color, Qt.BrushStyle.BDiagPattern)
            painter.fillRect(self._column(span, area, _MIN_GAP_PX), hatch)
        painter.setPen(make_pen(self.grid_color, 1))
        for y in self.grid:
            line = round(self.px(0, y).y()) + 0.5
            painter.drawLine(QPointF(area.left(), line), QPointF(area.right(), line))

    def _column(self, span: tuple[float, float], area: QRectF, least_px: float) -> QRectF:
        left, right = (self.px(x, 0).x() for x in span)
        return QRectF(left, area.top(), max(right - left, least_px), area.height())


def one_a_pixel(x: Array, y: Array, area: QRectF) -> tuple[Array, Array]:
    """Those of many points, in order of x, that can be seen: within `area`, one a pixel.

    A few are left where they are. Of a hundred thousand most lie on each other, and no outlier
    does: what is left looks the same and is stamped in a tenth of the time.
    """
    first, last = np.searchsorted(x, [area.left() - _NEAR, area.right() + _NEAR])
    x, y = x[first:last], y[first:last]
    if len(x) <= _MOST_DOTS:
        return x, y
    left, top = math.floor(area.left()) - _NEAR, math.floor(area.top()) - _NEAR
    inside = (y >= top) & (y <= area.bottom() + _NEAR)
    columns = (x[inside] - left).round().astype(np.intp)
    rows = (y[inside] - top).round().astype(np.intp)
    width = math.ceil(area.width()) + 2 * _NEAR + 2
    taken = np.zeros((math.ceil(area.height()) + 2 * _NEAR + 2, width), dtype=bool)
    taken[rows, columns] = True
    seen_rows, seen_columns = np.nonzero(taken)
    return seen_columns.astype(np.float64) + left, seen_rows.astype(np.float64) + top


class Dots(PixelItem):
    """One round dot a point: a small picture of a dot, stamped by one call.

    1,000 dots take 0.15 ms so; drawn as points with a round pen 1.2 ms, and 9 ms on a 2x screen.
    """

    def __init__(self, diameter: float) -> None:
        super().__init__()
        self._diameter = diameter
        self._x = np.empty(0)
        self._y = np.empty(0)
        self._stamp: QPixmap | None = None
        # pyqtgraph's own bridge to QPainter's C array: a list of a thousand fragments is slow.
        self._fragments = internals.PrimitiveArray(QPainter.PixmapFragment, 10)
        self.color = QColor()

    def set_data(self, x: Array, y: Array) -> None:
        """The points to draw in order of x, shape [n] each."""
        self._x, self._y = x, y
        self.update()

    def set_color(self, color: QColor) -> None:
        """Draw in this colour from now on."""
        self.color, self._stamp = color, None
        self.update()

    def draw(self, painter: QPainter, area: QRectF) -> None:
        """The dots, each on the nearest pixel."""
        if not len(self._x):
            return
        ratio = painter.device().devicePixelRatio()
        if self._stamp is None or self._stamp.devicePixelRatio() != ratio:
            self._stamp = self._make_stamp(ratio)
        x, y = one_a_pixel(*self.pixels(self._x, self._y), area)
        if not len(x):
            return
        self._fragments.resize(len(x))
        rows = self._fragments.ndarray()  # x, y, source rectangle, scales, rotation, opacity
        rows[:, 0], rows[:, 1] = x, y
        rows[:, 2:] = (0, 0, self._stamp.width(), self._stamp.height(), 1, 1, 0, 1)
        rows[:, 6:8] = 1 / ratio
        stamped = (*self._fragments.drawargs(), self._stamp)
        painter.drawPixmapFragments(*stamped)

    def _make_stamp(self, ratio: float) -> QPixmap:
        side = math.ceil((self._diameter + 1) * ratio)
        stamp = QPixmap(side, side)
        stamp.setDevicePixelRatio(ratio)
        stamp.fill(Qt.GlobalColor.transparent)
        painter = QPainter(stamp)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self.color)
        middle = side / ratio / 2
        painter.drawEllipse(QPointF(middle, middle), self._diameter / 2, self._diameter / 2)
        painter.end()
        return stamp


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
        """The filled area, then the line over it, as far as they can be seen."""
        x, y = self._visible(area)
        if len(x) < 2:
            return
        if self.fill:
            ends = np.array([x[-1], x[0]])
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self.fill)
            painter.drawPolygon(
                self.polygon(np.concatenate((x, ends)), np.concatenate((y, np.zeros(2))))
            )
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, self._smooth)
        painter.setPen(self.pen)
        painter.drawPolyline(self.polygon(x, y))

    def _visible(self, area: QRectF) -> tuple[Array, Array]:
        """The points within `area` and two beyond each side, for Qt strokes what it clips too."""
        t = self._transform
        ends = [(edge - t.dx()) / t.m11() for edge in (area.left(), area.right())]
        first, last = np.searchsorted(self._x, ends)
        rows = slice(max(0, int(first) - 2), int(last) + 2)
        return self._x[rows], self._y[rows]
