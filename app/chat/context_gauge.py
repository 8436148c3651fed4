"""How full the context is: a bar in the cache's colour and the two numbers."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QWidget

from app.chat.styles import label_style
from app.telemetry.format import count
from app.theme import LABEL_PX, Theme

BAR_WIDTH, BAR_HEIGHT = 130, 5


class _Bar(QWidget):
    """The bar alone, `share` of it filled."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.theme = theme
        self.share = 0.0
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.setMaximumWidth(BAR_WIDTH)
        self.setMinimumWidth(24)

    # Qt overrides

    def sizeHint(self) -> QSize:
        return QSize(BAR_WIDTH, BAR_HEIGHT)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        groove = QRectF(self.rect())
        radius = groove.height() / 2
        painter.setBrush(self.theme.color("line"))
        painter.drawRoundedRect(groove, radius, radius)
        if self.share > 0:
            groove.setWidth(max(groove.height(), groove.width() * self.share))
            painter.setBrush(self.theme.color("kv"))
            painter.drawRoundedRect(groove, radius, radius)
        painter.end()


class ContextGauge(QWidget):
    """ "Context", a bar, and e.g. "1,284 / 4,096"."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._title = QLabel(self.tr("Context"))
        self._bar = _Bar(theme, self)
        self._numbers = QLabel()
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addWidget(self._title)
        layout.addWidget(self._bar, 1)
        layout.addWidget(self._numbers)
        self.set_theme(theme)
        self.set_context(None, None)

    def set_context(self, used: int | None, limit: int | None) -> None:
        """Show `used` of `limit` tokens; None where there is no value."""
        numbers = f"{count(used)} / {count(limit)}"
        self._numbers.setText(numbers)
        self._bar.share = min(1.0, used / limit) if used and limit else 0.0
        self._bar.update()
        explanation = self.tr("Tokens of this chat in the context, of those it can hold: %1")
        self.setToolTip(explanation.replace("%1", numbers))
        self.setAccessibleName(explanation.replace("%1", numbers))

    def set_title_shown(self, shown: bool) -> None:
        """Whether there is room for the word before the bar."""
        self._title.setVisible(shown)

    def set_theme(self, theme: Theme) -> None:
        """Draw with other colours or sizes."""
        self._bar.theme = theme
        self._bar.update()
        for label in (self._title, self._numbers):
            label.setFont(theme.font(LABEL_PX + 1))
            label.setStyleSheet(label_style(theme.muted))
