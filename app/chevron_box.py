"""A drop-down field whose arrow is the chevron of the toolbar's buttons."""

from __future__ import annotations

from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QComboBox, QWidget

from app.appearance import icon
from app.theme import Theme

CHEVRON_PX = 14
GAP = 6


class ChevronBox(QComboBox):
    """QComboBox; the style sheet that gives it the window's frame takes its own arrow away."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set."""
        self._chevron = icon("chevron", theme.muted, CHEVRON_PX)
        self.update()

    # Qt overrides

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter = QPainter(self)
        left, top = self.width() - CHEVRON_PX - GAP, (self.height() - CHEVRON_PX) // 2
        self._chevron.paint(painter, left, top, CHEVRON_PX, CHEVRON_PX)
        painter.end()
