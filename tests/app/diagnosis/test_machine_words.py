"""What held the machine back stands in the headline, with its figures, and what to do about it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pytestqt.qtbot import QtBot

from app.diagnosis import texts
from app.diagnosis.machine_words import held_up_words
from engine.diagnosis.cures import diagnose
from engine.diagnosis.facts import AnswerFacts
from engine.diagnosis.machine import MachineState
from engine.diagnosis.verdict import find
from tests.app.conftest import MakeProgram
from tests.app.diagnosis.test_diagnoses import WORDS, load, messages
from tests.engine.diagnosis.stories import answer, planning
from tests.fakes.fake_session import Script
from tests.fakes.window import wait_until

# Of an answer that is twice as slow as predicted: state, on a GPU, headline, figures, what to do.
HELD_UP = [
    (
        MachineState(others_cpu_pct=48.2),
        False,
        "Slow to stream: other programs took the processor.",
        "other programs used 48 % of the processor",
        "Close what else is running and ask again.",
    ),
    (
        MachineState(cpu_clock_mhz=1_190.0, cpu_base_mhz=2_600.0),
        False,
        "Slow to stream: the processor ran below its base clock.",
        "the processor ran at 1.2 GHz, its base clock is 2.6 GHz",
        "Let the machine cool, and look at its power settings.",
    ),
    (
        MachineState(power_saving=True, on_battery=True),
        False,
        "Slow to stream: the machine saves power.",
        "power saving was on, the machine ran on battery",
        "Switch power saving off, or plug in.",
    ),
    (
        MachineState(on_battery=True),
        False,
        "Slow to stream: the machine runs on battery.",
        "the machine ran on battery",
        "Plug in and ask again.",
    ),
    (
        MachineState(gpu_slowed=(("heat", 0.8), ("power limit", 0.4), ("power brake", 0.1))),
        True,
        "Slow to stream: the GPU lowered its clocks.",
        "the GPU lowered its clocks in 80 % of the readings (heat, power limit)",
        "Let it cool, or raise its power limit.",
    ),
]


def slow_answer(state: MachineState, *, on_gpu: bool) -> AnswerFacts:
    facts = answer("fp32", tokens=500, stream_factor=2.0)
    return replace(facts, on_gpu=on_gpu, machines={"stream": state})


@pytest.mark.parametrize(("state", "on_gpu", "headline", "figures", "to_do"), HELD_UP)
def test_held_up_in_words(
    state: MachineState, on_gpu: bool, headline: str, figures: str, to_do: str
) -> None:
    """Pace, what would be possible, who took the rest, and what helps."""
    facts = slow_answer(state, on_gpu=on_gpu)
    found = diagnose(facts)
    assert found is not None
    assert texts.headline(found.finding) == headline
    sentence = texts.sentence(facts, found.finding)
    assert sentence.endswith(f"would be possible: {figures}. {to_do}")
    assert not any("Meanwhile" in line for line in texts.details(facts, found)), "told twice"


def test_a_run_that_was_not_held_up_tells_of_the_machine_among_its_figures() -> None:
    """Other programs ran, but the pace is the predicted one: a figure, no reason."""
    facts = answer("fp32", tokens=500)
    facts = replace(facts, machines={"stream": MachineState(others_cpu_pct=48.2)})
    found = diagnose(facts)
    assert found is not None
    assert texts.headline(found.finding) == "Slow to stream: each token reads all the weights."
    line = "Meanwhile other programs used 48 % of the processor"
    assert line in texts.details(facts, found)


def test_a_start_that_was_held_up_in_words() -> None:
    """The same, of a prompt."""
    facts = answer(prompt=4_000, tokens=20, start_factor=2.0)
    facts = replace(facts, machines={"start": MachineState(others_cpu_pct=48.0)})
    finding = find(facts)
    assert finding is not None
    assert texts.headline(finding) == "Slow to start: other programs took the processor."


def test_without_a_prediction_the_pace_alone_is_told() -> None:
    """There is nothing that would be possible; the culprit is known all the same."""
    facts = answer("fp32", tokens=500, plan=planning(is_measured=False))
    facts = replace(facts, machines={"stream": MachineState(others_cpu_pct=90.0)})
    finding = find(facts)
    assert finding is not None
    pace = f"{facts.metrics.decode_tok_s:.2f} tok/s"
    expected = f"{pace}: other programs used 90 % of the processor. Close what else is running"
    assert texts.sentence(facts, finding).startswith(expected)


def test_slowing_down_on_the_way_in_words() -> None:
    """The GPU became hot in the middle of the answer."""
    facts = replace(slow_answer(HELD_UP[-1][0], on_gpu=True))
    itl_ms = facts.itl_ms[:250] + tuple(2 * each for each in facts.itl_ms[250:])
    facts = replace(facts, itl_ms=itl_ms)
    finding = find(facts)
    assert finding is not None
    assert finding.cause == "throttled"
    assert "the GPU lowered its clocks in 80 % of the readings" in texts.sentence(facts, finding)


def test_unknown_culprits_keep_the_general_words() -> None:
    """No sensor says anything: another program, heat or power saving."""
    facts = slow_answer(MachineState(), on_gpu=False)
    finding = find(facts)
    assert finding is not None
    assert texts.headline(finding) == "Slow to stream: something held the reading up."
    assert "another program, heat or power saving" in texts.sentence(facts, finding)
    assert held_up_words((), MachineState()) == ""


@pytest.mark.parametrize("has_gpm", [True, False])
def test_busy_and_idle_at_once_is_explained_by_the_cards_counters(has_gpm: bool) -> None:
    """98 % busy and 3 % of the arithmetic: GPM, where the card has it, sees memory at work."""
    state = MachineState(gpu_sm_active_pct=95.0, gpu_dram_active_pct=88.0)
    facts = answer("int8", plan=planning(bandwidth=200e9, flops=20e12, device="cuda"))
    facts = replace(
        facts,
        decode=replace(facts.decode, mfu_pct=3.0),
        device_pct=98.0,
        on_gpu=True,
        machines={"stream": state if has_gpm else MachineState()},
    )
    found = diagnose(facts)
    assert found is not None
    lines = texts.details(facts, found)
    assert any(
        "98.0 % busy: its sensor (NVML)" in line and "arithmetic units did 3.00 %" in line
        for line in lines
    )
    gpm = "95.0 % of the multiprocessors had work, and the memory moved 88.0 % of what it can."
    assert any(gpm in line for line in lines) is has_gpm


def test_readings_of_the_window_reach_the_note(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Of an answer's stream are the readings that tell of it, not of what was before."""
    script = Script(answer=WORDS, itl_ms=190.0, bandwidth=6e9, hold_decode_at=30)
    program = make_program(script)
    load(program, weight_format="fp32", threads=1)
    program.sample(50.0, others_cpu_pct=99.0)  # nothing runs: nobody's
    asked_ns = program.clock()
    assert program.window.conversations.send("Why?")
    program.sample(50.0, others_cpu_pct=99.0, t_ns=asked_ns)  # of the time before the question
    trace = program.window.telemetry.model.selected
    assert trace is not None
    wait_until(lambda: len(trace.tokens) >= 30)
    for others_pct in (60.0, 70.0):
        program.sample(30.0, others_cpu_pct=others_pct)
    program.session.release()
    wait_until(lambda: messages(program)[-1].note is not None)
    note = messages(program)[-1].note
    assert note is not None
    assert note.headline == "Slow to stream: other programs took the processor."
    assert "other programs used 65 % of the processor" in note.text
