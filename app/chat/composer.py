"""Where the person writes: the draft, how full the context is, Send or Stop."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QMouseEvent, QPainter, QPaintEvent, QPalette, QPen, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from app.chat.bubble_layout import SCROLL_BAR_WIDTH, Widths
from app.chat.context_gauge import ContextGauge
from app.chat.draft_edit import DraftEdit
from app.chat.elided_label import ElidedLabel
from app.chat.styles import button_style, label_style, scroll_bar_style, stop_button_style
from app.theme import CONTROL_PX, CONVERSATION_PX, LABEL_PX, Theme

FRAME_RADIUS = 12
FRAME_PADDING = 12
NARROW_WIDTH = 480


class Composer(QWidget):
    """The draft stays until `clear` is called, so a refused message is not lost.

    Signals:
        send_requested: the text to send; call `clear` once it is accepted.
        stop_requested: the person wants the answer to end.
        draft_changed: the draft; where the person changed it, a moment after.
    """

    send_requested = Signal(str)
    stop_requested = Signal()
    draft_changed = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._generating = False
        self._ready = True
        self._why = ""
        self._edit = DraftEdit()
        self._gauge = ContextGauge(theme)
        self._hint = ElidedLabel()
        self._hint.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self._send = QPushButton(self.tr("Send"))
        self._stop = QPushButton(self.tr("Stop"))
        self._stop.setAccessibleDescription(self.tr("End the answer now; shortcut Esc"))
        self._edit.setAccessibleName(self.tr("Message"))
        self.setCursor(Qt.CursorShape.IBeamCursor)
        for child in (self._gauge, self._hint, self._send, self._stop):
            child.setCursor(Qt.CursorShape.ArrowCursor)
        self._lay_out()
        self._edit.enter_pressed.connect(self._try_to_send)
        self._edit.escape_pressed.connect(self._try_to_stop)
        self._edit.draft_changed.connect(self.draft_changed)
        self._edit.textChanged.connect(self._show_state)
        self._send.clicked.connect(self._try_to_send)
        self._stop.clicked.connect(self._try_to_stop)
        self.setFocusProxy(self._edit)
        self.set_model_name("")
        self.set_theme(theme)
        self._show_state()

    def text(self) -> str:
        """The draft."""
        return self._edit.text()

    def set_text(self, text: str) -> None:
        """Replace the draft, e.g. by the one of another chat."""
        self._edit.set_text(text)
        self.draft_changed.emit(text)
        self._show_state()

    def clear(self) -> None:
        """Empty the draft, because it was sent."""
        self.set_text("")

    def set_generating(self, generating: bool) -> None:
        """Offer Stop instead of Send while an answer is being made."""
        had_focus = self._stop.hasFocus() or self._send.hasFocus()
        self._generating = generating
        self._show_state()
        if had_focus:
            self._edit.setFocus()

    def set_ready(self, ready: bool, why: str) -> None:
        """Whether a message can be sent now; if not, `why` says so beside the button."""
        self._ready, self._why = ready, why
        self._show_state()

    def set_context(
        self, used: int | None, limit: int | None, draft: int = 0, when_full: str = ""
    ) -> None:
        """Show how many tokens of the context are used, and how many the draft would add."""
        self._gauge.set_context(used, limit, draft, when_full)

    def set_model_name(self, name: str) -> None:
        """Say in the empty field whom the message goes to."""
        whom = name or self.tr("the model")
        self._edit.setPlaceholderText(self.tr("Message %1…").replace("%1", whom))

    def set_theme(self, theme: Theme) -> None:
        """Draw with other colours or sizes."""
        self._theme = theme
        self._edit.setFont(theme.font(CONVERSATION_PX))
        palette = self._edit.palette()
        palette.setColor(QPalette.ColorRole.Text, theme.color("text"))
        palette.setColor(QPalette.ColorRole.PlaceholderText, theme.color("muted"))
        self._edit.setPalette(palette)
        self._edit.setStyleSheet(
            "QPlainTextEdit { background: transparent; }" + scroll_bar_style(theme)
        )
        self._edit.fit_height()
        self._gauge.set_theme(theme)
        self._hint.setFont(theme.font(LABEL_PX + 1))
        self._hint.setStyleSheet(label_style(theme.muted))
        self._send.setFont(theme.font(CONTROL_PX))
        self._send.setStyleSheet(button_style(theme))
        self._stop.setFont(theme.font(CONTROL_PX, bold=True))
        self._stop.setStyleSheet(stop_button_style(theme))
        self._place()
        self.update()

    def _lay_out(self) -> None:
        below = QHBoxLayout()
        below.setSpacing(12)
        below.addWidget(self._gauge)
        below.addWidget(self._hint, 1)
        below.addWidget(self._send)
        below.addWidget(self._stop)
        layout = QVBoxLayout(self)
        layout.setSpacing(12)
        layout.addWidget(self._edit)
        layout.addLayout(below)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._place()

    def _place(self) -> None:
        """Keep the frame in the column of the conversation above."""
        column = Widths(self.width() - SCROLL_BAR_WIDTH, self._theme.scale).column
        left, right = column.left(), self.width() - column.right() - 1
        self.setContentsMargins(left, 0, right, 16)
        self._gauge.set_title_shown(self.width() >= NARROW_WIDTH * self._theme.scale)
        layout = self.layout()
        if layout is not None:
            layout.setContentsMargins(FRAME_PADDING, FRAME_PADDING, FRAME_PADDING, FRAME_PADDING)
            layout.activate()

    def _can_send(self) -> bool:
        return self._ready and not self._generating and not self._is_blank()

    def _is_blank(self) -> bool:
        document = self._edit.document()
        # A long draft is read when it is sent, not on each key.
        return document.characterCount() < 1000 and not document.toRawText().strip()

    def _try_to_send(self) -> None:
        text = self.text()
        if self._can_send() and text.strip():
            self.send_requested.emit(text)

    def _try_to_stop(self) -> None:
        if self._generating:
            self.stop_requested.emit()

    def _show_state(self) -> None:
        self._send.setVisible(not self._generating)
        self._stop.setVisible(self._generating)
        self._send.setEnabled(self._can_send())
        hint = self.tr("Esc") if self._generating else "" if self._ready else self._why
        self._hint.set_whole_text(hint)
        # In a narrow window the gauge's bar gives way before the words do.
        self._hint.setMinimumWidth(min(self._hint.sizeHint().width(), self.width() // 5))
        self._send.setToolTip(hint or self.tr("Send the message (Enter)"))

    # Qt overrides

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(self._theme.color("line"), 1))
        painter.setBrush(self._theme.color("surface"))
        frame = QRectF(self.contentsRect()).adjusted(0.5, 0.5, -0.5, -0.5)
        painter.drawRoundedRect(frame, FRAME_RADIUS, FRAME_RADIUS)
        painter.end()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()
        super().resizeEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._edit.setFocus()
