"""A thousand random lives of a session: whatever is submitted, stepped and cancelled when."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from engine.config import GenerationRequest
from engine.events import Event, GenerationFailed, GenerationFinished, TokenEvent
from engine.local_session import LocalSession

NUM_HISTORIES = {"fp32": 1000, "int4": 300}
# Few blocks, so that preemption happens; a small budget, so that prompts come in chunks.
OPTIONS = {
    "context_length": 48,
    "kv_pool_tokens": 48,
    "block_size": 4,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 12,
}


def make_request(name: str, kind: int) -> GenerationRequest:
    """One of eight requests; prompts overlap, so that prefixes are shared.

    One outgrows its context, which slides, and one computes without the cache.
    """
    length = (3, 18, 9, 30, 14, 22, 5, 27)[kind]
    start = 40 + 10 * (kind % 2)
    prompt = tuple(range(start, start + length))
    return GenerationRequest(
        name,
        prompt_ids=prompt,
        max_tokens=36 if kind == 1 else 4 + 2 * kind,
        ignore_eos=True,
        use_cache=kind != 6,
        on_context_full="slide" if kind == 1 else "stop",
    )


def live_once(
    session: LocalSession, rng: random.Random, history: int
) -> tuple[dict[str, int], set[str], list[Event]]:
    """Random submits, steps and cancels, then steps until nothing is left."""
    kinds: dict[str, int] = {}
    cancelled: set[str] = set()
    events: list[Event] = []
    planned = [f"{history}-{i}" for i in range(rng.randint(1, 4))]
    for _ in range(rng.randint(3, 20)):
        action = rng.choice(("submit", "step", "step", "cancel"))
        if action == "submit" and len(kinds) < len(planned):
            name = planned[len(kinds)]
            kinds[name] = rng.randrange(8)
            session.submit(make_request(name, kinds[name]))
        elif action == "step":
            events += session.step()
        elif action == "cancel" and rng.random() < 0.5:
            name = rng.choice(planned)
            cancelled.add(name)
            session.cancel(name)
    while session.has_work():
        events += session.step()
    return kinds, cancelled, events


@pytest.mark.parametrize("kv_format", ["fp32", "int4"])
def test_random_interleavings(open_session: Callable[..., LocalSession], kv_format: str) -> None:
    """Each request ends once; those not cancelled say what they say alone; every block is free.

    INT4 keys take prompts block by block and keep a tail for each sequence.
    """
    threads_before = threading.active_count()
    session = open_session(**OPTIONS, kv_format=kv_format)
    loaded = session._loaded
    assert loaded is not None
    alone: list[tuple[int, ...]] = []
    for kind in range(8):
        *_, end = [
            e
            for e in session.generate(make_request(f"alone-{kind}", kind))
            if isinstance(e, GenerationFinished)
        ]
        alone.append(end.token_ids)
    rng = random.Random(2026)
    ended_cancelled = 0
    for history in range(NUM_HISTORIES[kv_format]):
        kinds, cancelled, events = live_once(session, rng, history)
        ends = [e for e in events if isinstance(e, GenerationFinished)]
        assert not [e for e in events if isinstance(e, GenerationFailed)]
        assert sorted(e.request_id for e in ends) == sorted(kinds)
        for end in ends:
            expected = alone[kinds[end.request_id]]
            if end.finish_reason == "cancelled":
                ended_cancelled += 1
                assert end.request_id in cancelled
                assert end.token_ids == expected[: len(end.token_ids)]
            else:
                assert end.token_ids == expected
            streamed = [
                e.token_id
                for e in events
                if isinstance(e, TokenEvent) and e.request_id == end.request_id
            ]
            assert tuple(streamed) == end.token_ids
        loaded.scheduler.check_integrity()
        assert loaded.blocks.num_free_blocks == loaded.blocks.num_blocks
    enough = NUM_HISTORIES[kv_format] // 10
    assert ended_cancelled > enough
    assert loaded.scheduler.num_preemptions > enough
    assert threading.active_count() == threads_before
