"""The labels of the one time axis."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.telemetry.plot_area import RIGHT_MARGIN, axis_width
from app.telemetry.scales import tick_labels, ticks
from app.theme import LABEL_PX, Theme


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
        offset = axis_width(self._theme)
        width = self.width() - offset - RIGHT_MARGIN
        if width <= 0 or end <= start:
            return []
        metrics = self.fontMetrics()
        positions = ticks(start, end, max(2, min(7, width // 64)))
        texts = tick_labels(positions)
        texts[-1:] = [f"{texts[-1]} s"] if texts else []
        placed: list[tuple[QRectF, str]] = []
        for position, text in zip(positions, texts, strict=True):
            advance = metrics.horizontalAdvance(text) + 2
            center = offset + (position - start) / (end - start) * width
            left = min(center - advance / 2, self.width() - advance)
            placed.append((QRectF(left, 2, advance, metrics.height()), text))
        return placed

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setFont(self.font())
        painter.setPen(self._theme.color("faint"))
        for rect, text in self.labels():
            painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, text)
