"""The text field of the composer: grows with its text, sends on Enter, stops on Esc."""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import QMimeData, QSignalBlocker, Qt, QTimer, Signal
from PySide6.QtGui import QFontMetricsF, QInputMethodEvent, QKeyEvent, QResizeEvent, QTextCursor
from PySide6.QtWidgets import QFrame, QPlainTextEdit, QSizePolicy, QWidget

MOST_LINES = 8
DRAFT_DELAY_MS = 150
# A line is laid out as a whole, and a megabyte without a space takes minutes: a longer line is
# cut into blocks of this many characters that `text` joins again.
LONGEST_BLOCK = 2000
_JOINED = 1  # user state of a block that continues the line before it


class DraftEdit(QPlainTextEdit):
    """Plain text, 1 to 8 lines high.

    Signals:
        enter_pressed: Enter, outside of an input method's composition.
        escape_pressed: Esc.
        draft_changed: the text, a moment after the person stopped changing it.
    """

    enter_pressed = Signal()
    escape_pressed = Signal()
    draft_changed = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._composing = False
        self._has_joined = False
        self._draft_timer = QTimer(self, singleShot=True, interval=DRAFT_DELAY_MS)
        self._draft_timer.timeout.connect(self._emit_draft)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setTabChangesFocus(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.document().setDocumentMargin(0)
        self.textChanged.connect(self._draft_timer.start)
        self.document().documentLayout().documentSizeChanged.connect(self.fit_height)
        self.fit_height()

    def text(self) -> str:
        """The text as it was typed and pasted."""
        if not self._has_joined:
            return self.document().toRawText().replace("\u2029", "\n")
        parts: list[str] = []
        block = self.document().begin()
        while block.isValid():
            parts.append("" if block.userState() == _JOINED or not parts else "\n")
            parts.append(block.text())
            block = block.next()
        return "".join(parts)

    def set_text(self, text: str) -> None:
        """Put a text in place without reporting it as a change of the person."""
        with QSignalBlocker(self):
            cursor = QTextCursor(self.document())
            cursor.select(QTextCursor.SelectionType.Document)
            self._has_joined = _insert(cursor, text)
        self._draft_timer.stop()
        self.moveCursor(QTextCursor.MoveOperation.End)
        self.fit_height()

    def fit_height(self) -> None:
        """Take the height of the text, at least one line and at most eight."""
        lines = self.document().documentLayout().documentSize().height()  # in lines, not px
        wanted = min(MOST_LINES, max(1, round(lines)))
        self.setFixedHeight(round(wanted * QFontMetricsF(self.font()).lineSpacing()) + 4)
        scrolls = lines > MOST_LINES
        policy = Qt.ScrollBarPolicy
        self.setVerticalScrollBarPolicy(
            policy.ScrollBarAsNeeded if scrolls else policy.ScrollBarAlwaysOff
        )

    def _emit_draft(self) -> None:
        self.draft_changed.emit(self.text())

    # Qt overrides

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.fit_height()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        shift = event.modifiers() & Qt.KeyboardModifier.ShiftModifier
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and not shift:
            if not self._composing:
                self.enter_pressed.emit()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.textCursor().insertBlock()  # Qt's own Shift+Enter is a soft break
            self.ensureCursorVisible()
        elif event.key() == Qt.Key.Key_Escape:
            self.escape_pressed.emit()
        else:
            super().keyPressEvent(event)

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        self._composing = bool(event.preeditString())
        super().inputMethodEvent(event)

    def insertFromMimeData(self, source: QMimeData) -> None:
        if source.hasText():
            self._has_joined |= _insert(self.textCursor(), source.text())
            self.ensureCursorVisible()


def _insert(cursor: QTextCursor, text: str) -> bool:
    """Replace the selection by plain text; True when a line was so long that it was cut."""
    cut = False
    cursor.beginEditBlock()
    cursor.removeSelectedText()
    for number, piece in enumerate(_pieces(text.replace("\r\n", "\n").replace("\r", "\n"))):
        if number:
            cut = True
            cursor.insertBlock()
            cursor.block().setUserState(_JOINED)
        cursor.insertText(piece)
    cursor.endEditBlock()
    return cut


def _pieces(text: str) -> Iterator[str]:
    """Cut `text` so that no line of a piece is longer than a block may be."""
    start = line_start = 0
    while line_start < len(text):
        line_end = text.find("\n", line_start)
        line_end = len(text) if line_end < 0 else line_end
        while line_end - line_start > LONGEST_BLOCK:
            cut = line_start + LONGEST_BLOCK
            yield text[start:cut]
            start = line_start = cut
        line_start = line_end + 1
    if start < len(text) or not text:
        yield text[start:]
