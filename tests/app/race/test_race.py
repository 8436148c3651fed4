"""A race: the same prompt again as another config, what it measures, and the ways back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pytestqt.qtbot import QtBot

from app.race.comparison import measured_speedup, predicted_speedup
from app.race.race import Race, Stage
from app.race.runs import AnswerRun, AnswerRuns
from engine.config import EngineConfig
from engine.prediction import decode_s, prefill_s
from tests.app.conftest import MakeProgram
from tests.fakes.fake_session import FakeSession, Script
from tests.fakes.window import MODEL, FakeProgram, wait_until

KNOWN = Script(itl_ms_as={"int8": 12.0, "int4": 7.5}, prefill_tok_s=1_000.0, is_even=True)


def answered(make_program: MakeProgram, script: Script = KNOWN) -> tuple[FakeProgram, AnswerRun]:
    """A window whose INT8 model has given one answer, and its run."""
    program = make_program(replace(script))
    window = program.window
    runs = AnswerRuns(program.controller, window.conversations, window.loading, window)
    load(program, EngineConfig(MODEL, weight_format="int8"))
    return program, ask(program, runs)


def ask(program: FakeProgram, runs: AnswerRuns) -> AnswerRun:
    chats = program.window.conversations
    assert chats.send("Why is the first token slow, and why are the others fast?")
    wait_until(lambda: not chats.generating_chats())
    run = runs.run_of(chats.current.chat.messages[-1].id)
    assert run is not None
    return run


def load(program: FakeProgram, config: EngineConfig) -> None:
    program.window.loading.load(config)
    wait_until(lambda: program.controller.model is not None and program.controller.loading is None)


def race_of(program: FakeProgram, run: AnswerRun) -> Race:
    window = program.window
    return Race(program.controller, window.loading, window.telemetry.model, run, window)


def loaded_weights(program: FakeProgram) -> str | None:
    model = program.controller.model
    return model.config.weight_format if model and program.controller.loading is None else None


def test_known_speeds_give_the_known_ratio(qtbot: QtBot, make_program: MakeProgram) -> None:
    """12 ms against 7.5 ms a token: exactly 1.6 times; the prompts take as long."""
    program, first = answered(make_program)
    race = race_of(program, first)
    with qtbot.waitSignal(race.changed):
        assert race.start(replace(first.wanted, weight_format="int4"))
    wait_until(lambda: race.stage is Stage.DONE)
    assert (race.problem, race.had_company) == ("", False)
    assert race.metrics is not None
    speedup = measured_speedup(first.metrics, race.metrics)
    assert speedup.decode == pytest.approx(1.6, rel=1e-6)
    assert speedup.ttft == pytest.approx(1.0, rel=1e-6)


def test_it_is_the_same_prompt_and_as_many_tokens(qtbot: QtBot, make_program: MakeProgram) -> None:
    """To the token, same seed, empty cache; neither an end token nor a stop string ends it."""
    program, first = answered(make_program)
    race = race_of(program, first)
    race.start(replace(first.wanted, weight_format="int4"))
    wait_until(lambda: race.stage is Stage.DONE)
    request = program.session.requests[-1]
    assert request.prompt_ids == tuple(first.prompt_ids)
    assert request.ignore_eos
    assert request.sampling.stop == ()
    assert request.sampling.seed == first.metrics.seed
    assert race.metrics is not None
    assert race.metrics.prompt_tokens == first.metrics.prompt_tokens
    assert race.metrics.completion_tokens == first.metrics.completion_tokens
    assert race.metrics.cached_tokens == 0
    assert len(program.window.conversations.current.chat.messages) == 2


def test_the_panels_show_it_and_the_earlier_run_is_known(
    qtbot: QtBot, make_program: MakeProgram
) -> None:
    """The new run is selected; both traces are there to be drawn over each other."""
    program, first = answered(make_program)
    race = race_of(program, first)
    program.session.script.hold_decode_at = 10
    race.start(replace(first.wanted, weight_format="int4"))
    wait_until(lambda: race.trace is not None and len(race.trace.tokens) == 10)
    assert race.stage is Stage.RUNNING
    assert program.window.telemetry.model.selected is race.trace
    assert race.earlier is not None
    assert len(race.earlier.tokens) == first.metrics.completion_tokens
    race.stop()
    wait_until(lambda: race.stage is Stage.DONE)
    assert race.problem == "Stopped before the end."
    assert race.metrics is not None
    assert race.metrics.completion_tokens == 10


def test_what_does_not_fit_says_so_and_goes_back(qtbot: QtBot, make_program: MakeProgram) -> None:
    """The reason in words, and the model of before is there again."""
    program, first = answered(make_program)
    race = race_of(program, first)
    program.session.script.available_bytes = 300_000_000
    race.start(replace(first.wanted, weight_format="fp32"))
    wait_until(lambda: race.stage is Stage.DONE)
    assert "not fit in memory" in race.problem
    assert race.metrics is None
    wait_until(lambda: loaded_weights(program) == "int8")
    assert program.window.loading.wanted == first.wanted


def test_stopping_the_load_goes_back(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Stop while it loads: said, and the model of before comes back."""
    program, first = answered(make_program)
    race = race_of(program, first)
    program.session.script.hold_load_at = 0.5
    race.start(replace(first.wanted, weight_format="int4"))
    wait_until(lambda: len(program.session.loads) == 2)
    race.stop()
    program.session.script.hold_load_at = None
    wait_until(lambda: race.stage is Stage.DONE)
    assert race.problem == "Stopped while loading."
    wait_until(lambda: loaded_weights(program) == "int8")


