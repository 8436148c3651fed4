"""The value axis of a painted plot: grid lines with their figures left of them."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter

from app.telemetry.pixel_items import make_pen
from app.telemetry.scales import tick_labels, ticks
from app.theme import Theme

LABEL_GAP = 8
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


def draw_value_axis(
    painter: QPainter, theme: Theme, area: QRectF, top: float, num_ticks: int, unit: str = ""
) -> None:
    """Lines from 0 at the bottom of `area` up to `top`; `unit` stands beside the highest figure."""
    height = painter.fontMetrics().height()
    values = ticks(0, top, num_ticks)
    for value, label in zip(values, tick_labels(values), strict=True):
        y = round(area.bottom() - value / top * area.height()) + 0.5
        painter.setPen(make_pen(theme.color("line"), 1))
        painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y))
        painter.setPen(theme.color("faint"))
        text = f"{label} {unit}".strip() if value == values[-1] else label
        place = QRectF(0, y - height / 2, area.left() - LABEL_GAP, height)
        painter.drawText(place, RIGHT, text)
