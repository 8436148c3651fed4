"""Play and pause, where it stands, and how fast: the bar below a replayed session."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QSlider, QWidget

from app.chevron_box import ChevronBox
from app.replay.player import SPEEDS, Player
from app.telemetry.labels import ThemedLabel
from app.theme import CONTROL_PX, Theme

STEPS = 10_000  # of the slider
PAGE = STEPS // 20


class Transport(QWidget):
    """Drives a player. Space plays and pauses, arrow keys on the slider move."""

    def __init__(self, theme: Theme, player: Player) -> None:
        super().__init__()
        self._player = player
        self.button = QPushButton()
        self.button.setAutoDefault(False)
        self.button.clicked.connect(self.toggle)
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setRange(0, STEPS)
        self.slider.setSingleStep(STEPS // 100)
        self.slider.setPageStep(PAGE)
        self.slider.setAccessibleName(self.tr("Position"))
        self.slider.valueChanged.connect(self._on_slider)
        self.time = ThemedLabel(theme, CONTROL_PX, "muted")
        self.speed = ChevronBox(theme)
        self.speed.setAccessibleName(self.tr("Speed"))
        self.speed.setToolTip(self.tr("Seconds of the recording a second"))
        for speed in SPEEDS:
            self.speed.addItem(f"{speed:g}×", speed)
        self.speed.setCurrentIndex(SPEEDS.index(player.speed))
        self.speed.currentIndexChanged.connect(lambda i: player.set_speed(SPEEDS[i]))
        row = QHBoxLayout(self)
        row.setContentsMargins(16, 10, 16, 12)
        row.setSpacing(12)
        row.addWidget(self.button)
        row.addWidget(self.slider, 1)
        row.addWidget(self.time)
        row.addWidget(self.speed)
        space = QShortcut(QKeySequence(Qt.Key.Key_Space), self)
        space.setContext(Qt.ShortcutContext.WindowShortcut)
        space.activated.connect(self.toggle)
        player.position_changed.connect(self._show_position)
        player.playing_changed.connect(self._show_playing)
        self.set_theme(theme)
        self._show_position(player.position_ns)
        self._show_playing(player.is_playing)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self.time.set_theme(theme)
        self.speed.set_theme(theme)
        widest = max(self.tr("Play"), self.tr("Pause"), key=len)
        self.button.setFont(theme.font(CONTROL_PX))
        self.button.setMinimumWidth(self.button.fontMetrics().horizontalAdvance(widest) + 40)
        self._hold_time()

    def toggle(self) -> None:
        """Play, or pause."""
        if self._player.is_playing:
            self._player.pause()
        else:
            self._player.play()

    def _on_slider(self, value: int) -> None:
        length = self._player.end_ns - self._player.start_ns
        self._player.seek(self._player.start_ns + length * value // STEPS)

    def _show_position(self, t_ns: int) -> None:
        player = self._player
        length = max(1, player.end_ns - player.start_ns)
        self.slider.blockSignals(True)
        self.slider.setValue((t_ns - player.start_ns) * STEPS // length)
        self.slider.blockSignals(False)
        self.time.setText(_times(t_ns - player.start_ns, length))

    def _show_playing(self, on: bool) -> None:
        self.button.setText(self.tr("Pause") if on else self.tr("Play"))

    def _hold_time(self) -> None:
        """Room for the widest time, so that the slider holds still."""
        length = self._player.end_ns - self._player.start_ns
        widest = _times(length, length)
        self.time.setMinimumWidth(self.time.fontMetrics().horizontalAdvance(widest) + 4)
        self.time.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)


def _times(t_ns: int, length_ns: int) -> str:
    return f"{t_ns / 1e9:.2f} / {length_ns / 1e9:.2f} s"
