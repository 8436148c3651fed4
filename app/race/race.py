"""A race: loads the model with a change and runs an answer's prompt once more."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from PySide6.QtCore import QObject, Signal

from app.engine_link.controller import EngineController
from app.model_loading import ModelLoading
from app.race.runs import AnswerRun
from app.telemetry.request_trace import RequestTrace
from app.telemetry.telemetry_model import TelemetryModel
from engine.config import EngineConfig
from engine.events import (
    Event,
    GenerationFailed,
    GenerationFinished,
    LoadFailed,
    ModelLoaded,
    RequestMetrics,
)


class Stage(Enum):
    """What a race is doing."""

    IDLE = "idle"
    LOADING = "loading"
    RUNNING = "running"
    DONE = "done"


class Race(QObject):
    """Runs `first` again as another config, from an empty cache: the load has just made it.

    A load that fails or is stopped brings the previous model back by itself (the controller); where
    the run itself is refused, it is loaded again from here.

    Attributes:
        first: the earlier run. stage: what is being done. config: with what, as asked for.
        metrics: of the new run once it has ended, also where it was stopped.
        problem: why there is nothing to compare or less than was meant, in words; else empty.
        had_company: whether other requests ran meanwhile, which slows both.

    Signals:
        changed(): something is new.
    """

    changed = Signal()

    def __init__(
        self,
        controller: EngineController,
        loading: ModelLoading,
        telemetry: TelemetryModel,
        first: AnswerRun,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._controller, self._loading, self._telemetry = controller, loading, telemetry
        self.first = first
        self.stage = Stage.IDLE
        self.config: EngineConfig | None = None
        self.metrics: RequestMetrics | None = None
        self.problem = ""
        self.had_company = False
        self._previous: EngineConfig | None = None
        self._running_id = ""
        self._is_stopping = False
        controller.load_started.connect(self._on_load_started)
        controller.model_loaded.connect(self._on_loaded)
        controller.load_failed.connect(self._on_load_failed)
        controller.model_unloaded.connect(self._on_unloaded)
        controller.events_received.connect(self._on_events)

    @property
    def is_running(self) -> bool:
        """Whether it is under way."""
        return self.stage in (Stage.LOADING, Stage.RUNNING)

    @property
    def earlier(self) -> RequestTrace | None:
        """The earlier run as it went."""
        return self._telemetry.request(self.first.metrics.request_id)

    @property
    def trace(self) -> RequestTrace | None:
        """The new run as it goes; None before it begins."""
        return self._telemetry.request(self._running_id)

    @property
    def previous(self) -> EngineConfig | None:
        """What was loaded before the race."""
        return self._previous

    def start(self, config: EngineConfig) -> bool:
        """Load and run; False while answers are under way, which a load would end."""
        if self.is_running or self._controller.active_requests or self._loading.wanted is None:
            return False
        self._previous, self.config = self._loading.wanted, config
        self.metrics, self.problem, self.had_company = None, "", False
        self._running_id, self._is_stopping = "", False
        self.stage = Stage.LOADING
        self._loading.load(config)
        self.changed.emit()
        return True

    def stop(self) -> None:
        """End it where it is: a load is undone, of a run stays what there is."""
        if self.stage is Stage.LOADING:
            self._is_stopping = True
            self._controller.stop_loading()
        elif self.stage is Stage.RUNNING:
            self._controller.stop(self._running_id)

    def go_back(self) -> None:
        """Load what was loaded before."""
        if self._previous is not None and not self.is_running:
            self._loading.load(self._previous)

    # --- what happens ---------------------------------------------------------------------

    def _on_load_started(self, config: EngineConfig) -> None:
        if self.is_running and config != self.config:
            self._end(self.tr("Another model was loaded meanwhile."))

    def _on_loaded(self, loaded: ModelLoaded) -> None:
        if self.stage is not Stage.LOADING:
            return
        request = self.first.request()
        self._running_id, self.stage = request.request_id, Stage.RUNNING
        self._telemetry.request_sent(request.request_id, self._telemetry.now_ns())
        if not self._controller.send(request):
            self._end(self.tr("No model is loaded."))
        self.changed.emit()

    def _on_load_failed(self, failure: LoadFailed) -> None:
        if self.stage is not Stage.LOADING:
            return
        if self._is_stopping or failure.kind == "cancelled":
            self._end(self.tr("Stopped while loading."))
        else:
            self._end(f"{failure.what} {failure.why}".strip())

    def _on_unloaded(self) -> None:
        if self.is_running:
            self._end(self.tr("The model was unloaded."))

    def _on_events(self, events: Sequence[Event]) -> None:
        if self.stage is not Stage.RUNNING:
            return
        mine = [e for e in events if getattr(e, "request_id", "") == self._running_id]
        others = set(self._controller.active_requests) - {self._running_id}
        self.had_company = self.had_company or bool(others)
        for event in mine:
            if isinstance(event, GenerationFailed):
                self._end(f"{event.what} {event.why}".strip())
                self.go_back()
            elif isinstance(event, GenerationFinished):
                self._on_finished(event)
        if mine:
            self.changed.emit()

    def _on_finished(self, event: GenerationFinished) -> None:
        self.metrics = event.metrics
        if event.finish_reason == "context_full":
            self._end(self.tr("The context was full before the end."))
        elif event.finish_reason != "length":
            self._end(self.tr("Stopped before the end."))
        else:
            self._end("")

    def _end(self, problem: str) -> None:
        self.stage, self.problem = Stage.DONE, problem
        self.changed.emit()
