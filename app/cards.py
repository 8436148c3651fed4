"""Inline cards above the conversation: what happened, why, what next, with buttons that do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.appearance import icon
from app.chat.bubble_layout import SCROLL_BAR_WIDTH, Widths
from app.theme import Theme

CardKind = Literal["error", "notice"]
ICON_PX = 16


@dataclass(frozen=True, slots=True)
class CardAction:
    """A button on a card: its text, and what happens when it is pressed (the card closes)."""

    text: str
    run: Callable[[], object]


@dataclass(frozen=True, slots=True)
class CardText:
    """What happened, why, and what to do next, a sentence each; empty where there is none."""

    what: str
    why: str = ""
    next: str = ""


class Card(QFrame):
    """One card. It closes by its cross or by one of its buttons.

    Signals:
        closed(): the card has done its work.
    """

    closed = Signal()

    def __init__(
        self,
        theme: Theme,
        kind: CardKind,
        text: CardText,
        actions: Sequence[CardAction] = (),
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.setProperty("card", kind)
        self.setAccessibleName(" ".join(filter(None, (text.what, text.why, text.next))))
        self._close = QPushButton(self)
        self._close.setProperty("kind", "quiet")
        self._close.setAccessibleName(self.tr("Close"))
        self._close.setToolTip(self.tr("Close"))
        self._close.setFixedSize(24, 24)
        self._close.setStyleSheet("padding: 0;")
        self._close.clicked.connect(self.closed)
        words = QVBoxLayout()
        words.setSpacing(4)
        for sentence, tone in ((text.what, "strong"), (text.why, "muted"), (text.next, "muted")):
            if sentence:
                words.addWidget(_sentence(sentence, tone))
        if actions:
            words.addSpacing(4)
            words.addLayout(self._buttons(actions))
        row = QHBoxLayout(self)
        row.setContentsMargins(13, 12, 8, 12)
        row.addLayout(words, 1)
        row.addWidget(self._close, 0, Qt.AlignmentFlag.AlignTop)
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        """Take the colours of another theme."""
        self._close.setIcon(icon("close", theme.muted, ICON_PX))

    def _buttons(self, actions: Sequence[CardAction]) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(8)
        for action in actions:
            button = QPushButton(action.text, self)
            button.clicked.connect(lambda _=False, each=action: self._run(each))
            row.addWidget(button)
        row.addStretch(1)
        return row

    def _run(self, action: CardAction) -> None:
        self.closed.emit()
        action.run()


class CardStack(QWidget):
    """The cards in force, at most one a topic: a newer one of the same topic replaces it.

    They stand in the text column of the conversation below them.
    """

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._cards: dict[str, Card] = {}
        self._column = QVBoxLayout(self)
        self._column.setSpacing(8)
        self.hide()

    def show_card(
        self, topic: str, kind: CardKind, text: CardText, actions: Sequence[CardAction] = ()
    ) -> Card:
        """Show a card about `topic`."""
        self.dismiss(topic)
        card = Card(self._theme, kind, text, actions, self)
        card.closed.connect(lambda: self.dismiss(topic))
        self._cards[topic] = card
        self._column.addWidget(card)
        self.show()
        return card

    def dismiss(self, topic: str) -> None:
        """Close the card about `topic`, if there is one."""
        card = self._cards.pop(topic, None)
        if card:
            card.hide()
            card.deleteLater()
        self.setVisible(bool(self._cards))

    def card(self, topic: str) -> Card | None:
        """The card about `topic`, None when there is none."""
        return self._cards.get(topic)

    def set_theme(self, theme: Theme) -> None:
        """Take the colours of another theme."""
        self._theme = theme
        for card in self._cards.values():
            card.set_theme(theme)
        self._place()

    def _place(self) -> None:
        column = Widths(self.width() - SCROLL_BAR_WIDTH, self._theme.scale).column
        right = self.width() - column.right() - 1
        self._column.setContentsMargins(column.left(), 12, right, 8)

    # Qt overrides

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place()


def _sentence(text: str, tone: str) -> QLabel:
    label = QLabel(text)
    label.setProperty("tone", tone)
    label.setWordWrap(True)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return label
