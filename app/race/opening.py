"""Opens a race for an answer of the open chat, and draws its earlier run into the panels."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from app.appearance import Appearance
from app.cards import CardStack, CardText
from app.conversations import Conversations
from app.diagnosis.diagnoses import AnswerDiagnoses
from app.engine_link.controller import EngineController
from app.model_loading import ModelLoading
from app.race.dialog import RaceDialog
from app.race.plans import RacePlans
from app.race.race import Race
from app.race.runs import AnswerRuns
from app.telemetry.plots import TelemetryPlots
from app.telemetry.telemetry_model import TelemetryModel

CARD = "race"


class Races(QObject):
    """Owns the one race there is; another one takes its place. `close` ends a thread.

    Signals:
        pin_requested(Race): both its runs are to be kept.
    """

    pin_requested = Signal(object)

    def __init__(
        self,
        window: QWidget,
        appearance: Appearance,
        conversations: Conversations,
        controller: EngineController,
        loading: ModelLoading,
        telemetry: TelemetryModel,
        diagnoses: AnswerDiagnoses,
        plots: TelemetryPlots,
        cards: CardStack,
    ) -> None:
        super().__init__(window)
        self._window, self._appearance = window, appearance
        self._conversations, self._controller = conversations, controller
        self._loading, self._telemetry = loading, telemetry
        self._diagnoses, self._plots, self._cards = diagnoses, plots, cards
        self.runs = AnswerRuns(controller, conversations, loading, self)
        self._plans = RacePlans(controller, self)
        self._dialog: RaceDialog | None = None
        telemetry.changed.connect(self._show_ghost)

    def open(self, message_id: str | None = None) -> RaceDialog | None:
        """Offer to race an answer, the newest by default; None where that cannot be."""
        loaded, wanted = self._controller.model, self._loading.wanted
        answer = self._conversations.answer(message_id)
        if loaded is None or wanted is None or answer is None:
            return None
        run = self.runs.run_of(answer.id)
        if run is None or run.wanted.model_path != wanted.model_path:
            self._tell_unknown()
            return None
        if self._dialog is not None:
            self._dialog.close()
        race = Race(self._controller, self._loading, self._telemetry, run)
        theme = self._appearance.theme
        self._dialog = RaceDialog(theme, race, self._plans, loaded, wanted, self._window)
        self._appearance.theme_changed.connect(self._dialog.set_theme)
        self._dialog.finished.connect(self._forget)
        self._dialog.pin.clicked.connect(lambda: self.pin_requested.emit(race))
        self._dialog.show()
        return self._dialog

    def do(self, action: str) -> None:
        """What a button or a menu of an answer says: offer a race, or begin a suggested one."""
        _, message_id, *number = action.split(":")
        dialog = self.open(message_id)
        suggested = self._diagnoses.suggested(message_id, int(number[0])) if number else None
        if dialog is not None and suggested is not None:
            dialog.begin_with(*suggested)

    def close(self) -> None:
        """End the thread."""
        self._plans.close()

    # --- private --------------------------------------------------------------------------

    def _tell_unknown(self) -> None:
        text = CardText(
            self.tr("This answer cannot be raced."),
            self.tr("Its run was in an earlier session, or of another model than the loaded one."),
            self.tr("Regenerate it first."),
        )
        self._cards.show_card(CARD, "notice", text)

    def _show_ghost(self) -> None:
        """The earlier run, as long as the panels show the new one."""
        race = self._dialog.race if self._dialog is not None else None
        trace = race.trace if race is not None else None
        is_shown = trace is not None and self._telemetry.selected is trace
        self._plots.set_ghost(race.earlier if race is not None and is_shown else None)

    def _forget(self) -> None:
        """The panels go back to the open chat."""
        self._dialog = None
        self._telemetry.select(self._conversations.current_request)
