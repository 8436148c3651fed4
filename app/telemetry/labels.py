"""A label that takes its colour and size from theme tokens."""

from __future__ import annotations

from PySide6.QtGui import QFontMetricsF, QPalette
from PySide6.QtWidgets import QLabel, QWidget

from app.theme import LABEL_PX, Theme


def label_height(theme: Theme) -> float:
    """The height of a line of plot labels, in px."""
    return QFontMetricsF(theme.font(LABEL_PX)).height()


class ThemedLabel(QLabel):
    """Plain text in one theme colour and one size; never rich text."""

    def __init__(
        self,
        theme: Theme,
        px: float,
        token: str,
        *,
        bold: bool = False,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._px, self._token, self._bold = px, token, bold
        self.setTextFormat(self.textFormat().PlainText)
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self.setFont(theme.font(self._px, bold=self._bold))
        palette = self.palette()
        palette.setColor(QPalette.ColorRole.WindowText, theme.color(self._token))
        self.setPalette(palette)
