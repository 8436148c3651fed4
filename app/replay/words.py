"""The answer as it had been written by a moment: its words, or a block a token."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from PySide6.QtCore import QEvent, QPoint, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QMouseEvent, QTextCursor
from PySide6.QtWidgets import QPlainTextEdit, QTextEdit

from app.replay.items import RequestSent, Told
from app.theme import CONVERSATION_PX, Theme
from engine.events import GenerationFinished, TokenEvent

BLOCK = "▪ "  # stands for a token whose text was not recorded
_MARK_ALPHA = 0.3
_FLAGS = Qt.TextInteractionFlag


class AnswerWords(QPlainTextEdit):
    """The answer to what was sent last; nobody writes here but the player.

    The mouse, or the caret where it was moved by keys, points at a token.

    Signals:
        pointed(int | None): at this row of the answer's tokens, or at none.
    """

    pointed = Signal(object)

    def __init__(self, theme: Theme, *, has_text: bool) -> None:
        super().__init__()
        self._has_text = has_text
        self._request_id = ""
        self._starts: list[int] = []  # where each token begins in the document
        self._pointed: int | None = None
        self._marked: list[int] = []
        self.setReadOnly(True)
        self.setTextInteractionFlags(_FLAGS.TextSelectableByMouse | _FLAGS.TextSelectableByKeyboard)
        self.setUndoRedoEnabled(False)
        self.setFrameShape(self.Shape.NoFrame)
        self.setMouseTracking(True)
        self.document().setDocumentMargin(0)
        self.setObjectName("replayWords")
        self.setAccessibleName(self.tr("The answer"))
        self.setPlaceholderText(self.tr("No token yet: first the prompt is read."))
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        self.setFont(theme.font(CONVERSATION_PX))
        color = theme.text if self._has_text else theme.decode
        margin = theme.px(16)
        self.setStyleSheet(
            f"#replayWords {{ background: {theme.window}; color: {color};"
            f" padding: {margin}px; border: none; }}"
        )
        self._show_marks()

    def restart(self) -> None:
        """Nothing has happened yet."""
        self._request_id = ""
        self._empty()

    def play(self, events: Sequence[Told]) -> None:
        """Write what these add."""
        parts: list[str] = []
        end = self._end()
        for told in events:
            match told.item:
                case RequestSent():
                    self._request_id = told.item.request_id
                    self._empty()
                    parts, end = [], 0
                    continue
                case TokenEvent(request_id=self._request_id, text=text):
                    self._starts.append(end)
                    part = _lines(text) if self._has_text else BLOCK
                case GenerationFinished(request_id=self._request_id, text_tail=tail):
                    part = _lines(tail)
                case _:
                    continue
            parts.append(part)
            end += _length(part)
        if parts:
            self._write("".join(parts))

    def mark(self, rows: list[int]) -> None:
        """Let these tokens stand out."""
        if rows != self._marked:
            self._marked = rows
            self._show_marks()

    def token_at(self, place: QPoint) -> int | None:
        """The row of the token under a point of the viewport."""
        cursor = self.cursorForPosition(place)
        after = self.cursorRect(cursor)
        if place.x() < after.left():
            cursor.movePosition(QTextCursor.MoveOperation.Left)
        start = self.cursorRect(cursor)
        on_line = start.top() <= place.y() <= start.bottom() and place.x() >= start.left()
        return self._row_at(cursor.position()) if on_line and not cursor.atBlockEnd() else None

    # --- private --------------------------------------------------------------------------

    def _end(self) -> int:
        return self.document().characterCount() - 1  # Qt counts the end of the last line

    def _empty(self) -> None:
        self._starts.clear()
        self._marked = []
        self.clear()
        self._point(None)

    def _write(self, text: str) -> None:
        """Add to the end and stay there, unless the person reads further up."""
        bar = self.verticalScrollBar()
        at_end = bar.value() == bar.maximum()
        end = QTextCursor(self.document())
        end.movePosition(QTextCursor.MoveOperation.End)
        end.insertText(text)
        if at_end:
            bar.setValue(bar.maximum())

    def _row_at(self, position: int) -> int | None:
        row = bisect_right(self._starts, position) - 1
        return row if row >= 0 else None

    def _point(self, row: int | None) -> None:
        if row != self._pointed:
            self._pointed = row
            self.pointed.emit(row)

    def _show_marks(self) -> None:
        marks = []
        for row in self._marked:
            if row >= len(self._starts):
                continue
            last = row + 1 == len(self._starts)
            mark = QTextEdit.ExtraSelection()
            mark.cursor = QTextCursor(self.document())
            mark.cursor.setPosition(self._starts[row])
            end = self._end() if last else self._starts[row + 1]
            mark.cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
            mark.format.setBackground(self._theme.color("decode", _MARK_ALPHA))
            marks.append(mark)
        self.setExtraSelections(marks)

    # Qt overrides

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        super().mouseMoveEvent(event)
        if not event.buttons():
            self._point(self.token_at(event.position().toPoint()))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        before = self.textCursor().position()
        super().keyPressEvent(event)
        if self.textCursor().position() != before:
            self._point(self._row_at(self.textCursor().position()))

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self._point(None)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self._point(None)


def _lines(text: str) -> str:
    """Line ends as the document counts them: one character each."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _length(text: str) -> int:
    """As Qt counts: in UTF-16 units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
