"""The stages of a prompt's step from the times of events, which a fake gives; no GPU is needed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch

from kernels.gpu.event_clock import EventClock
from kernels.stages import Stage

A, F, H, S = Stage.ATTENTION, Stage.FFN, Stage.HEAD, Stage.SAMPLE
PROMPT = (A, F, A, F, H, H, None, S, None)


class FakeStream:
    """Gives each event the next whole millisecond, and says when it is waited for."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.waited_ms: list[int] = []
        self.is_capturing = False


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> FakeStream:
    """In the place of the current one."""
    found = FakeStream()

    class Event:
        def __init__(self, enable_timing: bool = False) -> None:
            assert enable_timing
            self.at_ms = -1

        def record(self) -> None:
            found.now_ms += 1
            self.at_ms = found.now_ms

        def synchronize(self) -> None:
            found.waited_ms.append(self.at_ms)

        def elapsed_time(self, end: Event) -> float:
            assert found.waited_ms, "before the events are over their times are an error"
            return float(end.at_ms - self.at_ms)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: found.is_capturing)
    return found


def told(marks: Iterable[Stage | None]) -> EventClock:
    """A clock that was told of these stages in one step."""
    clock = EventClock()
    clock.clear()
    for stage in marks:
        if stage is None:
            clock.end()
        else:
            clock.begin(stage)
    return clock


def test_a_prompts_step_is_summed_by_stage(stream: FakeStream) -> None:
    """A millisecond between any two marks; what lies between an end and a begin is no stage's."""
    clock = told(PROMPT)
    assert clock.settle()
    assert [clock[stage] for stage in Stage] == [2_000_000, 2_000_000, 2_000_000, 1_000_000]


def test_only_the_last_event_is_waited_for(stream: FakeStream) -> None:
    """It comes after the ids were read, so nothing else is in the stream."""
    assert told(PROMPT).settle()
    assert stream.waited_ms == [len(PROMPT)]


@pytest.mark.parametrize(
    "marks",
    [
        (),
        (S, None),
        (A, F, H, H, None),
        (S, None, *PROMPT),
        (*PROMPT[:-2], S, None, S, None),
    ],
    ids=["nothing", "decode", "chunk without token", "mixed", "first run of a decode step"],
)
def test_other_steps_are_not_timed_and_never_waited_for(
    stream: FakeStream, marks: tuple[Stage | None, ...]
) -> None:
    """A graph's parts cannot be told apart, and a chunk whose token nobody reads is not over."""
    assert not told(marks).settle()
    assert stream.waited_ms == []


def test_a_decode_step_makes_no_events(stream: FakeStream) -> None:
    """Each costs the host some microseconds at every token, for nothing."""
    told((S, None))
    assert stream.now_ms == 0


def test_a_capture_marks_nothing(stream: FakeStream) -> None:
    """An event that was captured has no time."""
    stream.is_capturing = True
    clock = told(PROMPT)
    assert stream.now_ms == 0
    assert not clock.settle()


def test_a_step_begins_from_nothing(stream: FakeStream) -> None:
    """A step that was aborted midway leaves nothing to the next one."""
    clock = told(PROMPT[:3])
    clock.clear()
    for stage in PROMPT:
        if stage is None:
            clock.end()
        else:
            clock.begin(stage)
    assert clock.settle()
    assert clock[A] == 2_000_000
    clock.clear()
    assert clock[A] == 0
