"""The sizes and speeds a diagnosis calculates with: read once a load, after its first answer."""

from __future__ import annotations

from collections import deque

from PySide6.QtCore import QObject, Signal

from app.engine_link.controller import EngineController
from app.engine_link.worker import EngineProblem
from app.planner.reader import PlanReader
from engine.config import EngineConfig
from engine.planner.plan import Planning


class ModelPlans(QObject):
    """What the loaded model takes and this machine reaches; `close` ends the reading thread.

    Attributes:
        present: with the threads in force. unbound: with those the engine would choose. None:
        not read yet, or it cannot be.

    Signals:
        ready(): what was asked for has been answered.
    """

    ready = Signal()

    def __init__(self, controller: EngineController, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.present: Planning | None = None
        self.unbound: Planning | None = None
        self.is_ready = False
        self._asked: deque[tuple[EngineConfig, int | None]] = deque()
        self._config: EngineConfig | None = None
        self._reader = PlanReader(controller, self)
        self._reader.answered.connect(self._on_answered)

    def ask(self, config: EngineConfig) -> None:
        """Read for this config, unless that was done or is under way; `ready` follows."""
        if config == self._config:
            return
        self.forget()
        self._config = config
        for threads in dict.fromkeys((config.threads, None)):
            self._asked.append((config, threads))
            self._reader.ask(config.model_path, config.device, threads)

    def forget(self) -> None:
        """Another model is being loaded, or this one differently."""
        self.present = self.unbound = self._config = None
        self.is_ready = False

    def close(self) -> None:
        """End the thread."""
        self._reader.close()

    def _on_answered(self, _model: str, answer: Planning | EngineProblem) -> None:
        config, threads = self._asked.popleft()  # answers come in the order of the questions
        if config is not self._config:
            return
        planning = answer if isinstance(answer, Planning) else None
        if threads == config.threads:
            self.present = planning
        if threads is None:
            self.unbound = planning
            self.is_ready = True  # asked last
            self.ready.emit()
