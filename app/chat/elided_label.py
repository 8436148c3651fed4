"""A label of one line that shortens its text to the room there is."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QFontMetrics, QResizeEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget


class ElidedLabel(QLabel):
    """Shows plain text, with an ellipsis and the whole as its tooltip where it does not fit."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._whole = ""
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)

    def set_whole_text(self, text: str) -> None:
        """What to say when there is room."""
        self._whole = text
        self.setAccessibleName(text)
        self.updateGeometry()
        self._shorten()

    def _shorten(self) -> None:
        metrics, elide = QFontMetrics(self.font()), Qt.TextElideMode.ElideRight
        shown = metrics.elidedText(self._whole, elide, self.width())
        self.setText(shown)
        self.setToolTip("" if shown == self._whole else self._whole)

    # Qt overrides

    def sizeHint(self) -> QSize:
        metrics = QFontMetrics(self.font())
        return QSize(metrics.horizontalAdvance(self._whole) + 2, metrics.height())

    def minimumSizeHint(self) -> QSize:
        return QSize(0, QFontMetrics(self.font()).height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._shorten()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self._shorten()
