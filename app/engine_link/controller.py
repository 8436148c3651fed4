"""The window's side of the thread boundary: what the engine is doing, and orders to it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum

from PySide6.QtCore import QObject, Qt, QThread, Signal, Slot

from app.engine_link.worker import EngineProblem, EngineWorker, SessionFactory
from engine.config import EngineConfig, GenerationRequest, Message
from engine.events import (
    BlockMap,
    Event,
    GenerationFailed,
    GenerationFinished,
    LoadEvent,
    LoadFailed,
    LoadProgress,
    ModelLoaded,
    PrefillProgress,
    StepStats,
    TokenEvent,
)
from engine.planner.plan import Planning
from engine.prediction import ModelSurvey
from engine.session import create_session

log = logging.getLogger("app.engine_link")

SHUTDOWN_MS = 15_000


class EngineState(Enum):
    """What the engine is doing, as the badge and the status bar say it."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    READY = "ready"
    PREFILLING = "prefilling"
    DECODING = "decoding"
    STOPPING = "stopping"
    FAILED = "failed"


class EngineController(QObject):
    """Owns the engine thread and its worker; holds the state machine. GUI thread only.

    Orders go to the worker as queued signals; stopping is a flag set directly, because a queued
    slot would wait behind the step it should stop. Events of requests that are not active any
    more are dropped here. A reload that fails or is stopped brings the previous model back.

    Signals:
        state_changed(EngineState)
        engine_started(): the session exists, questions will be answered quickly.
        events_received(list[Event]): events of active requests, and those of the engine, in order.
        load_started(EngineConfig)
        load_progressed(LoadProgress)
        model_loaded(ModelLoaded)
        load_failed(LoadFailed): told before the previous model is brought back.
        model_unloaded()
        model_inspected(str path, ModelInfo | EngineProblem)
        memory_estimated(EngineConfig, MemoryEstimate | EngineProblem)
        tokens_counted(int ticket, int | EngineProblem)
    """

    state_changed = Signal(object)
    engine_started = Signal()
    events_received = Signal(object)
    load_started = Signal(object)
    load_progressed = Signal(object)
    model_loaded = Signal(object)
    load_failed = Signal(object)
    model_unloaded = Signal()
    model_inspected = Signal(str, object)
    memory_estimated = Signal(object, object)
    tokens_counted = Signal(int, object)

    _load_ordered = Signal(int, object)
    _unload_ordered = Signal()
    _submit_ordered = Signal(object)
    _inspect_ordered = Signal(str)
    _estimate_ordered = Signal(object)
    _count_ordered = Signal(int, object)
    _close_ordered = Signal()

    def __init__(
        self, factory: SessionFactory = create_session, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._state = EngineState.UNLOADED
        self._model: ModelLoaded | None = None
        self._previous: EngineConfig | None = None
        self._loading: EngineConfig | None = None
        self._restoring = False
        self._closed = False
        self._ticket = 0
        self._questions = 0
        self._phases: dict[str, EngineState] = {}
        self._thread = QThread(self)
        self._thread.setObjectName("engine")
        self._worker = EngineWorker(factory)
        self._worker.moveToThread(self._thread)
        self._connect()

    # --- what is --------------------------------------------------------------------------

    @property
    def state(self) -> EngineState:
        """The state of the engine as a whole; of several answers, the newest decides."""
        return self._state

    @property
    def model(self) -> ModelLoaded | None:
        """The loaded model, None while there is none."""
        return self._model

    @property
    def loading(self) -> EngineConfig | None:
        """What is being loaded, None when nothing is."""
        return self._loading

    @property
    def restoring(self) -> bool:
        """Whether the load in progress brings the previous model back."""
        return self._restoring

    @property
    def active_requests(self) -> tuple[str, ...]:
        """Requests that have not ended, oldest first."""
        return tuple(self._phases)

    def phase(self, request_id: str) -> EngineState:
        """PREFILLING, DECODING or STOPPING for an active request, else READY."""
        return self._phases.get(request_id, EngineState.READY)

    # --- orders ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start the engine thread; call once the window is shown."""
        self._thread.start()

    def load(self, config: EngineConfig) -> None:
        """Load a model, the present one dropped; a load under way is stopped first."""
        if self._loading is not None:
            self._worker.stop_loading(self._ticket)
        elif self._model is not None:
            self._previous = self._model.config
        self._begin_load(config, restoring=False)

    def stop_loading(self) -> None:
        """Stop the load under way; the previous model is brought back."""
        if self._loading is not None:
            self._worker.stop_loading(self._ticket)
            self._set_state(EngineState.STOPPING)

    def unload(self) -> None:
        """Drop the model; a load or answers under way end as stopped."""
        self.stop_loading()
        self._ticket += 1  # what a load under way still has to say is stale now
        self._loading, self._restoring, self._previous, self._model = None, False, None, None
        self._set_state(EngineState.UNLOADED)
        self.stop()
        self._unload_ordered.emit()

    def send(self, request: GenerationRequest) -> bool:
        """Submit a request; False when no model is ready for it."""
        if self._model is None or self._loading is not None:
            return False
        self._phases[request.request_id] = EngineState.PREFILLING
        self._submit_ordered.emit(request)
        self._refresh_state()
        return True

    def stop(self, request_id: str | None = None) -> None:
        """Stop one answer, or all."""
        for each in [request_id] if request_id else list(self._phases):
            if each in self._phases:
                self._phases[each] = EngineState.STOPPING
                self._worker.cancel(each)
        self._refresh_state()

    def inspect(self, path: str) -> None:
        """Ask for `model_inspected`."""
        self._inspect_ordered.emit(path)

    def estimate_memory(self, config: EngineConfig) -> None:
        """Ask for `memory_estimated`."""
        self._estimate_ordered.emit(config)

    def survey(self, config: EngineConfig) -> ModelSurvey | EngineProblem:
        """Read a model's headers and wait for it: for background threads only."""
        return self._worker.survey(config)

    def planning(self, model: str, device: str, threads: int | None) -> Planning | EngineProblem:
        """Read what a plan needs and wait for it: for background threads only."""
        return self._worker.planning(model, device, threads)

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Ask for `tokens_counted`; gives the ticket that the answer will carry."""
        self._questions += 1
        self._count_ordered.emit(self._questions, tuple(messages))
        return self._questions

    def shutdown(self, timeout_ms: int = SHUTDOWN_MS) -> bool:
        """Stop everything and end the thread; False when it did not end in time.

        Order: flags, close, quit, wait. The thread is never terminated: a thread that holds a
        lock of the allocator or of CUDA would take the process down with it.
        """
        self._closed = True
        if not self._thread.isRunning():
            return True
        self._worker.stop_loading(self._ticket)
        for request_id in self._phases:
            self._worker.cancel(request_id)
        self._close_ordered.emit()
        if self._thread.wait(timeout_ms):
            return True
        log.warning("the engine thread did not end within %d ms", timeout_ms)
        return False

    # --- slots ----------------------------------------------------------------------------

    @Slot(int, object, bool)
    def _on_load_emitted(self, ticket: int, event: LoadEvent, kept: bool) -> None:
        # Ticket 0: the engine itself could not be started.
        if self._closed or (ticket != self._ticket and ticket != 0):
            return
        if isinstance(event, LoadProgress):
            self.load_progressed.emit(event)
        elif isinstance(event, ModelLoaded):
            self._on_model_loaded(event)
        else:
            self._on_load_failed(event, kept)

    def _on_model_loaded(self, event: ModelLoaded) -> None:
        self._loading, self._restoring = None, False
        self._model = event
        self._previous = event.config
        self._refresh_state()
        self.model_loaded.emit(event)

    def _on_load_failed(self, event: LoadFailed, kept: bool) -> None:
        previous, restoring = self._previous, self._restoring
        self._loading, self._restoring = None, False
        if not kept:
            self._model = None
        if kept or (previous is not None and not restoring):
            self.load_failed.emit(event)
            # A listener may have ordered another load already.
            if not kept and previous is not None and self._loading is None:
                self._begin_load(previous, restoring=True)
            self._refresh_state()
            return
        self._previous = None
        cancelled = event.kind == "cancelled"
        self._set_state(EngineState.UNLOADED if cancelled else EngineState.FAILED)
        self.load_failed.emit(event)

    @Slot()
    def _on_unloaded(self) -> None:
        self.model_unloaded.emit()

    @Slot(object)
    def _on_events_emitted(self, events: list[Event]) -> None:
        fresh = []
        # What the engine still said while it was shut down finds nobody to hear it.
        for event in () if self._closed else events:
            if self._is_fresh(event):
                self._note(event)
                fresh.append(event)
        if fresh:
            self._refresh_state()
            self.events_received.emit(fresh)

    # --- private --------------------------------------------------------------------------

    def _is_fresh(self, event: Event) -> bool:
        if isinstance(event, StepStats | BlockMap):
            return True
        if isinstance(event, LoadProgress | ModelLoaded | LoadFailed):
            return False
        return event.request_id in self._phases

    def _note(self, event: Event) -> None:
        if isinstance(event, GenerationFinished | GenerationFailed):
            self._phases.pop(event.request_id, None)
        elif isinstance(event, PrefillProgress | TokenEvent):
            decoding = isinstance(event, TokenEvent)
            phase = EngineState.DECODING if decoding else EngineState.PREFILLING
            if self._phases.get(event.request_id) in (EngineState.PREFILLING, EngineState.DECODING):
                self._phases[event.request_id] = phase

    def _begin_load(self, config: EngineConfig, *, restoring: bool) -> None:
        self._ticket += 1
        self._loading, self._restoring = config, restoring
        self._set_state(EngineState.LOADING)
        self._load_ordered.emit(self._ticket, config)
        self.load_started.emit(config)

    def _refresh_state(self) -> None:
        if self._loading is not None:
            return
        if self._phases:
            self._set_state(list(self._phases.values())[-1])
        elif self._model is not None:
            self._set_state(EngineState.READY)
        elif self._state is not EngineState.FAILED:
            self._set_state(EngineState.UNLOADED)

    def _set_state(self, state: EngineState) -> None:
        if state is not self._state:
            self._state = state
            self.state_changed.emit(state)

    def _connect(self) -> None:
        worker, thread = self._worker, self._thread
        thread.started.connect(worker.start)
        # Direct: the GUI thread may be waiting in `shutdown`; `quit` may be called anywhere.
        worker.closed.connect(thread.quit, Qt.ConnectionType.DirectConnection)
        thread.finished.connect(worker.deleteLater)
        self._load_ordered.connect(worker.load)
        self._unload_ordered.connect(worker.unload)
        self._submit_ordered.connect(worker.submit)
        self._inspect_ordered.connect(worker.inspect)
        self._estimate_ordered.connect(worker.estimate_memory)
        self._count_ordered.connect(worker.count_tokens)
        self._close_ordered.connect(worker.close)
        worker.started.connect(self.engine_started)
        worker.load_emitted.connect(self._on_load_emitted)
        worker.unloaded.connect(self._on_unloaded)
        worker.events_emitted.connect(self._on_events_emitted)
        worker.inspected.connect(self.model_inspected)
        worker.memory_estimated.connect(self.memory_estimated)
        worker.tokens_counted.connect(self.tokens_counted)