def test_a_prompt_that_is_refused_goes_back(qtbot: QtBot, make_program: MakeProgram) -> None:
    """A context shorter than the prompt: the engine's own words, and the model of before."""
    program, first = answered(make_program)
    race = race_of(program, first)
    race.start(replace(first.wanted, context_length=16))
    wait_until(lambda: race.stage is Stage.DONE)
    assert race.problem.startswith("The prompt takes ")
    wait_until(lambda: program.window.loading.wanted == first.wanted)
    wait_until(lambda: loaded_weights(program) == "int8")


def test_going_back_loads_what_was_there(qtbot: QtBot, make_program: MakeProgram) -> None:
    """After the race the changed model stays until the person goes back."""
    program, first = answered(make_program)
    race = race_of(program, first)
    race.start(replace(first.wanted, weight_format="int4"))
    wait_until(lambda: race.stage is Stage.DONE)
    assert loaded_weights(program) == "int4"
    race.go_back()
    wait_until(lambda: loaded_weights(program) == "int8")
    assert program.window.loading.wanted == first.wanted


def test_it_waits_for_answers_and_ends_with_other_loads(
    qtbot: QtBot, make_program: MakeProgram
) -> None:
    """A load would end an answer: it is not begun; a load by someone else ends the race."""
    program, first = answered(make_program)
    race = race_of(program, first)
    program.session.script.hold_decode_at = 5
    program.window.conversations.send("Meanwhile?")
    config = replace(first.wanted, weight_format="int4")
    assert not race.start(config)
    program.window.conversations.stop()
    wait_until(lambda: not program.controller.active_requests)
    assert race.start(config)
    wait_until(lambda: race.trace is not None and len(race.trace.tokens) == 5)
    load(program, replace(first.wanted, weight_format="bf16"))
    assert race.stage is Stage.DONE
    assert race.problem == "Another model was loaded meanwhile."
    assert loaded_weights(program) == "bf16"


def test_a_first_run_that_was_spared_is_not_compared_in_its_wait(
    qtbot: QtBot, make_program: MakeProgram
) -> None:
    """Tokens that the cache had make the wait shorter: no ratio is told, that of decode is."""
    _, first = answered(make_program)
    spared = replace(first.metrics, cached_tokens=5)
    speedup = measured_speedup(spared, first.metrics)
    assert speedup.ttft is None
    assert speedup.decode == pytest.approx(1.0)


def test_the_prediction_is_the_ratio_of_the_formulas(
    qtbot: QtBot, make_program: MakeProgram
) -> None:
    """Seconds before over seconds after, at the context of this run; blind without peaks."""
    _, first = answered(make_program)
    run, config = (
        replace(first.metrics, prompt_tokens=500),
        EngineConfig(MODEL, weight_format="int8"),
    )
    planning = FakeSession().planning(MODEL, "cpu", 2)
    then = replace(config, weight_format="int4")
    predicted = predicted_speedup((planning, config), (planning, then), run)
    device = planning.machine.speeds["int8"]
    now, after = (planning.model.token_work(each, "bf16") for each in ("int8", "int4"))
    middle = run.prompt_tokens + run.completion_tokens // 2
    assert predicted.decode == decode_s(now, device, middle) / decode_s(after, device, middle)
    prompt = run.prompt_tokens
    assert predicted.ttft == prefill_s(now, device, prompt) / prefill_s(after, device, prompt)
    short = replace(run, prompt_tokens=20)
    assert predicted_speedup((planning, config), (planning, then), short).ttft is None
    blind = FakeSession(Script(is_measured=False)).planning(MODEL, "cpu", 2)
    nothing = predicted_speedup((blind, config), (blind, then), run)
    assert (nothing.decode, nothing.ttft) == (None, None)
