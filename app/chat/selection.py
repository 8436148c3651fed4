"""The read-only text widget in which a person selects a block of a row."""

from __future__ import annotations

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import (
    QColor,
    QDesktopServices,
    QPalette,
    QTextCursor,
    QTextDocument,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QTextBrowser, QWidget

from app.chat.markdown import is_safe_link


class SelectionBrowser(QTextBrowser):
    """Stands exactly over a painted block and looks like it, with native selection and links.

    Attributes:
        number: which block of the row it stands for.
    """

    def __init__(
        self, document: QTextDocument, number: int, color: QColor, back: QColor, parent: QWidget
    ) -> None:
        super().__init__(parent)
        self.number = number
        self._consumed = 0
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setOpenLinks(False)
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextBrowserInteraction
            | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        palette = self.palette()
        palette.setColor(QPalette.ColorRole.Text, color)
        palette.setColor(QPalette.ColorRole.Base, back)
        self.setPalette(palette)
        copy = document.clone(self)
        copy.setDocumentMargin(0)
        self.setDocument(copy)
        self.setAccessibleName(self.tr("Message text"))
        self.anchorClicked.connect(_open_link)

    def follow(self, text: str) -> None:
        """Append what a streaming `text` gained since the last call; a selection stays."""
        if self._consumed:
            cursor = QTextCursor(self.document())
            cursor.movePosition(QTextCursor.MoveOperation.End)
            cursor.insertText(text[self._consumed :])
        self._consumed = len(text)

    # Qt overrides

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()  # the conversation scrolls, not the block


def _open_link(url: QUrl) -> None:
    if is_safe_link(url.toString()):
        QDesktopServices.openUrl(url)
