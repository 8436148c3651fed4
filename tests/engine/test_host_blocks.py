"""What the pool had no room for comes back from host memory, and changes no answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import memory
from engine.config import EngineConfig, GenerationRequest
from engine.events import BlockMap, Event, GenerationFailed, GenerationFinished
from engine.host_blocks import HostBlocks
from engine.host_slots import BlockCopy
from engine.kv_cache import KVCache, KVCacheGroup, KVCacheSpec
from engine.kv_formats import KV_FORMATS
from engine.local_session import LocalSession
from tests.engine.rig import CPU, GOLDEN, Rig

Opener = Callable[..., LocalSession]
MODELS = {
    "no window": GOLDEN / "tiny" / "gqa",
    "some windows": GOLDEN / "families" / "gemma3",
    "all windows": GOLDEN / "families" / "mistral",
}
GPU = (
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
)
BLOCK = 4
NUM_TOKENS = 9
NUM_TURNS = 3
SMALL = {"block_size": BLOCK, "context_length": 64, "max_num_batched_tokens": 16}
PROMPTS = {"a": tuple(range(50, 71)), "b": tuple(range(100, 140))}


def conversation(rig: Rig, starts: list[list[int]]) -> tuple[list[list[int]], list[int]]:
    """Answers of chats that take turns, each with its history, and how much of it was found."""
    histories, answers, cached = [list(start) for start in starts], [], []
    for turn in range(NUM_TURNS):
        for number, history in enumerate(histories):
            history += [10 * number + turn, 5]
            sequence = rig.start(history, NUM_TOKENS)
            while rig.scheduler.sequences:
                rig.step()
                rig.scheduler.check_integrity()
            answers.append(sequence.completion_ids)
            cached.append(sequence.num_cached_tokens)
            history += sequence.completion_ids
    return answers, cached


@pytest.mark.parametrize("kv_format", KV_FORMATS[1:])
@pytest.mark.parametrize("path", MODELS.values(), ids=MODELS)
def test_hit_evicted_and_restored_answers_are_the_plain_ones(path: Path, kv_format: str) -> None:
    """Three chats take turns; greedy answers are equal however the history is come by."""
    starts = [list(range(begin, begin + 17)) for begin in (40, 80, 120)]

    def run(**options: int) -> tuple[Rig, list[list[int]], list[int]]:
        rig = Rig(path, block_size=BLOCK, budget=12, kv_format=kv_format, **options)
        return (rig, *conversation(rig, starts))

    _, plain, _ = run(num_blocks=64, prefix_caching=False)
    _, hit, found = run(num_blocks=64)
    # Room for one chat, of which windowed groups keep little more than the window.
    small = {"num_blocks": 16, "max_num_seqs": 1}
    _, recomputed, lost = run(**small)
    restoring, restored, fetched = run(**small, num_host_blocks=60)
    assert hit == recomputed == restored == plain
    assert all(found[3:])
    assert sum(lost) < sum(found) / 4
    assert fetched == found
    assert restoring.blocks.num_restored_tokens > sum(found) / 2


def test_an_idle_chat_is_fetched_and_not_computed_again(open_session: Opener) -> None:
    """Another chat fills the pool; the next turn computes little more than the new tokens."""
    endings = {}
    for host_cache_bytes in (0, 1 << 20):
        session = open_session(**SMALL, host_cache_bytes=host_cache_bytes)
        first = ask(session, PROMPTS["a"])
        ask(session, PROMPTS["b"], max_tokens=20)
        assert session._loaded is not None
        assert session._loaded.blocks.num_restored_tokens == 0
        history = first.prompt_ids + first.token_ids
        events = list(session.generate(request((*history, 90, 91, 92))))
        endings[host_cache_bytes] = ended(events)
        [*_, last] = [event for event in events if isinstance(event, BlockMap)]
        cached = endings[host_cache_bytes].metrics.cached_tokens
        assert last.hit_tokens == cached
        if host_cache_bytes:
            assert cached >= len(history) // BLOCK * BLOCK
            assert last.restored_tokens > cached // 2
        else:
            assert cached < len(history) // 2
            assert last.restored_tokens == 0
    assert len({ending.token_ids for ending in endings.values()}) == 1


def test_a_failed_step_leaves_nothing_half_restored(
    open_session: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When copies break, the request fails with a sentence and the next one computes anew."""
    session = open_session(**SMALL, host_cache_bytes=1 << 20)
    first = ask(session, PROMPTS["a"])
    ask(session, PROMPTS["b"], max_tokens=20)

    def broken(self: HostBlocks, copies: object) -> None:
        raise RuntimeError("no memory for copies")

    with monkeypatch.context() as patch:
        patch.setattr(HostBlocks, "carry_out", broken)
        events = list(session.generate(request(PROMPTS["a"])))
    assert any(isinstance(event, GenerationFailed) for event in events)
    again = ask(session, PROMPTS["a"])
    assert again.metrics.cached_tokens == 0
    assert again.token_ids == first.token_ids


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
@given(
    moves=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2), st.booleans()), max_size=30),
    staged_bytes=st.sampled_from([1, 1 << 20]),
)
@settings(deadline=None)
def test_copies_are_done_in_order_over_all_layers(
    device: str, moves: list[tuple[int, int, bool]], staged_bytes: int
) -> None:
    """Any list of copies, few or many staged at once, against one block after the other."""
    cache = KVCache(
        (
            KVCacheGroup(KVCacheSpec(2, 8, "int8"), (0, 2)),
            KVCacheGroup(KVCacheSpec(1, 5, "fp32", window=4), (1,)),
        ),
        (5, 5),
        BLOCK,
        torch.device(device),
        max_num_seqs=1,
        max_num_batched_tokens=8,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.host_blocks._STAGED_BYTES", staged_bytes)
        host = HostBlocks(cache, (3, 3))
    tensors = [cache.block_tensors(group) for group in (0, 1)]
    assert [len(each) for each in tensors] == [4, 2]
    for tensor in (*tensors[0], *tensors[1]):
        tensor.copy_(torch.randn(tensor.shape) * 9)
    expected = [tensor.clone() for tensor in tensors[1]]
    slots = [torch.zeros_like(tensor[:3]) for tensor in expected]
    written: set[int] = set()
    copies = []
    for block, slot, to_host in moves:
        if to_host or slot in written:  # what was never saved is never restored
            copies.append(BlockCopy(block, slot, to_host))
            written.add(slot)
            for tensor, kept in zip(expected, slots, strict=True):
                if to_host:
                    kept[slot] = tensor[block]
                else:
                    tensor[block] = kept[slot]
    untouched = [tensor.clone() for tensor in tensors[0]]
    host.carry_out([[], copies])
    assert all(map(torch.equal, tensors[1], expected))
    assert all(map(torch.equal, tensors[0], untouched))


def test_host_memory_is_taken_for_a_gpu_and_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few pools, a small part of what is free, at most 4 GiB; none beside a pool on the CPU."""

    class Memory:
        available = 16 << 30

    monkeypatch.setattr("engine.memory.psutil.virtual_memory", Memory)
    gpu = torch.device("cuda:0")
    assert memory.host_cache_bytes(gpu, 1_000) == 4_000
    assert memory.host_cache_bytes(gpu, 1 << 30) == 2 << 30
    Memory.available = 1 << 40
    assert memory.host_cache_bytes(gpu, 32 << 30) == 4 << 30
    assert memory.host_cache_bytes(CPU, 1_000) == 0


def test_the_resolved_config_says_how_much(open_session: Opener) -> None:
    """Nothing by itself on a CPU, nothing without prefixes to keep, else what was asked for."""
    for given_bytes, prefix_caching, expected in (
        (None, True, 0),
        (4_096, True, 4_096),
        (4_096, False, 0),
    ):
        session = open_session(**SMALL, host_cache_bytes=given_bytes, prefix_caching=prefix_caching)
        assert session._loaded is not None
        assert session._loaded.config.host_cache_bytes == expected
    with pytest.raises(ValueError, match="host_cache_bytes"):
        EngineConfig("", host_cache_bytes=-1)


def request(prompt: tuple[int, ...], max_tokens: int = NUM_TOKENS) -> GenerationRequest:
    """A greedy request."""
    return GenerationRequest("r", prompt_ids=prompt, max_tokens=max_tokens, ignore_eos=True)


def ask(session: LocalSession, prompt: tuple[int, ...], **options: int) -> GenerationFinished:
    """The end of one answer."""
    return ended(list(session.generate(request(prompt, **options))))


def ended(events: list[Event]) -> GenerationFinished:
    """The one that ended."""
    [end] = [event for event in events if isinstance(event, GenerationFinished)]
    return end
