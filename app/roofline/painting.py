"""Paints a scene of the roofline: grid, zones, roofs with their figures, dots, the flip."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen, QPolygonF

from app.roofline import words
from app.roofline.log_axis import log_ticks
from app.roofline.scene import Scene
from app.roofline.words import PhasePlace
from app.telemetry.labels import label_height
from app.telemetry.pixel_items import make_pen
from app.telemetry.series import Array
from app.telemetry.step_points import StepPoints
from app.theme import LABEL_PX, Theme
from engine.peaks import Roofs

GAP = 6
Mask = NDArray[np.bool_]
_ZONE_TINT = 0.07
_OLD_SHARE = 0.38  # of a dot's colour in those of earlier answers, the rest is the ground's
_ROOF_PX = 2.0
_DOT_PX, _DIAMOND_PX, _RING_PX = 2.6, 4.2, 7.0  # radii at 100 %
_ARROW_GAP, _ARROW_HEAD, _SHORTEST_ARROW = 16.0, 7.0, 48.0
_MIDDLE = Qt.AlignmentFlag.AlignVCenter
_CENTER = Qt.AlignmentFlag.AlignCenter
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


@dataclass(frozen=True, slots=True)
class Shown:
    """What is painted. `is_live`: the newest dot stands out; `picked`: a ring is around this."""

    roofs: Roofs
    points: StepPoints
    prefill: PhasePlace | None
    decode: PhasePlace | None
    is_live: bool
    picked: int | None


class RooflinePainter:
    """Paints one picture; keeps which pixels are taken, so that no label lies on a dot."""

    def __init__(self, painter: QPainter, theme: Theme, scene: Scene, shown: Shown) -> None:
        self._painter, self._theme = painter, theme
        self._scene, self._shown = scene, shown
        self._x, self._y = scene.pixels(shown.points)
        self._line = label_height(theme)

    def paint(self) -> None:
        """Everything, from the ground up."""
        self._draw_axes()
        self._painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._draw_zones()
        self._draw_roofs()
        self._draw_dots()
        self._draw_flip()
        self._draw_picked()
        self._draw_roof_labels()
        self._draw_place("prefill", self._shown.prefill, self._shown.points.is_prefill)
        self._draw_place("decode", self._shown.decode, ~self._shown.points.is_prefill)

    # --- ground ---------------------------------------------------------------------------

    def _draw_axes(self) -> None:
        scene, area = self._scene, self._scene.area
        self._use("faint")
        unit, _ = words.rate_unit(scene.limits.matmul_flops)
        for value in log_ticks(scene.y.low, scene.y.high):
            y = round(scene.y.px(value)) + 0.5
            self._painter.setPen(make_pen(self._theme.color("line"), 1))
            self._painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y))
            self._painter.setPen(self._theme.color("faint"))
            place = QRectF(0, y - self._line / 2, area.left() - GAP, self._line)
            self._painter.drawText(place, _RIGHT, words.tick_text(value / unit))
        values = log_ticks(scene.x.low, scene.x.high)
        free = area.right()
        for value in reversed(values):
            text = words.tick_text(value)
            if value == values[-1]:
                text = words.intensity_tick(text)
            width = self._width(text)
            left = min(scene.x.px(value) - width / 2, area.right() - width)
            if left + width <= free:
                self._text(QPointF(left, area.bottom() + GAP), text, "faint")
                free = left - 2 * GAP

    def _draw_zones(self) -> None:
        scene, area = self._scene, self._scene.area
        ridge, floor = scene.ridge, QPointF(scene.ridge.x(), area.bottom())
        left = [scene.slope_start, ridge, floor, area.bottomLeft()]
        right = [ridge, scene.flat_end, area.bottomRight(), floor]
        self._painter.setPen(Qt.PenStyle.NoPen)
        for token, corners in (("decode", left), ("prefill", right)):
            self._painter.setBrush(self._theme.color(token, _ZONE_TINT))
            self._painter.drawPolygon(QPolygonF(corners))
        self._painter.setPen(make_pen(self._theme.color("faint"), 1, Qt.PenStyle.DotLine))
        self._painter.drawLine(ridge, floor)
        top = area.bottom() - self._line - 2
        names = words.zones()
        left_zone = QRectF(area.left(), top, ridge.x() - area.left(), self._line)
        right_zone = QRectF(ridge.x(), top, area.right() - ridge.x(), self._line)
        self._zone_label(names[0], "decode", left_zone)
        self._zone_label(names[1], "prefill", right_zone)

    def _zone_label(self, text: str, token: str, zone: QRectF) -> None:
        width = self._width(text)
        place = QRectF(zone.center().x() - width / 2, zone.top(), width, self._line)
        if width + 2 * GAP <= zone.width() and not self._is_on_dots(place):
            self._clear(place, self._ground(token))
            self._text(place.topLeft(), text, "muted")

    # --- roofs ----------------------------------------------------------------------------

    def _draw_roofs(self) -> None:
        scene = self._scene
        self._painter.setPen(make_pen(self._theme.color("decode"), _ROOF_PX))
        self._painter.drawLine(scene.slope_start, scene.ridge)
        self._painter.setPen(make_pen(self._theme.color("prefill"), _ROOF_PX))
        self._painter.drawLine(scene.ridge, scene.flat_end)
        self._painter.setPen(make_pen(self._theme.color("text"), 1.5))
        self._painter.setBrush(self._theme.color("surface"))
        self._painter.drawEllipse(scene.ridge, 3.5, 3.5)

    def _draw_roof_labels(self) -> None:
        scene, area, limits = self._scene, self._scene.area, self._scene.limits
        figure, rest = words.compute_roof(self._shown.roofs)
        width = self._width(figure, bold=True) + GAP + self._width(rest)
        above = scene.ridge.y() - self._line - GAP
        flat = QPointF(area.right() - width, above)
        self._clear(QRectF(flat.x(), above, width, self._line), self._ground())
        self._text(flat, figure, "text", bold=True)
        self._text(flat + QPointF(self._width(figure, bold=True) + GAP, 0), rest, "muted")
        ridge = words.ridge(limits.ridge)
        left = max(scene.ridge.x() - self._width(ridge) / 2, area.left())
        place = QRectF(left, above, self._width(ridge), self._line)
        if place.right() + 2 * GAP < flat.x():
            self._clear(place, self._ground())
            self._text(place.topLeft(), ridge, "muted")
        self._draw_slope_label(*words.bandwidth_roof(limits.bandwidth, limits.working_set))

    def _draw_slope_label(self, figure: str, rest: str) -> None:
        """Two lines in the free corner over the slope, as near to it as they have room."""
        scene, area = self._scene, self._scene.area
        width = max(self._width(figure, bold=True), self._width(rest))
        # The lower right corner of the words is what comes nearest to the line.
        corner = max(area.left() + width + GAP, (2 * area.left() + scene.ridge.x()) / 3)
        bottom = scene.slope_y(corner + GAP) - GAP
        lowest_top = scene.ridge.y() - GAP
        if corner > scene.ridge.x() or bottom - 2 * self._line < lowest_top:
            corner, bottom = area.left() + width, lowest_top  # over the roofs, one below the other
        place = QPointF(corner - width, bottom - 2 * self._line)
        self._clear(QRectF(place.x(), place.y(), width, 2 * self._line), self._ground())
        self._text(place, figure, "text", bold=True)
        self._text(place + QPointF(0, self._line), rest, "muted")

    # --- dots -----------------------------------------------------------------------------

    def _draw_dots(self) -> None:
        points = self._shown.points
        for is_old in (True, False):
            among = points.is_selected != is_old
            share = _OLD_SHARE if is_old else 1.0
            self._draw_circles(among & ~points.is_prefill, self._mixed("decode", share))
            self._draw_diamonds(among & points.is_prefill, self._mixed("prefill", share))
        if self._shown.is_live and len(points) and points.is_selected[-1]:
            self._draw_newest()

    def _draw_circles(self, mask: Mask, color: QColor) -> None:
        pen = QPen(color, 2 * _DOT_PX * self._theme.scale)
        pen.setCapStyle(Qt.PenCapStyle.RoundCap)
        self._painter.setPen(pen)
        self._painter.drawPoints(self._places(mask))

    def _draw_diamonds(self, mask: Mask, color: QColor) -> None:
        self._painter.setPen(make_pen(self._theme.color("surface"), 1))
        self._painter.setBrush(color)
        for place in self._places(mask):
            self._painter.drawPolygon(_diamond(place, _DIAMOND_PX * self._theme.scale))

    def _places(self, mask: Mask) -> list[QPointF]:
        """Pixels of some dots; a thousand steps of one phase share a few dozen."""
        pixels = np.column_stack((self._x[mask], self._y[mask])).round(1)
        return [QPointF(x, y) for x, y in np.unique(pixels, axis=0).tolist()]

    def _draw_newest(self) -> None:
        token = "prefill" if self._shown.points.is_prefill[-1] else "decode"
        self._painter.setPen(make_pen(self._theme.color("surface"), 2))
        self._painter.setBrush(self._theme.color(token))
        radius = 1.8 * _DOT_PX * self._theme.scale
        place = QPointF(self._x[-1], self._y[-1])
        if token == "prefill":
            self._painter.drawPolygon(_diamond(place, 1.4 * radius))
        else:
            self._painter.drawEllipse(place, radius, radius)

    def _draw_flip(self) -> None:
        """An arrow from where the answer's prefill lies to where its decode does."""
        prefill, decode = self._shown.prefill, self._shown.decode
        if prefill is None or decode is None:
            return
        start = self._scene.point(prefill.intensity, prefill.rate)
        end = self._scene.point(decode.intensity, decode.rate)
        length = math.hypot(end.x() - start.x(), end.y() - start.y())
        if length < _SHORTEST_ARROW:
            return
        along = (end - start) / length
        tip, across = end - along * _ARROW_GAP, QPointF(-along.y(), along.x())
        head = tip - along * _ARROW_HEAD
        self._painter.setPen(make_pen(self._theme.color("muted"), 1.2))
        self._painter.drawLine(start + along * _ARROW_GAP, head)
        self._painter.setPen(Qt.PenStyle.NoPen)
        self._painter.setBrush(self._theme.color("muted"))
        side = across * (_ARROW_HEAD / 2)
        self._painter.drawPolygon(QPolygonF([tip, head + side, head - side]))

    def _draw_picked(self) -> None:
        index = self._shown.picked
        if index is None:
            return
        self._painter.setPen(make_pen(self._theme.color("text"), 1.5))
        self._painter.setBrush(Qt.BrushStyle.NoBrush)
        radius = _RING_PX * self._theme.scale
        self._painter.drawEllipse(QPointF(self._x[index], self._y[index]), radius, radius)

    def _draw_place(self, token: str, phase: PhasePlace | None, mask: Mask) -> None:
        """Beside the answer's dots of a phase: its name and share of the roof."""
        if phase is None:
            return
        text = words.place_label(token == "prefill", phase)
        width = self._width(text, bold=True)
        middle = self._scene.point(phase.intensity, phase.rate)
        area = self._scene.area.adjusted(GAP, 0, -GAP, -self._line - GAP)
        for place in self._places_beside(middle, width, mask):
            place.moveLeft(min(max(place.left(), area.left()), area.right() - width))
            if area.contains(place) and not self._is_on_dots(place):
                zone = "prefill" if place.left() > self._scene.ridge.x() else "decode"
                self._clear(place, self._ground(zone))
                self._text(place.topLeft(), text, token, bold=True)
                return

    def _places_beside(self, middle: QPointF, width: float, mask: Mask) -> list[QRectF]:
        """Where a phase's label may stand: under its dots, else right of them and a bit lower.

        Both are off the flip's arrow, which lies over decode and, mostly, left of prefill.
        """
        left = middle.x() - 2 * GAP
        below = mask & (self._x > left - GAP) & (self._x < left + width + GAP)
        under = float(self._y[below].max(initial=middle.y())) + 2 * GAP
        return [
            QRectF(left, under, width, self._line),
            QRectF(middle.x() + 2 * GAP, middle.y() + GAP, width, self._line),
        ]

    # --- helpers --------------------------------------------------------------------------

    def _clear(self, place: QRectF, ground: QColor) -> None:
        """No label lies on a grid line."""
        self._painter.fillRect(place.toAlignedRect(), ground)

    def _ground(self, zone: str | None = None) -> QColor:
        """What lies behind a label: the plot's ground, or a zone's on it."""
        return self._mixed(zone, _ZONE_TINT) if zone else self._theme.color("surface")

    def _mixed(self, token: str, share: float) -> QColor:
        """Opaque: overlapping dots must not add up to the colour of the strong ones."""
        color, ground = self._theme.color(token), self._theme.color("surface")
        return QColor.fromRgbF(
            share * color.redF() + (1 - share) * ground.redF(),
            share * color.greenF() + (1 - share) * ground.greenF(),
            share * color.blueF() + (1 - share) * ground.blueF(),
        )

    def _is_on_dots(self, place: QRectF) -> bool:
        x, y = self._x, self._y
        within = (x > place.left() - GAP) & (x < place.right() + GAP)
        within &= (y > place.top() - GAP / 2) & (y < place.bottom() + GAP / 2)
        return bool(within.any())

    def _use(self, token: str, *, bold: bool = False) -> None:
        self._painter.setFont(self._theme.font(LABEL_PX, bold=bold))
        self._painter.setPen(self._theme.color(token))

    def _text(self, corner: QPointF, text: str, token: str, *, bold: bool = False) -> None:
        self._use(token, bold=bold)
        size = QRectF(corner.x(), corner.y(), self._width(text, bold=bold), self._line)
        self._painter.drawText(size, _MIDDLE, text)

    def _width(self, text: str, *, bold: bool = False) -> float:
        return QFontMetricsF(self._theme.font(LABEL_PX, bold=bold)).horizontalAdvance(text) + 2


def _diamond(middle: QPointF, radius: float) -> QPolygonF:
    corners = ((0, -radius), (radius, 0), (0, radius), (-radius, 0))
    return QPolygonF([middle + QPointF(x, y) for x, y in corners])


def pixels_near(x: Array, y: Array, at: QPointF, within: float) -> int | None:
    """The nearest of many pixels to a place, the newest of equals; None farther than `within`."""
    if not len(x):
        return None
    distance = np.hypot(x - at.x(), y - at.y())
    nearest = len(distance) - 1 - int(np.argmin(distance[::-1]))
    return nearest if distance[nearest] <= within else None
