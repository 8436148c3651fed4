"""A recorded session in a window of its own: the answer, the panels, and the bar that plays it."""

from __future__ import annotations

from datetime import datetime

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QDialog, QHBoxLayout, QVBoxLayout, QWidget

from app.replay.player import Player
from app.replay.recording import Recording
from app.replay.transport import Transport
from app.replay.words import AnswerWords
from app.roofline.words import facts
from app.telemetry.block_cells import ChatOfRequest
from app.telemetry.dock import TelemetryPanel
from app.telemetry.labels import ThemedLabel
from app.theme import CONTROL_PX, LABEL_PX, Theme

SIZE = QSize(1080, 780)
MARGIN = 24


class ReplayWindow(QDialog):
    """Plays one recording. Needs neither a model nor the engine."""

    def __init__(
        self, theme: Theme, recording: Recording, name: str, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent, Qt.WindowType.Window)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(self.tr("{0} — replay").format(name))
        self._theme = theme
        self.player = Player(recording, parent=self)
        self.title = ThemedLabel(theme, CONTROL_PX, "text", bold=True)
        self.title.setText(self.tr("Recorded session, not live"))
        self.source = ThemedLabel(theme, LABEL_PX + 0.5, "muted")
        self.source.setWordWrap(True)
        self.source.setText(self._source())
        self.words = AnswerWords(theme, has_text=recording.header.has_text)
        self.panel = TelemetryPanel(theme, self.player.model)
        self.panel.block_map.set_chat_lookup(self._chat_of)
        self.transport = Transport(theme, self.player)
        self.player.restarted.connect(self.words.restart)
        self.player.events_played.connect(self.words.play)
        self.player.jumped.connect(self.panel.plots.redraw)
        self.words.pointed.connect(self._on_word)
        self.panel.tokens_read.connect(self.words.mark)
        self.words.play(self.player.told)
        self._lay_out()
        self.resize(SIZE * theme.scale)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        for part in (self.title, self.source, self.words, self.panel, self.transport):
            part.set_theme(theme)
        self.update()

    def fit_into(self, size: QSize) -> None:
        """Leave a margin of a window of this size."""
        wanted = SIZE * self._theme.scale
        self.resize(wanted.boundedTo(size - QSize(2 * MARGIN, 2 * MARGIN)))

    def _source(self) -> str:
        loaded = self.player.model.loaded
        day = _day(self.player.recording.header.started_at)
        return " · ".join(filter(None, (day, facts(loaded) if loaded else "")))

    def _chat_of(self, request_id: str) -> ChatOfRequest | None:
        # Chats are not recorded: what is shown is the open one, of others nothing is known.
        shown = self.player.model.selected
        if shown is None or shown.request_id != request_id:
            return None
        return ChatOfRequest(self.tr("The answer shown"), True)

    def _on_word(self, row: int | None) -> None:
        if row is None:
            self.panel.plots.read(None)
        else:
            self.panel.plots.read_token(row)

    def _lay_out(self) -> None:
        head = QVBoxLayout()
        head.setContentsMargins(16, 14, 16, 4)
        head.setSpacing(3)
        head.addWidget(self.title)
        head.addWidget(self.source)
        left = QVBoxLayout()
        left.setSpacing(0)
        left.addLayout(head)
        left.addWidget(self.words, 1)
        row = QHBoxLayout()
        row.setSpacing(0)
        row.addLayout(left, 9)
        row.addWidget(self.panel, 11)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(row, 1)
        column.addWidget(self.transport)

    # Qt overrides

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), self._theme.color("window"))


def _day(started_at: str) -> str:
    """The day and the minute here, of an ISO time; empty when it is none."""
    try:
        return datetime.fromisoformat(started_at).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return ""
