"""The phase badge: what the program is doing, as a dot and a word."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.theme import CONTROL_PX, Theme, ThemeName

BadgePhase = Literal["idle", "loading", "prefill", "decode", "stopping"]
_TOKENS: dict[BadgePhase, str] = {
    "idle": "muted",
    "loading": "muted",
    "prefill": "prefill",
    "decode": "decode",
    "stopping": "stop",
}
# How much of its colour the fill has; more would cost the word its contrast.
_FILL: dict[ThemeName, float] = {"dark": 0.18, "light": 0.1}
_DOT = 3.5
_PADDING = 11
_HEIGHT = 24


class PhaseBadge(QWidget):
    """A pill with a dot and a word; as wide as the longest word, so that a toolbar holds still."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._phase: BadgePhase = "idle"
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.set_theme(theme)
        self.set_phase("idle")

    @property
    def phase(self) -> BadgePhase:
        """What it says now."""
        return self._phase

    def set_phase(self, phase: BadgePhase) -> None:
        """Say another phase."""
        self._phase = phase
        self.setAccessibleName(self.word(phase))
        self.update()

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        self.setFont(theme.font(CONTROL_PX, bold=True))
        self.updateGeometry()
        self.update()

    def word(self, phase: BadgePhase) -> str:
        """The word for a phase."""
        words = {
            "idle": self.tr("Idle"),
            "loading": self.tr("Loading"),
            "prefill": self.tr("Prefill"),
            "decode": self.tr("Decode"),
            "stopping": self.tr("Stopping"),
        }
        return words[phase]

    def colors(self, phase: BadgePhase) -> tuple[QColor, QColor]:
        """Text and opaque fill; stopping is white on red, for red text would be hard to read."""
        if phase == "stopping":
            return self._theme.color("on_stop"), self._theme.color("stop")
        text, surface = self._theme.color(_TOKENS[phase]), self._theme.color("surface")
        share = _FILL[self._theme.name]

        def mixed(top: float, bottom: float) -> float:
            return share * top + (1 - share) * bottom

        fill = QColor.fromRgbF(
            mixed(text.redF(), surface.redF()),
            mixed(text.greenF(), surface.greenF()),
            mixed(text.blueF(), surface.blueF()),
        )
        return text, fill

    def sizeHint(self) -> QSize:
        metrics = QFontMetricsF(self.font())
        widest = max(metrics.horizontalAdvance(self.word(phase)) for phase in _TOKENS)
        height = max(_HEIGHT, int(metrics.height()) + 8)
        return QSize(int(widest + 2 * _DOT + 7 + 2 * _PADDING) + 1, height)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        text, fill = self.colors(self._phase)
        word = self.word(self._phase)
        advance = QFontMetricsF(self.font()).horizontalAdvance(word)
        left = (self.width() - advance - 2 * _DOT - 7) / 2
        pill = QRectF(self.rect())
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(fill)
        painter.drawRoundedRect(pill, pill.height() / 2, pill.height() / 2)
        painter.setBrush(text)
        painter.drawEllipse(QPointF(left + _DOT, pill.center().y()), _DOT, _DOT)
        painter.setPen(text)
        painter.setFont(self.font())
        rect = QRectF(left + 2 * _DOT + 7, 0, advance + 2, pill.height())
        painter.drawText(rect, Qt.AlignmentFlag.AlignVCenter, word)
