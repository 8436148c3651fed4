"""Opens the sweep for the loaded model, tells how far it is, and loads what was chosen."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from app.appearance import Appearance
from app.cards import CardStack, CardText
from app.command_job import CommandJob
from app.engine_link.controller import EngineController
from app.model_loading import ModelLoading
from app.race.plans import RacePlans
from app.sweep.dialog import SweepDialog
from app.sweep.sweeping import Sweeping
from engine.config import EngineConfig

CARD = "sweep"


class Sweeps(QObject):
    """Owns the one sweep there is; `job` is what runs commands, and ends them.

    Signals:
        job_changed(str): how far it is; empty when it is over.
    """

    job_changed = Signal(str)

    def __init__(
        self,
        window: QWidget,
        appearance: Appearance,
        cards: CardStack,
        controller: EngineController,
        loading: ModelLoading,
        job: CommandJob,
    ) -> None:
        super().__init__(window)
        self._window, self._appearance, self._cards = window, appearance, cards
        self._controller, self._loading = controller, loading
        self.sweeping = Sweeping(job, self)
        self.sweeping.changed.connect(self._tell_progress)
        self._plans = RacePlans(controller, self)
        self._dialog: SweepDialog | None = None
        self._told = False

    def open(self) -> SweepDialog | None:
        """Offer to measure the loaded model; None without one. A sweep under way is shown."""
        loaded, wanted = self._controller.model, self._loading.wanted
        if self._dialog is None:
            if loaded is None or wanted is None:
                return None
            theme = self._appearance.theme
            self._dialog = SweepDialog(theme, self.sweeping, self._plans, self._window)
            self._appearance.theme_changed.connect(self._dialog.set_theme)
            self._dialog.use_requested.connect(self._use)
        if not self.sweeping.running and loaded is not None and wanted is not None:
            self._dialog.show_model(loaded, wanted)
        self._dialog.show()
        self._dialog.activateWindow()
        return self._dialog

    def show_job(self) -> None:
        """Show the sweep, if one is under way."""
        if self.sweeping.running:
            self.open()

    def close(self) -> None:
        """End the thread; the command is ended by its owner."""
        self._plans.close()

    # --- private --------------------------------------------------------------------------

    def _use(self, config: EngineConfig) -> None:
        if self._controller.active_requests:
            text = CardText(
                self.tr("An answer is under way."),
                self.tr("Loading the model anew would end it."),
                self.tr("Stop it or wait for its end, then choose “Use this” again."),
            )
            self._cards.show_card(CARD, "notice", text)
            return
        self._cards.dismiss(CARD)
        self._loading.load(config)

    def _tell_progress(self) -> None:
        running = self.sweeping.running
        if running:
            share = f"{100 * self.sweeping.share:.0f}"
            self.job_changed.emit(self.tr("Sweep, {0} %").format(share))
        elif self._told:
            self.job_changed.emit("")
        self._told = running
