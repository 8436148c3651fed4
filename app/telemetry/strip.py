"""The telemetry strip: what stays of the panels under the conversation in a narrow window."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QWidget

from app.telemetry.readings import ReadingCards
from app.telemetry.ribbon import PhaseRibbon
from app.telemetry.telemetry_model import TelemetryModel
from app.theme import Theme

STRIP_HEIGHT = 64


class TelemetryStrip(QWidget):
    """Phase ribbon, four readings and the way to the panels, in 64 px (at 100 %).

    Signals:
        panels_requested(): the person wants the full panels.
    """

    panels_requested = Signal()

    def __init__(self, theme: Theme, model: TelemetryModel) -> None:
        super().__init__()
        self.ribbon = PhaseRibbon(theme, model, aligned=False)
        self.cards = ReadingCards(theme, model, ("ttft", "decode", "itl", "kv"), framed=False)
        self._button = QPushButton(self.tr("Panels"))
        self._button.setToolTip(self.tr("Show the telemetry panels"))
        self._button.clicked.connect(self.panels_requested)
        row = QHBoxLayout(self)
        row.setContentsMargins(28, 0, 28, 0)
        row.setSpacing(24)
        row.addWidget(self.ribbon, 1, Qt.AlignmentFlag.AlignVCenter)
        row.addWidget(self.cards, 0, Qt.AlignmentFlag.AlignVCenter)
        row.addWidget(self._button, 0, Qt.AlignmentFlag.AlignVCenter)
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        self.setFixedHeight(max(STRIP_HEIGHT, round(STRIP_HEIGHT * theme.scale)))
        self.ribbon.set_theme(theme)
        self.cards.set_theme(theme)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), self._theme.color("surface"))
        painter.fillRect(0, 0, self.width(), 1, self._theme.color("line"))
