"""The engine's side of the thread boundary: one session, driven one step per event-loop turn."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.engine_link.token_batcher import TokenBatcher, batch_interval_ns
from engine.config import EngineConfig, GenerationRequest, MemoryEstimate, Message
from engine.events import (
    Event,
    GenerationFailed,
    GenerationFinished,
    LoadEvent,
    LoadFailed,
    LoadProgress,
    ModelLoaded,
)
from engine.planner.plan import Planning
from engine.prediction import ModelSurvey
from engine.session import EngineError, Session

log = logging.getLogger("app.engine_link")

SessionFactory = Callable[[], Session]
# A cancelled request ends within a layer; the bound only guards against an engine that hangs on.
MAX_DRAIN_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class EngineProblem:
    """An expected failure of a question (inspect, estimate, count): what, why, what next."""

    what: str
    why: str
    next: str


class EngineWorker(QObject):
    """Owns the session and lives in the engine thread; knows nothing of widgets or models.

    Everything here runs in that thread except `cancel` and `stop_loading`, which set flags, and
    `survey`: those may be called from any thread. Loads and counts carry the ticket they were
    ordered with.

    Signals:
        started(): the session exists.
        events_emitted(list[Event]): generation events, batched, in order, none dropped.
        load_emitted(int ticket, LoadEvent, bool kept): progress or the end of a load; `kept`
            when a failed load left the present model as it was.
        unloaded(): the model is gone.
        inspected(str path, ModelInfo | EngineProblem)
        memory_estimated(EngineConfig, MemoryEstimate | EngineProblem)
        tokens_counted(int ticket, int | EngineProblem)
        closed(): the session is closed; the thread may quit.
    """

    started = Signal()
    # `object`, not `list`: a list would be converted to a QVariantList and back, item by item.
    events_emitted = Signal(object)
    load_emitted = Signal(int, object, bool)
    unloaded = Signal()
    inspected = Signal(str, object)
    memory_estimated = Signal(object, object)
    tokens_counted = Signal(int, object)
    closed = Signal()

    def __init__(self, factory: SessionFactory) -> None:
        super().__init__()
        self._factory = factory
        self._session: Session | None = None
        self._has_model = False
        self._unfinished: set[str] = set()
        self._load: Iterator[LoadEvent] | None = None
        self._load_ticket = 0
        self._stopped_ticket = 0
        self._batcher = TokenBatcher()
        self._turn: QTimer | None = None

    # --- flags, from any thread -----------------------------------------------------------

    def cancel(self, request_id: str) -> None:
        """Stop one request, submitted or not yet."""
        if self._session:
            self._session.cancel(request_id)

    def stop_loading(self, ticket: int) -> None:
        """Stop the load with this ticket and all before it, running or still to come."""
        self._stopped_ticket = max(self._stopped_ticket, ticket)
        if self._session and self._load is not None and self._load_ticket <= ticket:
            self._session.stop_loading()

    def survey(self, config: EngineConfig) -> ModelSurvey | EngineProblem:
        """Read a model's headers in the calling thread, beside whatever the session does."""
        answer = self._ask(lambda session: session.survey(config))
        assert isinstance(answer, ModelSurvey | EngineProblem)
        return answer

    def planning(self, model: str, device: str, threads: int | None) -> Planning | EngineProblem:
        """Read what a plan needs in the calling thread, beside whatever the session does."""
        answer = self._ask(lambda session: session.planning(model, device, threads))
        assert isinstance(answer, Planning | EngineProblem)
        return answer

    # --- slots ----------------------------------------------------------------------------

    @Slot()
    def start(self) -> None:
        """Create the session: this is where torch is imported."""
        # Made here so that it belongs to this thread; interval 0 runs once per loop turn.
        self._turn = QTimer(self)
        self._turn.setInterval(0)
        self._turn.timeout.connect(self._take_turn)
        try:
            self._session = self._factory()
        except Exception as error:
            log.exception("the engine could not be started")
            failure = _load_failure("The engine could not be started.", error)
            self.load_emitted.emit(0, failure, False)
            return
        self.started.emit()

    @Slot(int, object)
    def load(self, ticket: int, config: EngineConfig) -> None:
        """Begin to load; requests still running are finished as cancelled first.

        While a model is loaded, the new one is looked at before the present one is dropped: a
        broken file or one too large leaves everything as it was.
        """
        session = self._session
        if session is None:
            self._end_load(ticket, _load_failure("The model could not be loaded.", _not_running()))
            return
        self._abandon_load(session)
        refusal = self._refusal(ticket, config)
        if refusal:
            self._end_load(ticket, refusal, kept=self._has_model)
            return
        self._drain(session)
        self._has_model = False
        self._load_ticket = ticket
        try:
            self._load = session.load(config)
        except Exception as error:
            log.exception("loading failed")
            self._end_load(ticket, _load_failure("The model could not be loaded.", error))
            return
        self._wake()

    @Slot()
    def unload(self) -> None:
        """Drop the model, requests in flight first."""
        if self._session:
            self._abandon_load(self._session)
            self._drain(self._session)
            self._session.unload()
            self._has_model = False
            self.unloaded.emit()

    @Slot(object)
    def submit(self, request: GenerationRequest) -> None:
        """Hand a request to the session; whatever goes wrong comes back as an event."""
        self._unfinished.add(request.request_id)
        try:
            if self._session is None:
                raise _not_running()
            self._session.submit(request)
        except EngineError as error:
            self._fail([request.request_id], EngineProblem(error.what, error.why, error.next_step))
        except Exception as error:
            log.exception("submit failed")
            self._fail([request.request_id], _internal(error))
        self._wake()

    @Slot(str)
    def inspect(self, path: str) -> None:
        """Answer with `inspected`."""
        self.inspected.emit(path, self._ask(lambda session: session.inspect(path)))

    @Slot(object)
    def estimate_memory(self, config: EngineConfig) -> None:
        """Answer with `memory_estimated`."""
        answer = self._ask(lambda session: session.estimate_memory(config))
        self.memory_estimated.emit(config, answer)

    @Slot(int, object)
    def count_tokens(self, ticket: int, messages: tuple[Message, ...]) -> None:
        """Answer with `tokens_counted`."""
        self.tokens_counted.emit(ticket, self._ask(lambda s: s.count_tokens(messages)))

    @Slot()
    def close(self) -> None:
        """Close the session and say so; the controller has set the stop flags before."""
        if self._turn:
            self._turn.stop()
        if self._session:
            try:
                self._abandon_load(self._session)
                self._session.close()
            except Exception:
                log.exception("the session did not close cleanly")
        self._session = None
        self.closed.emit()

    # --- one turn -------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._turn and not self._turn.isActive():
            self._turn.start()

    @Slot()
    def _take_turn(self) -> None:
        session = self._session
        if session is None:
            return
        if self._load is not None:
            self._continue_load(session, self._load)
        elif session.has_work():
            self._step(session)
        elif self._turn:
            self._flush()
            self._turn.stop()

    def _continue_load(self, session: Session, load: Iterator[LoadEvent]) -> None:
        # The flag may have been set before the session began to listen to it.
        if self._load_ticket <= self._stopped_ticket:
            session.stop_loading()
        try:
            event = next(load)
        except EngineError as error:
            event = LoadFailed("bad_file", error.what, error.why, error.next_step)
        except Exception as error:
            log.exception("loading failed")
            event = _load_failure("The model could not be loaded.", error)
        if isinstance(event, LoadProgress):
            self.load_emitted.emit(self._load_ticket, event, False)
        else:
            self._load = None
            self._has_model = isinstance(event, ModelLoaded)
            if isinstance(event, ModelLoaded):
                self._batcher.interval_ns = batch_interval_ns(event, os.cpu_count() or 1)
            self._end_load(self._load_ticket, event)

    def _refusal(self, ticket: int, config: EngineConfig) -> LoadFailed | None:
        """Why not to begin this load, as far as headers and free memory tell."""
        if ticket <= self._stopped_ticket:
            return LoadFailed("cancelled", "Loading was stopped.", "You stopped it.", "")
        if not self._has_model:
            return None
        answer = self._ask(lambda session: session.estimate_memory(config))
        if isinstance(answer, EngineProblem):
            return LoadFailed("bad_file", answer.what, answer.why, answer.next)
        assert isinstance(answer, MemoryEstimate)
        return None if answer.fits else _does_not_fit(answer)

    def _abandon_load(self, session: Session) -> None:
        """End a load under way for another order's sake; nobody waits for its last word."""
        load, self._load = self._load, None
        if load is None:
            return
        session.stop_loading()
        try:
            for event in load:
                log.debug("load abandoned: %s", event)
        except Exception:
            log.exception("an abandoned load failed")

    def _end_load(self, ticket: int, event: LoadEvent, *, kept: bool = False) -> None:
        self.load_emitted.emit(ticket, event, kept)

    def _step(self, session: Session) -> None:
        if self._batcher.due_before_step():
            self._flush()
        began_ns = time.perf_counter_ns()
        try:
            events = session.step()
        except Exception as error:
            log.exception("an engine step failed")
            self._stop_after_bad_step(session, error)
            return
        for event in events:
            if isinstance(event, GenerationFinished | GenerationFailed):
                self._unfinished.discard(event.request_id)
        if self._batcher.add(events, time.perf_counter_ns() - began_ns):
            self._flush()

    def _flush(self) -> None:
        batch = self._batcher.take()
        if batch:
            self.events_emitted.emit(batch)

    def _drain(self, session: Session) -> None:
        """Cancel what runs and step until it has ended, so that its partial answer is kept."""
        for request_id in self._unfinished:
            session.cancel(request_id)
        for _ in range(MAX_DRAIN_STEPS):
            if not self._unfinished or not session.has_work():
                break
            self._step(session)
        self._flush()
        left = sorted(self._unfinished)
        self._fail(left, EngineProblem("The answer was stopped.", "Its model was dropped.", ""))

    def _stop_after_bad_step(self, session: Session, error: Exception) -> None:
        failed = sorted(self._unfinished)
        for request_id in failed:
            session.cancel(request_id)
        self._fail(failed, _internal(error))
        # A step that raises would raise at every turn: rest until the next request.
        if self._turn:
            self._turn.stop()

    def _fail(self, request_ids: list[str], problem: EngineProblem) -> None:
        now_ns = time.perf_counter_ns()
        events: list[Event] = [
            GenerationFailed(each, now_ns, problem.what, problem.why, problem.next)
            for each in request_ids
        ]
        self._unfinished.difference_update(request_ids)
        self._batcher.add(events, 0)
        self._flush()

    def _ask(self, question: Callable[[Session], object]) -> object:
        try:
            if self._session is None:
                raise _not_running()
            return question(self._session)
        except EngineError as error:
            return EngineProblem(error.what, error.why, error.next_step)
        except Exception as error:
            log.exception("the engine could not answer")
            return _internal(error)


def _not_running() -> EngineError:
    return EngineError(
        "The engine is not running.", "It could not be started.", "See the log, then start again."
    )


def _internal(error: Exception) -> EngineProblem:
    return EngineProblem(
        "Something went wrong inside the engine.",
        f"{type(error).__name__}: {error}",
        "The details are in the log. Try again, or load the model anew.",
    )


def _load_failure(what: str, error: Exception) -> LoadFailed:
    return LoadFailed("internal", what, f"{type(error).__name__}: {error}", "See the log.")


def _does_not_fit(estimate: MemoryEstimate) -> LoadFailed:
    def gigabytes(number: int) -> str:
        return f"{number / 1e9:.2f}"

    there = estimate.available_bytes + estimate.freed_by_unload_bytes
    return LoadFailed(
        "memory",
        "This does not fit in memory.",
        f"It takes {gigabytes(estimate.required_bytes)} GB (weights "
        f"{gigabytes(estimate.weight_bytes)}, KV cache {gigabytes(estimate.kv_bytes)}, workspace "
        f"{gigabytes(estimate.workspace_bytes)}); {gigabytes(there)} GB are there once the "
        "present model is dropped.",
        "The present model is still loaded. Choose what fits.",
        estimate,
    )
