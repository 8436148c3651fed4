"""Controller and worker over the thread boundary, with a fake session behind them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from PySide6.QtCore import QObject, Signal
from pytestqt.qtbot import QtBot

from app.engine_link.controller import EngineController, EngineState
from app.engine_link.worker import EngineProblem
from engine.config import EngineConfig, GenerationRequest, MemoryEstimate, Message, ModelInfo
from engine.events import (
    Event,
    GenerationFailed,
    GenerationFinished,
    LoadFailed,
    TokenEvent,
)
from engine.session import EngineError
from tests.fakes.fake_session import FakeSession, Script

CONFIG = EngineConfig(model_path="SmolLM2-135M-Instruct.gguf")
Start = Callable[[FakeSession], EngineController]


@pytest.fixture
def start(qapp: QObject) -> Iterator[Start]:
    """Start a controller over a session; it is shut down at the end of the test."""
    controllers: list[EngineController] = []

    def begin(session: FakeSession) -> EngineController:
        controller = EngineController(lambda: session)
        controllers.append(controller)
        controller.start()
        return controller

    yield begin
    for controller in controllers:
        assert controller.shutdown()


def load(qtbot: QtBot, controller: EngineController, config: EngineConfig = CONFIG) -> None:
    with qtbot.waitSignal(controller.model_loaded):
        controller.load(config)


def chat(text: str = "Why?", request_id: str = "r1") -> GenerationRequest:
    return GenerationRequest(request_id, messages=(Message("user", text),))


def collect(controller: EngineController) -> list[Event]:
    events: list[Event] = []
    controller.events_received.connect(events.extend)
    return events


def test_answer_arrives_complete(qtbot: QtBot, start: Start) -> None:
    """A request passes PREFILLING and DECODING and every token reaches the window in order."""
    session = FakeSession()
    controller = start(session)
    load(qtbot, controller)
    events = collect(controller)
    states: list[EngineState] = []
    controller.state_changed.connect(states.append)
    assert controller.send(chat())
    qtbot.waitUntil(lambda: controller.state is EngineState.READY)
    text = "".join(e.text for e in events if isinstance(e, TokenEvent))
    assert text == session.script.answer
    assert isinstance(
        next(e for e in reversed(events) if hasattr(e, "metrics")), GenerationFinished
    )
    assert states[0] is EngineState.PREFILLING
    assert threading.get_ident() not in session.thread_ids


def test_load_reports_progress(qtbot: QtBot, start: Start) -> None:
    """Loading is told from the first byte to the loaded model."""
    controller = start(FakeSession())
    seen: list[float] = []
    controller.load_progressed.connect(lambda p: seen.append(p.done_bytes / p.total_bytes))
    load(qtbot, controller)
    assert seen[0] == 0.0
    assert seen[-1] == 1.0
    assert controller.model is not None
    assert controller.model.model.name == "SmolLM2-135M-Instruct"


def test_stop_ends_an_answer_and_the_next_send_works(qtbot: QtBot, start: Start) -> None:
    """Stop is a flag: it works while the worker is busy, keeps the text and frees the way."""
    session = FakeSession(Script(hold_decode_at=5))
    controller = start(session)
    load(qtbot, controller)
    events = collect(controller)
    controller.send(chat())
    qtbot.waitUntil(lambda: sum(isinstance(e, TokenEvent) for e in events) == 5)
    controller.stop("r1")
    assert controller.state is EngineState.STOPPING
    qtbot.waitUntil(lambda: controller.state is EngineState.READY)
    finished = [e for e in events if isinstance(e, GenerationFinished)]
    assert [e.finish_reason for e in finished] == ["cancelled"]
    session.release()
    assert controller.send(chat(request_id="r2"))
    qtbot.waitUntil(lambda: controller.state is EngineState.READY)
    assert [e.finish_reason for e in events if isinstance(e, GenerationFinished)][-1] == "stop"


def test_stop_right_after_send(qtbot: QtBot, start: Start) -> None:
    """A stop that overtakes its own submit counts too."""
    controller = start(FakeSession(Script(hold_prefill_at=0.0)))
    load(qtbot, controller)
    events = collect(controller)
    controller.send(chat())
    controller.stop()
    qtbot.waitUntil(lambda: controller.state is EngineState.READY)
    assert not any(isinstance(e, TokenEvent) for e in events)


def test_two_answers_at_once(qtbot: QtBot, start: Start) -> None:
    """A second request is accepted while the first runs; both end, with their own texts."""
    session = FakeSession(Script(hold_decode_at=3))
    controller = start(session)
    load(qtbot, controller)
    events = collect(controller)
    controller.send(chat(request_id="a"))
    controller.send(chat(request_id="b"))
    qtbot.waitUntil(
        lambda: {e.request_id for e in events if isinstance(e, TokenEvent)} == {"a", "b"}
    )
    assert controller.active_requests == ("a", "b")
    session.release()
    qtbot.waitUntil(lambda: not controller.active_requests)


def test_send_is_refused_without_a_model(qtbot: QtBot, start: Start) -> None:
    """Nothing is submitted while no model is there, so that the draft can stay."""
    session = FakeSession()
    controller = start(session)
    assert not controller.send(chat())
    assert session.requests == []


def test_stale_events_are_ignored(qtbot: QtBot, start: Start) -> None:
    """Events of a request the controller does not know do not reach the window."""
    controller = start(FakeSession())
    load(qtbot, controller)
    events = collect(controller)
    stale: Event = TokenEvent("gone", 1, 0, 1, "x", 0, 0, None, 1, 0, 0)
    controller._worker.events_emitted.emit([stale])
    controller.send(chat())
    qtbot.waitUntil(lambda: controller.state is EngineState.READY)
    assert stale not in events


def test_stopped_load_leaves_no_model(qtbot: QtBot, start: Start) -> None:
    """A first load that is stopped ends UNLOADED, quickly."""
    controller = start(FakeSession(Script(hold_load_at=0.4)))
    with qtbot.waitSignal(controller.load_progressed):
        controller.load(CONFIG)
    with qtbot.waitSignal(controller.load_failed) as failed:
        controller.stop_loading()
    assert failed.args[0].kind == "cancelled"
    assert controller.state is EngineState.UNLOADED


def test_stop_before_the_load_began(qtbot: QtBot, start: Start) -> None:
    """A stop right after the order is not lost, whether the worker has taken it up or not."""
    session = FakeSession(Script(hold_load_at=0.5))
    controller = start(session)
    with qtbot.waitSignal(controller.load_failed) as failed:
        controller.load(CONFIG)
        controller.stop_loading()
    assert failed.args[0].kind == "cancelled"


def test_stopped_reload_brings_the_model_back(qtbot: QtBot, start: Start) -> None:
    """Who stops a change of format sits in front of the model as it was."""
    session = FakeSession()
    controller = start(session)
    load(qtbot, controller)
    before = controller.model
    assert before is not None
    session.script.hold_load_at = 0.3
    with qtbot.waitSignal(controller.load_progressed):
        controller.load(EngineConfig(CONFIG.model_path, weight_format="int8"))
    with qtbot.waitSignals([controller.load_failed, controller.model_loaded]):
        controller.stop_loading()
        session.release()
    assert controller.model is not None
    assert controller.model.config == before.config
    assert controller.state is EngineState.READY


def test_refused_reload_keeps_the_model_loaded(qtbot: QtBot, start: Start) -> None:
    """A broken file or one too large is refused before the present model is dropped."""
    error = EngineError("This is no model.", "It is a picture.", "Choose another file.")
    session = FakeSession(Script(bad_paths={"broken.gguf": error}))
    controller = start(session)
    load(qtbot, controller)
    with qtbot.waitSignal(controller.load_failed) as failed:
        controller.load(EngineConfig("broken.gguf"))
    assert failed.args[0].what == "This is no model."
    session.script.available_bytes = 0
    with qtbot.waitSignal(controller.load_failed) as failed:
        controller.load(EngineConfig(CONFIG.model_path, weight_format="fp32"))
    assert failed.args[0].kind == "memory"
    assert failed.args[0].estimate.fitting_contexts == ()
    assert len(session.loads) == 1
    assert controller.state is EngineState.READY


def test_failed_reload_brings_the_model_back(qtbot: QtBot, start: Start) -> None:
    """A load that fails half way does not leave the person without a model."""
    session = FakeSession()
    controller = start(session)
    load(qtbot, controller)
    session.script.load_failure = LoadFailed("internal", "It broke.", "", "")

    def mend(_: LoadFailed) -> None:
        session.script.load_failure = None

    controller.load_failed.connect(mend)
    with qtbot.waitSignals([controller.load_failed, controller.model_loaded]):
        controller.load(EngineConfig(CONFIG.model_path, weight_format="bf16"))
    assert controller.model is not None
    assert controller.model.config.weight_format == "as-stored"


def test_reload_ends_answers_with_their_text(qtbot: QtBot, start: Start) -> None:
    """Changing a format mid-answer stops the answer properly instead of losing it."""
    session = FakeSession(Script(hold_decode_at=4))
    controller = start(session)
    load(qtbot, controller)
    events = collect(controller)
    controller.send(chat())
    qtbot.waitUntil(lambda: sum(isinstance(e, TokenEvent) for e in events) == 4)
    load(qtbot, controller, EngineConfig(CONFIG.model_path, weight_format="int8"))
    finished = next(e for e in events if isinstance(e, GenerationFinished))
    assert finished.finish_reason == "cancelled"
    assert len(finished.token_ids) == 4


def test_a_newer_load_replaces_one_under_way(qtbot: QtBot, start: Start) -> None:
    """Choosing another model while one loads leads to the other, without an error shown."""
    session = FakeSession(Script(hold_load_at=0.5))
    controller = start(session)
    failures: list[LoadFailed] = []
    controller.load_failed.connect(failures.append)
    with qtbot.waitSignal(controller.load_progressed):
        controller.load(CONFIG)
    session.release()
    load(qtbot, controller, EngineConfig("Other.gguf"))
    assert controller.model is not None
    assert controller.model.model.name == "Other"
    assert failures == []


def test_unload_in_every_state(qtbot: QtBot, start: Start) -> None:
    """Unload drops a loaded model and also one that is still loading."""
    session = FakeSession()
    controller = start(session)
    load(qtbot, controller)
    with qtbot.waitSignal(controller.model_unloaded):
        controller.unload()
    assert controller.state is EngineState.UNLOADED
    session.script.hold_load_at = 0.5
    with qtbot.waitSignal(controller.load_progressed):
        controller.load(CONFIG)
    with qtbot.waitSignal(controller.model_unloaded):
        controller.unload()
    assert controller.state is EngineState.UNLOADED
    assert controller.model is None


def test_exceptions_become_events(qtbot: QtBot, start: Start, expected_log: list[str]) -> None:
    """A fault inside the engine is told in the chat and the next answer works."""
    expected_log += ["an engine step failed", "loading failed"]
    session = FakeSession()
    controller = start(session)
    load(qtbot, controller)
    events = collect(controller)
    session.script.raise_in_step = RuntimeError("boom")
    controller.send(chat())
    qtbot.waitUntil(lambda: any(isinstance(e, GenerationFailed) for e in events))
    assert controller.state is EngineState.READY
    session.script.raise_in_step = None
    controller.send(chat(request_id="r2"))
    qtbot.waitUntil(lambda: any(isinstance(e, GenerationFinished) for e in events))
    session.script.raise_in_load = RuntimeError("boom")
    controller.unload()
    with qtbot.waitSignal(controller.load_failed) as failed:
        controller.load(CONFIG)
    assert failed.args[0].kind == "internal"
    assert controller.state is EngineState.FAILED


def test_engine_that_cannot_start(qtbot: QtBot, qapp: QObject, expected_log: list[str]) -> None:
    """A missing library in the engine is an error card, not a dead window."""
    expected_log.append("the engine could not be started")

    def broken() -> FakeSession:
        raise ImportError("no module named torch")

    controller = EngineController(broken)
    with qtbot.waitSignal(controller.load_failed) as failed:
        controller.start()
    assert "torch" in failed.args[0].why
    with qtbot.waitSignal(controller.load_failed):
        controller.load(CONFIG)
    assert controller.state is EngineState.FAILED
    assert controller.shutdown()


def test_questions_are_answered(qtbot: QtBot, start: Start) -> None:
    """inspect, estimate_memory and count_tokens answer, expected failures included."""
    error = EngineError("No such file.", "It is gone.", "Choose another.")
    controller = start(FakeSession(Script(bad_paths={"gone.gguf": error})))
    with qtbot.waitSignal(controller.model_inspected) as answer:
        controller.inspect("SmolLM2.gguf")
    assert isinstance(answer.args[1], ModelInfo)
    with qtbot.waitSignal(controller.model_inspected) as answer:
        controller.inspect("gone.gguf")
    assert answer.args == [
        "gone.gguf",
        EngineProblem("No such file.", "It is gone.", "Choose another."),
    ]
    with qtbot.waitSignal(controller.memory_estimated) as answer:
        controller.estimate_memory(CONFIG)
    assert isinstance(answer.args[1], MemoryEstimate)
    with qtbot.waitSignal(controller.tokens_counted) as answer:
        ticket = controller.count_tokens([Message("user", "one two")])
    assert answer.args == [ticket, 10]


@pytest.mark.parametrize("point", ["load", "prefill", "decode"])
def test_shutdown_in_the_middle(qtbot: QtBot, qapp: QObject, point: str) -> None:
    """Closing mid-load, mid-prefill and mid-answer ends the thread and closes the session."""
    script = Script(
        hold_load_at=0.5 if point == "load" else None,
        hold_prefill_at=0.0 if point == "prefill" else None,
        hold_decode_at=3 if point == "decode" else None,
    )
    session = FakeSession(script)
    controller = EngineController(lambda: session)
    controller.start()
    if point == "load":
        with qtbot.waitSignal(controller.load_progressed):
            controller.load(CONFIG)
    else:
        load(qtbot, controller)
        controller.send(chat())
        if point == "decode":
            with qtbot.waitSignal(controller.events_received):
                pass
    assert controller.shutdown(5_000)
    assert session.closed


def test_ten_thousand_signals(qtbot: QtBot) -> None:
    """Some bindings lose a reference at each emission and abort; the pinned one must not."""

    class Emitter(QObject):
        emitted = Signal(int, object, bool)

    received: list[bool] = []
    emitter = Emitter()
    emitter.emitted.connect(lambda _n, _o, flag: received.append(flag))
    for number in range(10_000):
        emitter.emitted.emit(number, (number,), True)
    assert received == [True] * 10_000
