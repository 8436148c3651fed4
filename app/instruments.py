"""What reads the panels' events besides the panels: diagnosis, roofline, race, replay, export."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from app.appearance import Appearance
from app.cache_comparison.opening import CacheComparisons
from app.cards import CardStack
from app.command_job import CommandJob
from app.conversations import Conversations
from app.diagnosis.diagnoses import ACTION, RACE_ACTION, AnswerDiagnoses
from app.engine_link.controller import EngineController
from app.export.opening import SessionExports
from app.model_loading import ModelLoading
from app.race.opening import Races
from app.replay.opening import ReplayLink
from app.roofline.opening import RooflineLink
from app.run_comparison.opening import RunComparisons
from app.sweep.opening import Sweeps
from app.telemetry.dock import TelemetryPanel
from app.telemetry.machine_tip import MachineTip
from app.telemetry_link import TelemetryLink

PIN_ACTION = "pin"


class Instruments(QObject):
    """Owns them for one window; `close` ends their threads.

    Attributes:
        diagnoses, comparisons, replay, exports, roofline, races, pinned, sweeps, machine: one each.
    """

    def __init__(
        self,
        window: QWidget,
        appearance: Appearance,
        cards: CardStack,
        controller: EngineController,
        loading: ModelLoading,
        conversations: Conversations,
        telemetry: TelemetryLink,
        panel: TelemetryPanel,
        job: CommandJob,
    ) -> None:
        super().__init__(window)
        model = telemetry.model
        self.diagnoses = AnswerDiagnoses(controller, conversations, loading, model, self)
        telemetry.sampled.connect(self.diagnoses.handle_sample)
        self.comparisons = CacheComparisons(window, appearance, conversations, controller, model)
        self.replay = ReplayLink(window, appearance, cards, telemetry.session)
        self.machine = MachineTip(panel.plots.utilization.header)
        telemetry.sampled.connect(self.machine.show_sample)
        self.exports = SessionExports(window, cards, conversations, model)
        self.roofline = RooflineLink(window, appearance, model)
        self.races = Races(
            window,
            appearance,
            conversations,
            controller,
            loading,
            model,
            self.diagnoses,
            panel.plots,
            cards,
        )

        self.sweeps = Sweeps(window, appearance, cards, controller, loading, job)
        self.pinned = RunComparisons(window, appearance, cards, conversations, model, self.races)

    def handlers(self) -> Mapping[str, Callable[..., Any]]:
        """What they do for the menus, by action id."""
        return {
            "file.open_recording": self.replay.open,
            "file.save_recording": self.replay.save,
            "file.export_report": self.exports.open_report,
            "file.export_vllm": self.exports.open_vllm_json,
            "chat.compare_cache": self.comparisons.open,
            "chat.race": self.races.open,
            "chat.pin": self.pinned.pin_answer,
            "chat.compare_runs": self.pinned.open,
            "model.sweep": self.sweeps.open,
            "view.roofline": self.roofline.open,
            "help.example": self.replay.play_example,
        }

    def take_action(self, action: str) -> None:
        """A button under an answer; what is not theirs does nothing here."""
        name, _, of = action.partition(":")
        if name == RACE_ACTION:
            self.races.do(action)
        elif name == PIN_ACTION:
            self.pinned.pin_answer(of)
        elif name == ACTION:
            self.diagnoses.apply(action)

    def close(self) -> None:
        """End their threads; a file that is being written is finished."""
        self.exports.close()
        self.diagnoses.close()
        self.races.close()
        self.sweeps.close()
