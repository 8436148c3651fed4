"""Pins what has run, and opens the comparison of what is pinned."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from app import folders
from app.appearance import Appearance
from app.cards import CardAction, CardStack, CardText
from app.conversations import Conversations
from app.race.opening import Races
from app.race.race import Race
from app.race.runs import AnswerRun
from app.run_comparison.dialog import RunsDialog
from app.run_comparison.pinned_run import PinnedRun, PinnedRunStore
from app.run_comparison.pinned_runs import PinnedRuns
from app.telemetry.telemetry_model import TelemetryModel
from engine.events import RequestMetrics

CARD = "pinned"


class RunComparisons(QObject):
    """Owns the pinned runs and the one comparison there is."""

    def __init__(
        self,
        window: QWidget,
        appearance: Appearance,
        cards: CardStack,
        conversations: Conversations,
        telemetry: TelemetryModel,
        races: Races,
        folder: Path | None = None,
    ) -> None:
        super().__init__(window)
        self._window, self._appearance, self._cards = window, appearance, cards
        self._conversations, self._telemetry = conversations, telemetry
        self._races = races
        self.pins = PinnedRuns(PinnedRunStore(folder or folders.pinned_runs_folder()), self)
        self.pins.problem_found.connect(self._tell_problem)
        races.pin_requested.connect(self.pin_race)
        self._dialog: RunsDialog | None = None

    def open(self) -> RunsDialog:
        """Show the comparison, beside which the window goes on."""
        if self._dialog is None:
            self._dialog = RunsDialog(self._appearance.theme, self.pins, self._window)
            self._appearance.theme_changed.connect(self._dialog.set_theme)
            self._dialog.finished.connect(self._forget)
        self._dialog.show()
        self._dialog.activateWindow()
        return self._dialog

    def pin_answer(self, message_id: str | None = None) -> None:
        """Keep the run of an answer of the open chat, the newest by default."""
        answer = self._conversations.answer(message_id)
        run = self._races.runs.run_of(answer.id) if answer is not None else None
        if run is None:
            self._tell_unknown()
            return
        self.pins.pin(self._pinned(run, run.metrics))
        self._tell_pinned(self.tr("The run is pinned."))

    def pin_race(self, race: Race) -> None:
        """Keep both runs of a race that is over."""
        for metrics in filter(None, (race.first.metrics, race.metrics)):
            self.pins.pin(self._pinned(race.first, metrics))
        self._tell_pinned(self.tr("Both runs are pinned."))

    # --- private --------------------------------------------------------------------------

    def _pinned(self, of: AnswerRun, metrics: RequestMetrics) -> PinnedRun:
        """A run of the prompt of `of`."""
        trace = self._telemetry.request(metrics.request_id)
        itl_ms = trace.tokens["itl_ms"].tolist() if trace else ()
        return PinnedRun.of(metrics, of.wanted.model_path, of.prompt_ids, itl_ms)

    def _forget(self) -> None:
        self._dialog = None

    def _tell_pinned(self, what: str) -> None:
        number = len(self.pins.runs)
        why = self.tr("{0} are pinned now.").format(number) if number > 1 else ""
        text = CardText(what, why or self.tr("Pin another one to compare it with."))
        compare = [CardAction(self.tr("Compare runs…"), self.open)] if number > 1 else []
        self._cards.show_card(CARD, "notice", text, compare)

    def _tell_unknown(self) -> None:
        text = CardText(
            self.tr("There is no run to be pinned."),
            self.tr("Only answers given since the program was started can be."),
            self.tr("Regenerate it first."),
        )
        self._cards.show_card(CARD, "notice", text)

    def _tell_problem(self, what: str, why: str) -> None:
        self._cards.show_card(CARD, "error", CardText(what, why))
