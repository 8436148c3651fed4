"""A plain window with a text to read: definitions, shortcuts, licences."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QTextBrowser, QVBoxLayout, QWidget

from app.theme import Theme


class TextPage(QDialog):
    """Shows one HTML page; does not hold up the window it belongs to."""

    def __init__(self, theme: Theme, title: str, html: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(title)
        self.resize(theme.px(640), theme.px(560))
        text = QTextBrowser(self)
        text.setOpenExternalLinks(True)
        text.setAccessibleName(title)
        text.document().setDefaultStyleSheet(_style(theme))
        text.setHtml(html)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close, self)
        buttons.rejected.connect(self.reject)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(12)
        column.addWidget(text)
        column.addWidget(buttons)


def _style(theme: Theme) -> str:
    return (
        f"h2 {{ font-size: {theme.px(15)}px; font-weight: 600; margin-top: 12px; }}"
        f"p, td {{ font-size: {theme.px(13)}px; }}"
        f"td {{ padding: 4px 16px 4px 0; }}"
        f".quiet {{ color: {theme.muted}; }}"
        ".term { font-weight: 600; }"
        f"code {{ font-family: 'JetBrains Mono'; font-size: {theme.px(12)}px; }}"
    )
