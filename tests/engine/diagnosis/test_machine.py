"""What held the machine back is in the readings, and blamed only for a run that was held up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.diagnosis.cures import diagnose
from engine.diagnosis.facts import AnswerFacts
from engine.diagnosis.machine import Hindrance, MachineState, machine_state
from engine.diagnosis.verdict import find
from engine.sensors import SensorSample
from tests.engine.diagnosis.stories import answer, planning

SAMPLE = SensorSample(0, None, None, None, None, 50.0, 1)
HELD_BACK: dict[Hindrance, MachineState] = {
    "gpu": MachineState(gpu_slowed=(("heat", 0.8),)),
    "others": MachineState(others_cpu_pct=81.0),
    "clock": MachineState(cpu_clock_mhz=1_200.0, cpu_base_mhz=2_600.0),
    "power saving": MachineState(power_saving=True),
    "battery": MachineState(on_battery=True),
}


def held_up(state: MachineState, *, on_gpu: bool = False, **kind: float) -> AnswerFacts:
    """An answer in FP32, twice as slow as predicted unless `kind` says otherwise."""
    facts = answer("fp32", tokens=500, **({"stream_factor": 2.0} | kind))
    return replace(facts, on_gpu=on_gpu, machines={"stream": state, "start": state})


@pytest.mark.parametrize(("name", "state"), HELD_BACK.items())
def test_each_hindrance_is_blamed_for_a_stream_that_was_held_up(
    name: Hindrance, state: MachineState
) -> None:
    """Twice as slow as bytes and FLOPs say: the sensors name the culprit."""
    finding = find(held_up(state, on_gpu=name == "gpu"))
    assert finding is not None
    assert (finding.verdict, finding.cause) == ("slow to stream", "interference")
    assert finding.hindrances == (name,)


@pytest.mark.parametrize("state", HELD_BACK.values())
def test_a_start_is_blamed_in_the_same_way(state: MachineState) -> None:
    """The prompt took twice as long as it should."""
    facts = answer(prompt=4_000, tokens=20, start_factor=2.0)
    facts = replace(facts, on_gpu=True, machines={"start": state})
    finding = find(facts)
    assert finding is not None
    assert (finding.verdict, finding.cause) == ("slow to start", "interference")
    assert len(finding.hindrances) == 1


def test_slowing_down_on_the_way_has_its_reason_too() -> None:
    """The GPU became hot in the middle."""
    facts = held_up(HELD_BACK["gpu"], on_gpu=True, stream_factor=1.0)
    itl_ms = facts.itl_ms[:250] + tuple(2 * each for each in facts.itl_ms[250:])
    finding = find(replace(facts, itl_ms=itl_ms))
    assert finding is not None
    assert (finding.cause, finding.hindrances) == ("throttled", ("gpu",))


@pytest.mark.parametrize("state", HELD_BACK.values())
def test_a_run_at_the_pace_predicted_is_not_blamed_on_the_machine(state: MachineState) -> None:
    """Other programs ran, but each token reads 4 GB: that is the cause."""
    finding = find(held_up(state, on_gpu=True, stream_factor=1.0))
    assert finding is not None
    assert finding.cause == "weights"


@pytest.mark.parametrize("state", HELD_BACK.values())
def test_a_fast_run_is_never_called_slow(state: MachineState) -> None:
    """Whatever the sensors say."""
    facts = answer("int8", plan=planning(bandwidth=200e9, flops=20e12))
    finding = find(replace(facts, on_gpu=True, machines={"start": state, "stream": state}))
    assert finding is not None
    assert finding.verdict == "fast"


@pytest.mark.parametrize(
    ("name", "cause"),
    [("others", "interference"), ("power saving", "interference"), ("battery", "weights")],
)
def test_without_a_prediction_only_strong_signs_are_causes(name: Hindrance, cause: str) -> None:
    """Speeds that were never measured: a battery alone slows nothing for sure."""
    facts = held_up(HELD_BACK[name], plan=planning(is_measured=False))  # type: ignore[arg-type]
    finding = find(facts)
    assert finding is not None
    assert (finding.expected_tok_s, finding.cause) == (None, cause)


@pytest.mark.parametrize(
    ("state", "on_gpu", "found"),
    [
        (MachineState(others_cpu_pct=19.0), False, ()),
        (MachineState(others_cpu_pct=20.0), False, ("others",)),
        (MachineState(others_cpu_pct=79.0), True, ()),
        (MachineState(cpu_clock_mhz=2_500.0, cpu_base_mhz=2_600.0), False, ()),
        (MachineState(cpu_clock_mhz=2_500.0), False, ()),
        (MachineState(gpu_slowed=(("heat", 0.2),)), True, ()),
        (MachineState(gpu_slowed=(("heat", 0.9),)), False, ()),
        (MachineState(others_cpu_pct=30.0, power_saving=True), False, ("others", "power saving")),
    ],
)
def test_thresholds(state: MachineState, on_gpu: bool, found: tuple[Hindrance, ...]) -> None:
    """A GPU needs one core only, and another GPU's heat is no reason on a processor."""
    assert state.hindrances(on_gpu) == found


def test_more_threads_are_not_the_cure_for_a_full_machine() -> None:
    """Four threads instead of two would fight the other programs for their cores."""
    facts = replace(held_up(MachineState()), unbound=planning(threads=4, bandwidth=90e9))
    assert "threads" in _fields(facts)
    assert "threads" not in _fields(replace(facts, machines={"stream": HELD_BACK["others"]}))


def _fields(facts: AnswerFacts) -> set[str]:
    found = diagnose(facts)
    assert found is not None
    return {suggestion.field for suggestion in found.suggestions}


def test_readings_are_put_together() -> None:
    """Means of what is known, shares of the readings, most of them for a flag."""
    state = machine_state(
        [
            replace(SAMPLE, others_cpu_pct=10.0, gpu_slowed_by=("heat", "power limit")),
            replace(SAMPLE, others_cpu_pct=30.0, gpu_slowed_by=("heat",), power_saving=True),
            replace(SAMPLE, gpu_slowed_by=(), power_saving=True, cpu_clock_mhz=1_000.0),
            replace(SAMPLE, gpu_dram_active_pct=91.0, on_battery=True),
        ]
    )
    assert state == MachineState(
        others_cpu_pct=20.0,
        cpu_clock_mhz=1_000.0,
        gpu_slowed=(("heat", 0.5), ("power limit", 0.25)),
        gpu_dram_active_pct=91.0,
    )
    assert machine_state([]) == MachineState()


_percent = st.none() | st.floats(0.0, 100.0)


@given(
    st.lists(
        st.builds(
            lambda others, slowed, saving: replace(
                SAMPLE, others_cpu_pct=others, gpu_slowed_by=slowed, power_saving=saving
            ),
            _percent,
            st.none() | st.sampled_from([(), ("heat",), ("heat", "power limit")]),
            st.none() | st.booleans(),
        ),
        max_size=20,
    )
)
def test_what_is_put_together_lies_within_the_readings(samples: list[SensorSample]) -> None:
    """No share above one, no mean beyond the extremes, no flag that nobody raised."""
    state = machine_state(samples)
    known = [s.others_cpu_pct for s in samples if s.others_cpu_pct is not None]
    if known:
        assert state.others_cpu_pct is not None
        assert min(known) - 1e-9 <= state.others_cpu_pct <= max(known) + 1e-9
    assert all(0 < share <= 1 for _, share in state.gpu_slowed)
    assert state.power_saving <= any(s.power_saving for s in samples)
