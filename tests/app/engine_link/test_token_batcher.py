"""The batcher: nothing lost, first token and end at once, otherwise every 33 ms."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from app.engine_link.token_batcher import (
    BATCH_NS,
    SHARED_CORES_BATCH_NS,
    TokenBatcher,
    batch_interval_ns,
)
from engine.config import EngineConfig
from engine.events import Event, GenerationFailed, TokenEvent
from tests.fakes import figures


class Clock:
    """Nanoseconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def token(index: int) -> TokenEvent:
    return TokenEvent("r", index, index, 1, "a", 0, 0, None, index, 0, 0)


def test_first_token_and_end_are_due_at_once() -> None:
    """The wait for the first token shown in the window must be the real one."""
    batcher = TokenBatcher(Clock())
    assert batcher.add([token(0)], 0)
    batcher.take()
    assert not batcher.add([token(1)], 0)
    assert batcher.add([GenerationFailed("r", 0, "", "", "")], 0)


def test_later_tokens_are_due_after_33_ms() -> None:
    """Tokens in between go together."""
    clock = Clock()
    batcher = TokenBatcher(clock)
    assert not batcher.add([token(1)], 0)
    clock.now = BATCH_NS
    assert batcher.add([token(2)], 0)
    assert batcher.take() == [token(1), token(2)]
    assert not batcher.pending


def test_a_slow_step_does_not_hold_a_token_back() -> None:
    """Where a step takes longer than the batch, each token is shown before the next step."""
    clock = Clock()
    batcher = TokenBatcher(clock)
    batcher.add([token(1)], 40_000_000)
    assert batcher.due_before_step()


@given(st.lists(st.tuples(st.integers(0, 50_000_000), st.integers(0, 5)), max_size=40))
def test_nothing_is_lost_or_reordered(steps: list[tuple[int, int]]) -> None:
    """Whatever the timing, what goes in comes out in order."""
    clock = Clock()
    batcher = TokenBatcher(clock)
    given_events: list[Event] = []
    taken: list[Event] = []
    for pause, count in steps:
        clock.now += pause
        events: list[Event] = [token(len(given_events) + i) for i in range(count)]
        given_events += events
        if batcher.add(events, pause):
            taken += batcher.take()
    assert taken + batcher.take() == given_events


def test_the_window_is_told_less_often_where_it_shares_the_cores() -> None:
    """An update then costs tokens; on a GPU or with a core to spare it does not."""
    config = figures.resolve(EngineConfig(model_path="m.gguf", threads=4))
    info = figures.model_info("m.gguf")
    memory = figures.estimate(config, info, available=8_000_000_000, loaded=None)
    loaded = figures.loaded_model(config, info, memory, 1.0, ())
    assert batch_interval_ns(loaded, cores=4) == SHARED_CORES_BATCH_NS
    assert batch_interval_ns(loaded, cores=5) == BATCH_NS
    assert batch_interval_ns(replace(loaded, device_uuid="GPU-1"), cores=4) == BATCH_NS
