"""What ties the card to what it speaks of: a gentle outline there, and a thin line between."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen, QPolygon, QRegion
from PySide6.QtWidgets import QWidget

from app.theme import Theme

_RADIUS = 8
_OUTLINE_ALPHA = 0.7


class Pointer(QWidget):
    """Lies over the window, but only where it draws; the mouse does not see it."""

    def __init__(self, theme: Theme, window: QWidget) -> None:
        super().__init__(window)
        self._theme, self._window = theme, window
        self._token = "muted"
        self._region = QRect()
        self._line: list[QPoint] = []
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.hide()

    @property
    def over(self) -> QWidget:
        """The window it lies over."""
        return self._window

    def move_over(self, window: QWidget) -> None:
        """Lie over another window: the panels float, or are docked again."""
        if window is not self._window:
            self._window = window
            self.setParent(window)

    @property
    def region(self) -> QRect:
        """What is outlined, in the window's coordinates."""
        return self._region

    @property
    def line(self) -> list[QPoint]:
        """Corners of the line from the card to the region."""
        return list(self._line)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set."""
        self._theme = theme
        self.update()

    def point(self, region: QRect, line: list[QPoint], token: str) -> None:
        """Outline `region` and draw `line`, both in the window's coordinates."""
        place = QRect(QPoint(0, 0), self._window.size())
        told = (region, line, token, place)
        if told == (self._region, self._line, self._token, self.geometry()) and self.isVisible():
            return
        self._region, self._line, self._token = region, line, token
        self.setGeometry(place)
        self.setMask(self._drawn())
        self.update()
        self.show()
        self.raise_()

    def _drawn(self) -> QRegion:
        # A mask keeps whatever lies below from being composed anew at each of its redraws.
        inner = _RADIUS // 2
        ring = QRegion(self._region.adjusted(-1, -1, 1, 1))
        ring -= QRegion(self._region.adjusted(inner, inner, -inner, -inner))
        for start, end in zip(self._line, self._line[1:], strict=False):
            ring += QRegion(QRect(start, end).normalized().adjusted(-3, -3, 3, 3))
        return ring

    # Qt overrides

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.translate(0.5, 0.5)
        color = self._theme.color(self._token, _OUTLINE_ALPHA)
        painter.setPen(QPen(color, 1))
        painter.drawRoundedRect(self._region.adjusted(0, 0, -1, -1), _RADIUS, _RADIUS)
        painter.drawPolyline(QPolygon(self._line))
        if self._line:
            painter.setBrush(color)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.drawEllipse(self._line[-1], 2, 2)


def leader(card: QRect, region: QRect, lane: int | None) -> list[QPoint]:
    """The corners of a line from a card to a region.

    `lane` is an x at which nothing stands, along which it goes up or down; None: card and region
    are neighbours, and it goes straight from one to the other.
    """
    if lane is None:
        lane = min(max(card.left(), region.left()) + 20, card.right(), region.right())
    up = region.center().y() < card.center().y()
    start = _leave(card, lane, card.top() if up else card.bottom(), card.top() + 20)
    end = _leave(region, lane, region.bottom() if up else region.top(), region.center().y())
    corners = [start, QPoint(lane, start.y()), QPoint(lane, end.y()), end]
    return [corner for index, corner in enumerate(corners) if corner not in corners[:index]]


def _leave(rect: QRect, lane: int, edge_y: int, side_y: int) -> QPoint:
    """Where a line leaves a rectangle: by its upper or lower edge if the lane runs through it."""
    if rect.left() <= lane <= rect.right():
        return QPoint(lane, edge_y)
    return QPoint(rect.left() if lane < rect.left() else rect.right(), side_y)
