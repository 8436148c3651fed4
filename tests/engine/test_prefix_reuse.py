"""What the cache remembers over turns, chats, edits and evictions; it changes no answer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from engine.config import GenerationRequest
from engine.events import BlockMap, Event, GenerationFinished, PrefillDone
from engine.kv_formats import KV_FORMATS
from engine.local_session import LocalSession

Opener = Callable[..., LocalSession]
BLOCK = 4
SMALL = {"block_size": BLOCK, "context_length": 64, "max_num_batched_tokens": 16}
SYSTEM = tuple(range(30, 42))
FIRST = (*SYSTEM, *range(50, 59))
SECOND = (*SYSTEM, *range(70, 81))


def ask(name: str, prompt: tuple[int, ...], max_tokens: int = 9) -> GenerationRequest:
    """A greedy request."""
    return GenerationRequest(name, prompt_ids=prompt, max_tokens=max_tokens, ignore_eos=True)


def answer(session: LocalSession, prompt: tuple[int, ...]) -> GenerationFinished:
    """The end of one answer."""
    return ends(list(session.generate(ask("r", prompt))))["r"]


def ends(events: list[Event]) -> dict[str, GenerationFinished]:
    """Who ended how."""
    return {e.request_id: e for e in events if isinstance(e, GenerationFinished)}


def run(session: LocalSession) -> list[Event]:
    """Step until nothing is left."""
    events: list[Event] = []
    while session.has_work():
        events += session.step()
    return events


def blocks_of(num_tokens: int) -> int:
    """Rounded down to whole blocks."""
    return num_tokens // BLOCK * BLOCK


def test_regenerating_finds_the_whole_prompt(open_session: Opener) -> None:
    """All full blocks of the prompt but its last token, and the same answer."""
    session = open_session(**SMALL)
    first, again = answer(session, FIRST), answer(session, FIRST)
    assert first.metrics.cached_tokens == 0
    assert again.metrics.cached_tokens == blocks_of(len(FIRST) - 1)
    assert again.token_ids == first.token_ids


def test_switching_chats_keeps_both(open_session: Opener) -> None:
    """Another chat shares the common beginning; back in the first one its history is found."""
    session = open_session(**SMALL, kv_pool_tokens=128)
    first = answer(session, FIRST)
    assert answer(session, SECOND).metrics.cached_tokens == blocks_of(len(SYSTEM))
    history = first.prompt_ids + first.token_ids
    back = answer(session, (*history, 90, 91, 92))
    assert back.metrics.cached_tokens >= blocks_of(len(history))


@pytest.mark.parametrize("kept", [12, 17, 20])
def test_editing_recomputes_only_from_there(open_session: Opener, kept: int) -> None:
    """Of an edited prompt all blocks before the edit are found, and nothing behind it."""
    session = open_session(**SMALL)
    answer(session, FIRST)
    edited = (*FIRST[:kept], 100, 101, *FIRST[kept + 2 :], 102)
    fresh = answer(open_session(**SMALL), edited)
    end = answer(session, edited)
    assert end.metrics.cached_tokens == blocks_of(kept)
    assert end.token_ids == fresh.token_ids


@pytest.mark.parametrize("kv_format", KV_FORMATS[1:])
def test_evicted_and_preempted_answers_are_the_plain_ones(
    open_session: Opener, kv_format: str
) -> None:
    """In a pool that is too small chats push each other out; greedy answers do not change."""
    prompts = {"a": FIRST, "b": SECOND, "c": (*FIRST[:15], 3, 4), "d": FIRST}
    plain = open_session(**SMALL, kv_format=kv_format, prefix_caching=False)
    expected = {name: answer(plain, prompt).token_ids for name, prompt in prompts.items()}
    session = open_session(**SMALL, kv_format=kv_format, kv_pool_tokens=64, max_num_seqs=4)
    events: list[Event] = []
    for _ in range(3):
        for name, prompt in prompts.items():
            session.submit(ask(name, prompt))
        told = run(session)
        assert {name: end.token_ids for name, end in ends(told).items()} == expected
        events += told
    loaded = session._loaded
    assert loaded is not None
    assert loaded.scheduler.num_preemptions > 0
    last = [event for event in events if isinstance(event, BlockMap)][-1]
    assert last.evicted_blocks > 0
    assert last.hit_tokens > 0
    assert any(e.cached_tokens for e in events if isinstance(e, PrefillDone))


def test_the_block_map_follows_an_answer(open_session: Opener) -> None:
    """One at the start and one at the end whatever the pace: used while it runs, then cached."""
    session = open_session(**SMALL)
    events = list(session.generate(ask("r", FIRST, 20)))
    maps = [e for e in events if isinstance(e, BlockMap)]
    first, last = maps[0].groups[0], maps[-1].groups[0]
    assert maps[0].owners[0].request_id == "r"
    assert maps[0].owners[0].is_running
    assert maps[0].owners[0].unused_tokens == (-len(FIRST) % BLOCK,)
    assert sum(first.used) == -(-len(FIRST) // BLOCK)
    assert sum(last.used) == 0
    # The last sampled token is not stored, unless it completes a block.
    assert sum(last.cached) == (len(FIRST) + 20 - 1) // BLOCK
    assert maps[-1].queried_tokens == len(FIRST)
    # The end tells the last tables, which begin with those told on the way.
    (table,) = ends(events)["r"].block_tables
    (begun,) = maps[0].owners[0].block_tables
    assert table[: len(begun)] == begun
    cached = {number for number, held in enumerate(last.cached, 1) if held}
    assert cached == set(table[: len(cached)])
    assert maps[-1].owners[0].block_tables == ()


def test_maps_are_told_a_few_times_a_second(open_session: Opener) -> None:
    """Not with every token: at most one in a quarter of a second, and one at the end."""
    session = open_session(**SMALL)
    now = [10**12]

    def clock() -> int:
        now[0] += 5_000_000  # each look at the clock takes 5 ms
        return now[0]

    session._clock = clock
    events = list(session.generate(ask("r", FIRST, 40)))
    stamps = [event.t_ns for event in events if isinstance(event, BlockMap)]
    gaps = [(b - a) / 1e6 for a, b in pairwise(stamps[:-1])]
    assert len(gaps) > 1
    assert all(gap >= 250 for gap in gaps)
