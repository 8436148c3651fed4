"""Requests without the KV cache: the same tokens, computed from the first one at every step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.config import GenerationRequest, SamplingParams
from engine.events import Event, GenerationFinished, PrefillProgress, StepStats, TokenEvent
from engine.local_session import LocalSession
from kernels.stages import Stage, StageClock

Opener = Callable[..., LocalSession]
PROMPT = tuple(range(40, 61))


def request(name: str = "r", *, use_cache: bool = True, **options: object) -> GenerationRequest:
    """Greedy, from ids, twelve tokens, end tokens ignored unless said otherwise."""
    settings: dict[str, object] = {"prompt_ids": PROMPT, "max_tokens": 12, "ignore_eos": True}
    return GenerationRequest(name, use_cache=use_cache, **settings | options)  # type: ignore[arg-type]


def run(session: LocalSession, *requests: GenerationRequest) -> list[Event]:
    """Everything the session says until it has no work."""
    for each in requests:
        session.submit(each)
    events: list[Event] = []
    while session.has_work():
        events += session.step()
        assert session._loaded is not None
        session._loaded.scheduler.check_integrity()
    assert session._loaded is not None
    blocks = session._loaded.blocks
    assert blocks.num_free_blocks == blocks.num_blocks
    return events


def ends(events: list[Event]) -> dict[str, GenerationFinished]:
    """How each request ended."""
    return {e.request_id: e for e in events if isinstance(e, GenerationFinished)}


@pytest.mark.parametrize("budget", [8, 12, 512])
@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(temperature=1.0, seed=3)])
def test_the_tokens_are_those_of_the_cached_run(
    open_session: Opener, budget: int, sampling: SamplingParams
) -> None:
    """In FP32 both paths choose the same, with one chunk a token or with several."""
    session = open_session(max_num_batched_tokens=budget)
    cached = run(session, request("on", sampling=sampling))
    uncached = run(session, request("off", use_cache=False, sampling=sampling))
    assert ends(uncached)["off"].token_ids == ends(cached)["on"].token_ids
    assert not ends(uncached)["off"].metrics.use_cache
    assert [e.index for e in uncached if isinstance(e, TokenEvent)] == list(range(12))


def test_every_token_computes_all_before_it(open_session: Opener) -> None:
    """The work of a step grows by a token a token; progress is told for the prompt only."""
    session = open_session()
    events = run(session, request(use_cache=False))
    steps = [e for e in events if isinstance(e, StepStats)]
    assert [s.num_tokens for s in steps] == list(range(21, 33))
    assert {s.phase for s in steps} == {"prefill"}
    assert len([e for e in events if isinstance(e, PrefillProgress)]) == 1
    held = [e.kv_bytes_allocated for e in events if isinstance(e, TokenEvent)]
    assert min(held) > 0


def test_nothing_is_shared_either_way(open_session: Opener) -> None:
    """A run without cache finds no prefix, and leaves none for others to find."""
    session = open_session()
    run(session, request("off", use_cache=False))
    assert ends(run(session, request("on")))["on"].metrics.cached_tokens == 0
    assert session._loaded is not None
    queried = session._loaded.blocks.num_queried_tokens
    off = ends(run(session, request("off", use_cache=False)))["off"]
    assert off.metrics.cached_tokens == 0
    assert session._loaded.blocks.num_queried_tokens == queried == len(PROMPT)


def test_chats_beside_it_get_a_token_every_step(open_session: Opener) -> None:
    """Decode rows go first; a prompt that comes later does not wait for the run to end."""
    session = open_session(max_num_batched_tokens=8)
    session.submit(request("on", prompt_ids=(5, 6, 7), max_tokens=40))
    session.step()
    session.submit(request("off", use_cache=False, max_tokens=30))
    for _ in range(10):
        tokens = [e.request_id for e in session.step() if isinstance(e, TokenEvent)]
        assert "on" in tokens
    session.submit(request("late", prompt_ids=tuple(range(90, 103)), max_tokens=2))
    events = [event for _ in range(14) for event in session.step()]
    assert "late" in {e.request_id for e in events if isinstance(e, TokenEvent)}
    assert "off" not in ends(events)
    rest = ends(run(session))
    assert rest["off"].token_ids == ends(run(session, request(max_tokens=30)))["r"].token_ids


def test_a_cancel_inside_a_step_ends_it(
    open_session: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two tokens too it is left at the next layer; what was said is kept."""
    session = open_session()
    session.submit(request(use_cache=False))
    said = [e for _ in range(3) for e in session.step() if isinstance(e, TokenEvent)]
    layers_run = []
    begin = StageClock.begin

    def cancelling_begin(clock: StageClock, stage: Stage) -> None:
        begin(clock, stage)
        if stage == Stage.FFN:
            layers_run.append(1)
            session.cancel("r")

    monkeypatch.setattr(StageClock, "begin", cancelling_begin)
    end = ends(run(session))["r"]
    assert len(layers_run) == 1
    assert end.finish_reason == "cancelled"
    assert list(end.token_ids) == [e.token_id for e in said]


def test_a_pool_too_small_for_both_lets_both_end(open_session: Opener) -> None:
    """Preempted or not, each says what it says alone."""
    options = {"context_length": 48, "kv_pool_tokens": 48, "block_size": 4, "max_num_seqs": 4}
    session = open_session(max_num_batched_tokens=12, **options)
    alone = ends(run(session, request("a"), request("a2", prompt_ids=PROMPT[:9])))
    both = ends(
        run(
            session,
            request("b", use_cache=False),
            request("b2", prompt_ids=PROMPT[:9], use_cache=False),
            request("b3", prompt_ids=PROMPT[:9]),
        )
    )
    assert both["b"].token_ids == alone["a"].token_ids
    assert both["b2"].token_ids == both["b3"].token_ids == alone["a2"].token_ids
