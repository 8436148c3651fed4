"""The read-only text widget in which a person selects a block of a row."""

from __future__ import annotations

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import (
    QColor,
    QDesktopServices,
    QMouseEvent,
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
            selected = self.textCursor()
            anchor, position = selected.anchor(), selected.position()
            end = QTextCursor(self.document())
            end.movePosition(QTextCursor.MoveOperation.End)
            end.insertText(text[self._consumed :])
            # A selection up to the end would have grown with the text.
            selected.setPosition(anchor)
            selected.setPosition(position, QTextCursor.MoveMode.KeepAnchor)
            self.setTextCursor(selected)
        self._consumed = len(text)

    # Qt overrides. The mouse is always taken: what is ignored would reach the list below.

    def mousePressEvent(self, event: QMouseEvent) -> None:
        super().mousePressEvent(event)
        event.accept()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        super().mouseMoveEvent(event)
        event.accept()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        event.accept()

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()  # the conversation scrolls, not the block


def _open_link(url: QUrl) -> None:
    if is_safe_link(url.toString()):
        QDesktopServices.openUrl(url)
