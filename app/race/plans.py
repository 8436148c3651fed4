"""What a race's prediction calculates with: read once for each device and number of threads."""

from __future__ import annotations

from collections import deque

from PySide6.QtCore import QObject, Signal

from app.engine_link.controller import EngineController
from app.engine_link.worker import EngineProblem
from app.planner.reader import PlanReader
from app.race.comparison import Speedup, predicted_speedup
from app.race.runs import AnswerRun
from engine.config import EngineConfig
from engine.planner.plan import Planning

_Key = tuple[str, str, int | None]


class RacePlans(QObject):
    """Reads beside the engine's thread; `close` ends the reading thread.

    Signals:
        ready(): something that was asked for is there.
    """

    ready = Signal()

    def __init__(self, controller: EngineController, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._asked: deque[_Key] = deque()
        self._plans: dict[_Key, Planning | None] = {}
        self._reader = PlanReader(controller, self)
        self._reader.answered.connect(self._on_answered)

    def ask(self, config: EngineConfig) -> None:
        """Read for this config's model, device and threads, unless that was done."""
        key = _key(config)
        if key not in self._plans:
            self._plans[key] = None
            self._asked.append(key)
            self._reader.ask(*key)

    def planning(self, config: EngineConfig) -> Planning | None:
        """What was read for a config's model, device and threads; None while it is not there."""
        return self._plans.get(_key(config))

    def predicted(self, run: AnswerRun, config: EngineConfig) -> Speedup:
        """How many times faster `run` would be as `config`, as far as is known by now."""
        before, after = self._plans.get(_key(run.wanted)), self._plans.get(_key(config))
        if before is None or after is None:
            return Speedup(None, None)
        return predicted_speedup((before, run.wanted), (after, config), run.metrics)

    def close(self) -> None:
        """End the thread."""
        self._reader.close()

    def _on_answered(self, _model: str, answer: Planning | EngineProblem) -> None:
        key = self._asked.popleft()  # answers come in the order of the questions
        if isinstance(answer, Planning):
            self._plans[key] = answer
        self.ready.emit()


def _key(config: EngineConfig) -> _Key:
    return config.model_path, config.device, config.threads
