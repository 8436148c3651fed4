"""Each cause of a late token is named where the events show it, and only there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from app.telemetry.late_causes import LateCause
from app.telemetry.telemetry_model import TelemetryModel
from engine.events import ContextCut, Event, StepStats, TokenEvent
from tests.app.telemetry.story import MS, Clock, Story, loaded

LATE = 60
BLOCK_STARTS = range(1, 110, 16)  # tokens whose predecessor's keys open a block of 16


def cause_of(model: TelemetryModel, events: list[Event], row: int = LATE) -> LateCause | None:
    """Tell the events and ask why the token at `row` was late."""
    model.handle_events([loaded(), *events])
    (trace,) = model.requests
    (cause,) = model.late_causes(trace, np.array([row], dtype=np.intp))
    return cause


def told(late: dict[int, float] | None = None) -> list[Event]:
    """An answer of 110 tokens as events; by default token 60 takes 41 ms."""
    return Story(num_tokens=110, late=late or {LATE: 41.0}).events()


def with_step(events: list[Event], row: int = LATE, **changes: object) -> list[Event]:
    """The same with the step of one token changed."""
    step_id = next(e.step_id for e in events if isinstance(e, TokenEvent) and e.index == row)
    return [
        replace(e, **changes)  # type: ignore[arg-type]
        if isinstance(e, StepStats) and e.step_id == step_id
        else e
        for e in events
    ]


def test_a_slow_step_that_read_as_much_as_the_one_before(model: TelemetryModel) -> None:
    """The step took the time, its work did not: something outside the engine."""
    assert cause_of(model, told()) == "same work"


@pytest.mark.parametrize(
    "changes",
    [{"step_ms": 7.2}, {"bytes": 300_000_000}, {"phase": "prefill"}],
    ids=["the wait was not in the step", "it read more", "it was no decode step"],
)
def test_outside_causes_are_not_guessed(model: TelemetryModel, changes: dict[str, object]) -> None:
    """Where one of the conditions fails nothing is claimed."""
    assert cause_of(model, with_step(told(), **changes)) is None


def test_a_step_not_told_yet_has_no_cause(model: TelemetryModel) -> None:
    """Tokens come before the step's figures: until then nothing is known, and nothing breaks."""
    assert cause_of(model, [e for e in told() if not isinstance(e, StepStats)]) is None


def test_another_request_joined(model: TelemetryModel) -> None:
    """The step had one sequence more than the step before."""
    assert cause_of(model, with_step(told(), num_seqs=2)) == "joined"


def test_another_prompt_was_read(model: TelemetryModel) -> None:
    """The step decoded for two all along, and this one read a prompt besides."""
    events = with_step(with_step(told(), num_seqs=2, phase="mixed"), LATE - 1, num_seqs=2)
    assert cause_of(model, events) == "joined"


def test_a_request_that_left_is_no_cause(model: TelemetryModel) -> None:
    """Fewer sequences make a step faster."""
    assert cause_of(model, with_step(told(), LATE - 1, num_seqs=2)) is None


def test_a_new_block_where_blocks_are_late_as_a_rule(model: TelemetryModel) -> None:
    """Every token that opens a block is late: the block is named."""
    events = told(dict.fromkeys(BLOCK_STARTS, 30.0))
    assert cause_of(model, events, BLOCK_STARTS[2]) == "new block"


def test_a_late_token_that_opens_a_block_by_chance(model: TelemetryModel) -> None:
    """Where other blocks open in time, the one that was late had another reason."""
    assert cause_of(model, told({BLOCK_STARTS[2]: 30.0}), BLOCK_STARTS[2]) == "same work"


def test_a_context_that_slid(model: TelemetryModel, clock: Clock) -> None:
    """The cut is told before the token that waited for it, and wins over what else holds."""
    events = with_step(told(), num_seqs=2)
    at = next(i for i, e in enumerate(events) if isinstance(e, TokenEvent) and e.index == LATE)
    cut = ContextCut("r1", clock.now_ns + 500 * MS, 0, 100, 4, 100)
    assert cause_of(model, [*events[:at], cut, *events[at:]]) == "slid"
