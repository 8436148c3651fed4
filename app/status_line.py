"""The status bar: state, device and kernels, memory, recording; drops from the end when narrow."""

from __future__ import annotations

import psutil
from PySide6.QtCore import QSize, QTimer, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QLayout, QPushButton, QSizePolicy, QWidget

from app.engine_link.controller import EngineState
from app.telemetry.format import memory, three_digits
from app.theme import Theme
from engine.events import ModelLoaded

MEMORY_POLL_MS = 2_000
GAP = 20
MARGIN = 14
DOT_GAP = 6


class StatusLine(QWidget):
    """One quiet line of facts. The first ones are the last to go when it gets narrow.

    Signals:
        notice_requested(): the notice was pressed; its whole text is wanted.
        job_requested(): the work in the background was pressed; its dialog is wanted.
    """

    notice_requested = Signal()
    job_requested = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._process = psutil.Process()
        self._kv_used = 0
        self._model: ModelLoaded | None = None
        self.dot = QLabel("●", self)
        self.state = self._label()
        self.device = self._label()
        self.weights = self._label()
        self.kv = self._label()
        self.slowdown = self._label()
        self.notice = QPushButton(self)
        self.notice.setProperty("kind", "status")
        self.notice.clicked.connect(self.notice_requested)
        self.job = QPushButton(self)
        self.job.setProperty("kind", "status")
        self.job.clicked.connect(self.job_requested)
        self.process = self._label()
        self.recording = self._label()
        self.recording.setText(self.tr("Recording metrics"))
        word = QHBoxLayout()
        word.setSpacing(DOT_GAP)
        word.addWidget(self.dot)
        word.addWidget(self.state)
        row = QHBoxLayout(self)
        row.setContentsMargins(MARGIN, 3, MARGIN, 3)
        row.setSizeConstraint(QLayout.SizeConstraint.SetNoConstraint)
        row.setSpacing(GAP)
        row.addLayout(word)
        for each in (self.device, self.slowdown, self.weights, self.kv, self.notice, self.job):
            row.addWidget(each)
        row.addStretch(1)
        row.addWidget(self.process)
        row.addWidget(self.recording)
        self._wanted: dict[QWidget, bool] = {
            self.recording: False,
            self.notice: False,
            self.job: False,
        }
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._poll = QTimer(self, interval=MEMORY_POLL_MS)
        self._poll.timeout.connect(self.refresh_memory)
        self._shown: tuple[EngineState, Theme] | None = None
        self.set_theme(theme)
        self.set_state(EngineState.UNLOADED)
        self.set_model(None)
        self.refresh_memory()

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or text size."""
        self._theme = theme
        self.arrange()

    def set_state(self, state: EngineState) -> None:
        """Say what the engine does, in a word and by the dot's colour."""
        if (state, self._theme) == self._shown:
            return  # asked for with every batch of tokens
        self._shown = (state, self._theme)
        words = {
            EngineState.UNLOADED: (self.tr("No model"), "faint"),
            EngineState.LOADING: (self.tr("Loading"), "kv"),
            EngineState.READY: (self.tr("Ready"), "device"),
            EngineState.PREFILLING: (self.tr("Reading the prompt"), "prefill"),
            EngineState.DECODING: (self.tr("Decoding"), "decode"),
            EngineState.STOPPING: (self.tr("Stopping"), "muted"),
            EngineState.FAILED: (self.tr("Failed"), "stop"),
        }
        word, token = words[state]
        style = f"color: {getattr(self._theme, token)};"
        self.state.setText(word)
        self.dot.setStyleSheet(style)
        self.arrange()

    def set_model(self, model: ModelLoaded | None) -> None:
        """Name the device, the kernels and what the weights take; None: there is no model."""
        self._model = model
        self._kv_used = 0
        if model is None:
            texts = ("", "")
        else:
            one = model.threads == 1
            threads = self.tr("1 thread") if one else self.tr("{0} threads").format(model.threads)
            on_cpu = model.config.device == "cpu"
            parts = [model.device_name, *([threads] if on_cpu else []), model.kernels]
            weights = memory(model.weight_bytes).text
            texts = (" · ".join(parts), self.tr("Weights {0}").format(weights))
        self.device.setText(texts[0])
        self.weights.setText(texts[1])
        self.set_kv_used(0)
        self.arrange()

    def set_kv_used(self, used_bytes: int) -> None:
        """Show what the cache holds of what is reserved."""
        self._kv_used = used_bytes
        if self._model is None:
            self.kv.setText("")
        else:
            reserved = memory(self._model.kv_bytes_reserved)
            scale = 1e9 if reserved.unit == "GB" else 1e6
            used = three_digits(used_bytes / scale)
            text = self.tr("KV {used} / {reserved}")
            self.kv.setText(text.format(used=used, reserved=reserved.text))
        if self.kv.isHidden() or self.kv.sizeHint().width() > self.kv.width():
            self.arrange()

    def set_notice(self, text: str) -> None:
        """Show what the engine wants known, shortened; empty: nothing."""
        self._wanted[self.notice] = bool(text)
        self.notice.setText(text if len(text) <= 48 else text[:47].rstrip() + "…")
        self.notice.setToolTip(text)
        self.arrange()

    def set_slowdown(self, text: str) -> None:
        """Say what holds the machine back; empty: nothing does."""
        self.slowdown.setText(text)
        self.slowdown.setToolTip(self.tr("Figures measured now are below what this machine can do"))
        self.arrange()

    def set_job(self, text: str) -> None:
        """Say what goes on in the background and how far it is; empty: nothing."""
        self._wanted[self.job] = bool(text)
        if text != self.job.text():
            self.job.setText(text)
            self.arrange()

    def set_recording(self, on: bool) -> None:
        """Say that metrics are written as they come."""
        self._wanted[self.recording] = on
        self.arrange()

    def refresh_memory(self) -> None:
        """Read what this process takes of the machine's memory."""
        used = memory(self._process.memory_info().rss).text
        total = memory(psutil.virtual_memory().total).text
        text = self.tr("Process {used} of {total}").format(used=used, total=total)
        if text != self.process.text():
            self.process.setText(text)
            self.arrange()

    def arrange(self) -> None:
        """Show as many facts as fit whole; nothing is cut in the middle."""
        left = self.width() - 2 * MARGIN - self.dot.sizeHint().width() - DOT_GAP
        by_weight = (
            self.state,
            self.job,
            self.notice,
            self.device,
            self.slowdown,
            self.recording,
            self.weights,
            self.kv,
            self.process,
        )
        for each in by_weight:
            left = self._place(each, left)

    def _place(self, widget: QWidget, left: int) -> int:
        text = widget.text() if isinstance(widget, QLabel | QPushButton) else ""
        wanted = self._wanted.get(widget, True) and bool(text)
        need = widget.sizeHint().width() + GAP
        widget.setVisible(wanted and need <= left)
        return left - need if wanted and need <= left else left

    def _label(self) -> QLabel:
        label = QLabel(self)
        label.setProperty("tone", "status")
        return label

    # Qt overrides

    def showEvent(self, event: object) -> None:
        self._poll.start()

    def hideEvent(self, event: object) -> None:
        self._poll.stop()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.arrange()

    def minimumSizeHint(self) -> QSize:
        return QSize(0, self.sizeHint().height())

    def sizeHint(self) -> QSize:
        return QSize(480, self.state.fontMetrics().height() + 12)
