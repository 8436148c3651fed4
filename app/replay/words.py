"""The answer as it had been written by a moment: its words, or a block a token."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QPlainTextEdit

from app.replay.items import RequestSent, Told
from app.theme import CONVERSATION_PX, Theme
from engine.events import GenerationFinished, TokenEvent

BLOCK = "▪ "  # stands for a token whose text was not recorded


class AnswerWords(QPlainTextEdit):
    """The answer to what was sent last; nobody writes here but the player."""

    def __init__(self, theme: Theme, *, has_text: bool) -> None:
        super().__init__()
        self._has_text = has_text
        self._request_id = ""
        self.setReadOnly(True)
        self.setUndoRedoEnabled(False)
        self.setFrameShape(self.Shape.NoFrame)
        self.document().setDocumentMargin(0)
        self.setObjectName("replayWords")
        self.setAccessibleName(self.tr("The answer"))
        self.setPlaceholderText(self.tr("No token yet: first the prompt is read."))
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self.setFont(theme.font(CONVERSATION_PX))
        color = theme.text if self._has_text else theme.decode
        margin = theme.px(16)
        self.setStyleSheet(
            f"#replayWords {{ background: {theme.window}; color: {color};"
            f" padding: {margin}px; border: none; }}"
        )

    def restart(self) -> None:
        """Nothing has happened yet."""
        self._request_id = ""
        self.clear()

    def play(self, events: Sequence[Told]) -> None:
        """Write what these add."""
        parts: list[str] = []
        for told in events:
            match told.item:
                case RequestSent():
                    self._request_id = told.item.request_id
                    parts.clear()
                    self.clear()
                case TokenEvent(request_id=self._request_id, text=text):
                    parts.append(text if self._has_text else BLOCK)
                case GenerationFinished(request_id=self._request_id, text_tail=tail):
                    parts.append(tail)
                case _:
                    continue
        if parts:
            self.moveCursor(QTextCursor.MoveOperation.End)
            self.insertPlainText("".join(parts))
