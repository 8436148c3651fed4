"""Shows how far a model's loading is: stage, bytes, rate, time left, and a way out."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.chat.elided_label import ElidedLabel
from app.chat.styles import button_style, label_style
from app.telemetry.format import about_seconds, memory
from app.theme import CONTROL_PX, LABEL_PX, Theme
from engine.events import LoadProgress

_STEPS = 1000


class LoadingCard(QFrame):
    """A card with a progress bar, and with something to look at until it is full.

    Signals:
        cancel_requested: the person wants the loading to end.
        example_requested: the person wants to see the example recording meanwhile.
    """

    cancel_requested = Signal()
    example_requested = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._model_name = ""
        self._title = ElidedLabel()
        self._detail = ElidedLabel()
        self._bar = QProgressBar(textVisible=False)
        self._bar.setFixedHeight(6)
        self._bar.setRange(0, _STEPS)
        self._bar.setAccessibleName(self.tr("Loading progress"))
        self._cancel = QPushButton(self.tr("Cancel"))
        self._cancel.clicked.connect(self.cancel_requested)
        self._example = QPushButton(self.tr("Meanwhile, watch a recorded answer"))
        self._example.setProperty("kind", "status")
        self._example.setCursor(Qt.CursorShape.PointingHandCursor)
        self._example.clicked.connect(self.example_requested)
        self.setObjectName("loadingCard")
        self.setMaximumWidth(520)
        words = QVBoxLayout()
        words.setSpacing(4)
        words.addWidget(self._title)
        words.addWidget(self._detail)
        top = QHBoxLayout()
        top.setSpacing(16)
        top.addLayout(words, 1)
        top.addWidget(self._cancel)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(16, 12, 16, 16)
        layout.setSpacing(12)
        layout.addLayout(top)
        layout.addWidget(self._bar)
        layout.addWidget(self._example, 0, Qt.AlignmentFlag.AlignLeft)
        self.offer_example(False)
        self.set_theme(theme)
        self.start("")

    def start(self, model_name: str) -> None:
        """Begin anew for a model: nothing is read yet."""
        self._model_name = model_name
        self._cancel.setEnabled(True)
        self.update_progress(LoadProgress("reading", 0, 0, 0.0))

    def offer_example(self, on: bool) -> None:
        """Whether to offer the example recording."""
        self._example.setVisible(on)

    def update_progress(self, progress: LoadProgress) -> None:
        """Show the newest state of the loading."""
        stage = {
            "reading": self.tr("Loading %1"),
            "measuring": self.tr("Measuring this machine for %1"),
            "warming up": self.tr("Warming up %1"),
        }[progress.stage]
        name = self._model_name or self.tr("the model")
        self._title.set_whole_text(stage.replace("%1", name))
        total = progress.total_bytes
        share = min(1.0, progress.done_bytes / total) if total > 0 else 0.0
        self._bar.setValue(round(share * _STEPS))
        self._detail.set_whole_text("   ".join(self._details(progress)))

    def set_cancelling(self) -> None:
        """Say that the wish to cancel was heard and the loading is about to end."""
        self._cancel.setEnabled(False)
        self._detail.set_whole_text(self.tr("Cancelling…"))

    def set_theme(self, theme: Theme) -> None:
        """Draw with other colours or sizes."""
        self._title.setFont(theme.font(CONTROL_PX, bold=True))
        self._title.setStyleSheet(label_style(theme.text))
        self._detail.setFont(theme.font(LABEL_PX + 1))
        self._detail.setStyleSheet(label_style(theme.muted))
        self._cancel.setFont(theme.font(CONTROL_PX))
        self._cancel.setStyleSheet(button_style(theme))
        self.setStyleSheet(
            f"#loadingCard {{ background: {theme.surface}; border: 1px solid {theme.line};"
            " border-radius: 8px; }"
            f"QProgressBar {{ background: {theme.line}; border: none; border-radius: 3px; }}"
            f"QProgressBar::chunk {{ background: {theme.muted}; border-radius: 3px; }}"
        )

    def _details(self, progress: LoadProgress) -> list[str]:
        done, total = progress.done_bytes, progress.total_bytes
        if total <= 0:
            return [self.tr("Reading the file…")]
        read, whole = memory(done), memory(total)
        first = read.value if read.unit == whole.unit else read.text
        details = [self.tr("%1 of %2").replace("%1", first).replace("%2", whole.text)]
        if progress.stage == "reading" and 0 < done < total and progress.elapsed_s > 0:
            rate = done / progress.elapsed_s
            details.append(f"{memory(rate).text}/s")
            left = about_seconds((total - done) / rate)
            details.append(self.tr("%1 left").replace("%1", left))
        return details
