"""Over the latency dots: the TTFT marker and, at the top edge, tokens later than the axis."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, QSizeF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPolygonF

from app.telemetry.labels import label_height
from app.telemetry.pixel_items import PixelItem, make_pen
from app.theme import LABEL_PX, Theme

_MAX_LABELS = 3
_TRIANGLE = 4.0


def lane_px(theme: Theme) -> float:
    """What is kept free above the axis for markers, so that none hides a dot."""
    return label_height(theme) + 10


@dataclass(frozen=True, slots=True)
class LateToken:
    """A token above the axis: where, and what is written beside it, the cause if there is room."""

    place: float
    itl_ms: float
    label: str
    cause: str = ""


class ItlMarkers(PixelItem):
    """Draws what stands above the data; no label lies over another or over the TTFT's.

    `ttfts`: where first tokens lie, with `ttft_text` on the only one. `taken_px`: room at the
    right end of the marker lane that something else covers.
    """

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.setZValue(10)
        self.theme = theme
        self.ttfts: tuple[float, ...] = ()
        self.ttft_text = ""
        self.late: tuple[LateToken, ...] = ()
        self.taken_px = 0.0

    def draw(self, painter: QPainter, area: QRectF) -> None:
        """The TTFT lines, the label of a single one, then the late tokens around it."""
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        pill = QRectF()
        for place in self.ttfts:
            pill = self._draw_ttft(painter, area, place)
        if self.late:
            self._draw_late(painter, area, pill)

    def pill_rect(self, x: float, area: QRectF, width: float, height: float) -> QRectF:
        """Where the TTFT label stands: right of its line, left of it where that is free of late
        tokens or the only side with room."""
        top = area.top() + 2
        right = QRectF(x + 4, top, width, height)
        left = QRectF(x - 4 - width, top, width, height)
        fits_left = left.left() >= area.left()
        fits_right = right.right() <= area.right() - self.taken_px
        crowded = any(
            right.left() - _TRIANGLE <= self.px(token.place, 0).x() <= right.right() + _TRIANGLE
            for token in self.late
        )
        return left if fits_left and (crowded or not fits_right) else right

    def _draw_ttft(self, painter: QPainter, area: QRectF, place: float) -> QRectF:
        x, text = self.px(place, 0).x(), self.ttft_text
        if not area.left() - 1 <= x <= area.right() + 1:
            return QRectF()
        color = self.theme.color("prefill")
        painter.setPen(make_pen(color, 1.5))
        painter.drawLine(QPointF(x, area.top()), QPointF(x, area.bottom()))
        if not text:
            return QRectF()
        font = self.theme.font(LABEL_PX, bold=True)
        metrics = QFontMetricsF(font)
        rect = self.pill_rect(x, area, metrics.horizontalAdvance(text) + 12, metrics.height() + 4)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(color)
        painter.drawRoundedRect(rect, 4, 4)
        painter.setFont(font)
        painter.setPen(self.theme.color("surface"))
        painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, text)
        return rect

    def _draw_late(self, painter: QPainter, area: QRectF, pill: QRectF) -> None:
        edge = area.top() + lane_px(self.theme)
        marks = self._triangles(area, pill)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self.theme.color("decode"))
        for rect, _ in marks:
            middle = rect.center().x()
            painter.drawPolygon(
                QPolygonF([QPointF(middle, rect.top()), rect.bottomRight(), rect.bottomLeft()])
            )
        painter.setFont(self.theme.font(LABEL_PX))
        painter.setPen(self.theme.color("muted"))
        for rect, text in self._late_labels(area, pill, marks, edge):
            painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, text)

    def _triangles(self, area: QRectF, pill: QRectF) -> list[tuple[QRectF, LateToken]]:
        marks = []
        height = label_height(self.theme)
        seen: set[int] = set()
        for token in sorted(self.late, key=lambda t: -t.itl_ms):
            x = self.px(token.place, 0).x()
            # Neighbours within a triangle's width are one mark: the latest of them.
            if not area.left() <= x <= area.right() or round(x / _TRIANGLE) in seen:
                continue
            seen.add(round(x / _TRIANGLE))
            rect = QRectF(
                x - _TRIANGLE, area.top() + height / 2 + 2, 2 * _TRIANGLE, 2 * _TRIANGLE - 1
            )
            if not pill.isEmpty() and pill.adjusted(-2, 0, 2, 0).intersects(rect):
                rect.moveTop(pill.bottom() + max(5.0, height / 2 - 1))
            marks.append((rect, token))
        return marks

    def _late_labels(
        self,
        area: QRectF,
        pill: QRectF,
        marks: list[tuple[QRectF, LateToken]],
        edge: float,
    ) -> list[tuple[QRectF, str]]:
        metrics = QFontMetricsF(self.theme.font(LABEL_PX))
        lane = QRectF(area.left(), area.top(), area.width() - self.taken_px, edge - area.top())
        placed: list[tuple[QRectF, str]] = []
        for mark, token in marks:
            if len(placed) == _MAX_LABELS:
                break
            others = [m for m, _ in marks if m is not mark] + [r for r, _ in placed] + [pill]
            full = f"{token.label}, {token.cause}" if token.cause else token.label
            for text in dict.fromkeys((full, token.label)):
                size = QSizeF(metrics.horizontalAdvance(text) + 2, metrics.height())
                rect = _beside(mark, size, lane, others)
                if rect is not None:
                    placed.append((rect, text))
                    break
        return placed


def _beside(mark: QRectF, size: QSizeF, lane: QRectF, others: list[QRectF]) -> QRectF | None:
    """Where a label fits right or left of its mark, within the lane and clear of `others`."""
    top = mark.center().y() - size.height() / 2
    for left in (mark.right() + 3, mark.left() - 3 - size.width()):
        rect = QRectF(QPointF(left, top), size)
        if (
            lane.left() <= left
            and rect.right() <= lane.right()
            and not any(
                rect.intersects(other.adjusted(-2, -1, 2, 1))
                for other in others
                if not other.isEmpty()
            )
        ):
            return rect
    return None
