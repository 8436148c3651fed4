"""The roofline in a window of its own, live beside the chats."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QSize
from PySide6.QtGui import QGuiApplication, QPixmap, QShowEvent
from PySide6.QtWidgets import QDialog, QFrame, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.roofline import words
from app.roofline.plot import RooflinePlot
from app.roofline.scene import Limits
from app.telemetry.labels import ThemedLabel
from app.telemetry.plot_header import PlotHeader
from app.telemetry.step_points import StepPoints
from app.telemetry.telemetry_model import TelemetryModel
from app.theme import CONTROL_PX, LABEL_PX, READING_PX, Theme
from engine.events import ModelLoaded

SIZE = QSize(800, 600)
MARGIN = 24
PICTURE_SCALE = 2


class RooflineDialog(QDialog):
    """What is seen in words, the plot, the step that is read, and what ran.

    Draws what the model says whenever it has changed and the window can be seen.
    """

    def __init__(self, theme: Theme, model: TelemetryModel, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(self.tr("Roofline"))
        self._window, self._theme, self._model = parent, theme, model
        self.plot = RooflinePlot(theme)
        self.headline = ThemedLabel(theme, READING_PX, "text", bold=True)
        self.shares = ThemedLabel(theme, CONTROL_PX, "muted")
        self._header = PlotHeader(theme)
        self.reading = ThemedLabel(theme, CONTROL_PX, "text")
        self._ran = ThemedLabel(theme, LABEL_PX + 0.5, "faint")
        self.picture = QFrame()
        self.copy = QPushButton(self.tr("Copy as picture"))
        self._close = QPushButton(self.tr("Close"))
        self._fill_picture()
        self._lay_out()
        self.plot.picked_changed.connect(self._show_reading)
        self.copy.clicked.connect(self._copy_picture)
        self._close.clicked.connect(self.reject)
        model.changed.connect(self._on_changed)
        self.fit_into(parent.size())
        self.refresh()

    def fit_into(self, size: QSize) -> None:
        """Leave a margin of a window of this size; larger text takes more room."""
        wanted = SIZE * self._theme.scale
        self.resize(wanted.boundedTo(size - QSize(2 * MARGIN, 2 * MARGIN)))

    def set_theme(self, theme: Theme) -> None:
        """Draw with other colours or sizes."""
        self._theme = theme
        for part in (self.headline, self.shares, self._header, self.reading, self._ran):
            part.set_theme(theme)
        self.plot.set_theme(theme)
        self.fit_into(self._window.size())
        self._hold_room()

    def refresh(self) -> None:
        """Draw the steps as the model has them now."""
        loaded = self._model.loaded
        self.copy.setText(self.tr("Copy as picture"))
        self.copy.setEnabled(loaded is not None and loaded.roofs is not None)
        if loaded is None or loaded.roofs is None:
            self._show_no_roofs(loaded)
        else:
            self._show_steps(loaded)
        self._show_reading()

    def pixmap(self) -> QPixmap:
        """Words and plot as one picture at twice their size."""
        pixmap = QPixmap(self.picture.size() * PICTURE_SCALE)
        pixmap.setDevicePixelRatio(PICTURE_SCALE)
        pixmap.fill(self._theme.color("surface"))
        self.picture.render(pixmap, QPoint())
        return pixmap

    # --- showing --------------------------------------------------------------------------

    def _on_changed(self) -> None:
        if self.isVisible():
            self.refresh()

    def _show_no_roofs(self, loaded: ModelLoaded | None) -> None:
        self.headline.setText(words.headline(None, None))
        self.shares.setText("")
        self._ran.setText("")
        self._header.set_legend(())
        self._header.set_subtitle("", "")
        why = self.tr("The roofs of this device are not known: it was not measured.")
        if loaded is None:
            why = self.tr("Load a model: this machine's roofs are measured with it, once.")
        self.plot.show_nothing(why)

    def _show_steps(self, loaded: ModelLoaded) -> None:
        assert loaded.roofs is not None
        points = self._model.step_points()
        limits = _limits(loaded, points)
        selected = points.where(points.is_selected)
        prefill = words.place(selected.where(selected.is_prefill))
        decode = words.place(selected.where(~selected.is_prefill))
        self.headline.setText(words.headline(prefill, decode))
        self.shares.setText(words.shares(prefill, decode) or self._hint(points))
        self._ran.setText(f"{words.facts(loaded)}; {words.origin(loaded.roofs)}")
        self._header.set_legend(self.plot.legend())
        self._header.set_subtitle(*words.subtitle(limits.matmul_flops))
        is_live = self._model.phase != "idle"
        self.plot.show_steps(loaded.roofs, limits, points, (prefill, decode), is_live=is_live)

    def _hint(self, points: StepPoints) -> str:
        if len(points):
            return self.tr("This chat has no measured answer yet; the dots are of earlier ones.")
        return self.tr("Send a message: every step of its answer becomes a dot under the roofs.")

    def _show_reading(self) -> None:
        text = ""
        if lines := self.plot.reading:
            text = "\n".join(lines)
        elif self.plot.has_dots:
            text = self.tr("Point at a dot, or go from step to step with the arrow keys.")
        self.reading.setText(text)

    def _copy_picture(self) -> None:
        QGuiApplication.clipboard().setPixmap(self.pixmap())
        self.copy.setText(self.tr("Copied"))

    # --- layout ---------------------------------------------------------------------------

    def _fill_picture(self) -> None:
        """What is copied as one picture."""
        self.picture.setObjectName("roofline")
        self._header.set_title(self.tr("Roofline"))
        for label in (self.headline, self.shares, self.reading, self._ran):
            label.setWordWrap(True)
        column = QVBoxLayout(self.picture)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(4)
        column.addWidget(self.headline)
        column.addWidget(self.shares)
        column.addSpacing(8)
        column.addWidget(self._header)
        column.addWidget(self.plot, 1)
        column.addSpacing(8)
        column.addWidget(self.reading)
        column.addWidget(self._ran)
        self._hold_room()

    def _hold_room(self) -> None:
        """Keep two lines for a step, so that the plot holds still when one is read."""
        self.reading.setMinimumHeight(2 * self.reading.fontMetrics().lineSpacing())

    def _lay_out(self) -> None:
        below = QHBoxLayout()
        below.setSpacing(8)
        below.addStretch(1)
        below.addWidget(self.copy)
        below.addWidget(self._close)
        column = QVBoxLayout(self)
        column.setSizeConstraint(QVBoxLayout.SizeConstraint.SetNoConstraint)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(12)
        column.addWidget(self.picture, 1)
        column.addLayout(below)
        self._close.setDefault(True)

    # Qt overrides

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()


def _limits(loaded: ModelLoaded, points: StepPoints) -> Limits:
    """The roofs for what the newest decode step reads; before there is one, for the weights."""
    assert loaded.roofs is not None
    decode = points.bytes[~points.is_prefill]
    working_set = int(decode[-1]) if len(decode) else loaded.weight_bytes
    return Limits(loaded.roofs.matmul_flops, loaded.roofs.bandwidth_at(working_set), working_set)
