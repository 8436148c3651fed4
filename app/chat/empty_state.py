"""What stands in place of a conversation that has not begun."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.chat.styles import button_style, label_style
from app.theme import CONTROL_PX, CONVERSATION_PX, READING_PX, Theme


class EmptyState(QWidget):
    """The model's name, one sentence and three examples to start from.

    Signals:
        example_chosen: the text of the example that was clicked.
        offer_taken: the line under the examples was clicked.
    """

    example_chosen = Signal(str)
    offer_taken = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._name = QLabel(alignment=Qt.AlignmentFlag.AlignCenter)
        self._sentence = QLabel(
            self.tr("Ask something and watch prefill turn into decode."),
            alignment=Qt.AlignmentFlag.AlignCenter,
            wordWrap=True,
        )
        self._name.setTextFormat(Qt.TextFormat.PlainText)
        self._buttons = [QPushButton(text) for text in self._examples()]
        self._offer = QPushButton()
        self._offer.setProperty("kind", "status")
        self._offer.setCursor(Qt.CursorShape.PointingHandCursor)
        self._offer.clicked.connect(self.offer_taken)
        self._offer.hide()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(28, 28, 28, 28)
        layout.setSpacing(8)
        layout.addStretch(2)
        layout.addWidget(self._name)
        layout.addWidget(self._sentence)
        layout.addSpacing(16)
        layout.addLayout(self._button_column())
        layout.addSpacing(8)
        layout.addWidget(self._offer, 0, Qt.AlignmentFlag.AlignHCenter)
        layout.addStretch(3)
        self.set_model_name("")
        self.set_theme(theme)

    def set_model_name(self, name: str) -> None:
        """Say which model answers; empty when none is loaded."""
        self._name.setText(name or self.tr("No model loaded"))

    def set_offer(self, text: str) -> None:
        """Offer something in a quiet line under the examples; empty for nothing."""
        self._offer.setText(text)
        self._offer.setVisible(bool(text))

    def set_theme(self, theme: Theme) -> None:
        """Draw with other colours or sizes."""
        self._name.setFont(theme.font(READING_PX, bold=True))
        self._name.setStyleSheet(label_style(theme.text))
        self._sentence.setFont(theme.font(CONVERSATION_PX))
        self._sentence.setStyleSheet(label_style(theme.muted))
        for button in self._buttons:
            button.setFont(theme.font(CONTROL_PX))
            button.setStyleSheet(button_style(theme))

    def _button_column(self) -> QHBoxLayout:
        column = QVBoxLayout()
        column.setSpacing(8)
        for button in self._buttons:
            button.setCursor(Qt.CursorShape.PointingHandCursor)
            button.clicked.connect(partial(self._choose, button))
            column.addWidget(button)
        row = QHBoxLayout()
        row.addStretch()
        row.addLayout(column)
        row.addStretch()
        return row

    def _examples(self) -> tuple[str, str, str]:
        return (
            self.tr("Explain the KV cache in two sentences."),
            self.tr("Write a Python function that reverses a list."),
            self.tr("Why is the first token slow and the rest fast?"),
        )

    def _choose(self, button: QPushButton) -> None:
        self.example_chosen.emit(button.text())
