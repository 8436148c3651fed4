"""The roofline in a window of its own, live beside the chats."""

from __future__ import annotations

from PySide6.QtCore import QSize
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QWidget

from app.plot_dialog import PlotDialog
from app.roofline import words
from app.roofline.plot import RooflinePlot
from app.roofline.scene import limits_of
from app.telemetry.step_points import StepPoints
from app.telemetry.telemetry_model import TelemetryModel
from app.theme import Theme
from engine.events import ModelLoaded

SIZE = QSize(800, 600)


class RooflineDialog(PlotDialog):
    """What is seen in words, the plot, the step that is read, and what ran.

    Draws what the model says whenever it has changed and the window can be seen.
    """

    def __init__(self, theme: Theme, model: TelemetryModel, parent: QWidget) -> None:
        self.plot = RooflinePlot(theme)
        super().__init__(theme, self.tr("Roofline"), SIZE, self.plot, parent)
        self._model = model
        self.header.set_title(self.tr("Roofline"))
        self.close_button.setDefault(True)
        self.plot.picked_changed.connect(self._show_reading)
        model.changed.connect(self._on_changed)
        self._hold_room()
        self.refresh()

    def set_theme(self, theme: Theme) -> None:
        super().set_theme(theme)
        self.plot.set_theme(theme)
        self._hold_room()

    def refresh(self) -> None:
        """Draw the steps as the model has them now."""
        loaded = self._model.loaded
        self.offer_copy(loaded is not None and loaded.roofs is not None)
        if loaded is None or loaded.roofs is None:
            self._show_no_roofs(loaded)
        else:
            self._show_steps(loaded)
        self._show_reading()

    # --- showing --------------------------------------------------------------------------

    def _on_changed(self) -> None:
        if self.isVisible():
            self.refresh()

    def _show_no_roofs(self, loaded: ModelLoaded | None) -> None:
        self.headline.setText(words.headline(None, None))
        self.summary.setText("")
        self.source.setText("")
        self.header.set_legend(())
        self.header.set_subtitle("", "")
        why = self.tr("The roofs of this device are not known: it was not measured.")
        if loaded is None:
            why = self.tr("Load a model: this machine's roofs are measured with it, once.")
        self.plot.show_nothing(why)

    def _show_steps(self, loaded: ModelLoaded) -> None:
        assert loaded.roofs is not None
        points = self._model.step_points()
        limits = limits_of(loaded, points)
        selected = points.where(points.is_selected)
        prefill = words.place(selected.where(selected.is_prefill))
        decode = words.place(selected.where(~selected.is_prefill))
        self.headline.setText(words.headline(prefill, decode))
        self.summary.setText(words.shares(prefill, decode) or self._hint(points))
        self.source.setText(f"{words.facts(loaded)}; {words.origin(loaded.roofs)}")
        self.header.set_legend(self.plot.legend())
        self.header.set_subtitle(*words.subtitle(limits.matmul_flops))
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

    def _hold_room(self) -> None:
        """Keep two lines for a step, so that the plot holds still when one is read."""
        self.reading.setMinimumHeight(2 * self.reading.fontMetrics().lineSpacing())

    # Qt overrides

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()
