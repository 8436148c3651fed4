"""Formats of the KV cache: their bytes, and that no way to come by them changes an answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine.config import EngineConfig, kv_pool_bytes
from engine.events import LoadFailed
from engine.kv_cache import KVCache
from engine.kv_formats import KV_FORMATS, kv_format_bytes
from engine.local_session import LocalSession
from engine.models.decoder import kv_cache_groups
from engine.planner.facts import shape_headers
from engine.planner.shapes import SHAPES, Shape, find_shape
from engine.starter import starter_model_path
from kernels.kv_entries import ChannelGroups
from tests.engine.rig import CPU, GOLDEN, Rig

ROOT = Path(__file__).parents[2]
STORED = KV_FORMATS[1:]
# Of BF16, scales and offsets included.
MOST = {"int8": 0.54, "k8v4": 0.42, "int4": 0.33}
NUM_TOKENS = 10
PROMPTS = [list(range(40, 40 + n)) for n in (3, 53, 34, 17)]
TINY = [str(GOLDEN / "tiny" / "gqa"), str(GOLDEN / "families" / "gemma3")]


@pytest.mark.parametrize("name", MOST)
@pytest.mark.parametrize("shape", [s for s in SHAPES if isinstance(s, Shape)], ids=lambda s: s.name)
def test_bytes_of_a_token(name: str, shape: Shape) -> None:
    """What quantizing saves, on every built-in shape."""
    model = shape_headers(shape).config
    sizes = [
        kv_format_bytes(each, model.num_kv_heads, model.head_dim, 16) for each in (name, "bf16")
    ]
    assert sizes[0] <= MOST[name] * sizes[1]


@pytest.mark.parametrize("kv_format", STORED)
@pytest.mark.parametrize("name", ["SmolLM2-135M", "Gemma-3-1B"])
def test_bytes_said_are_bytes_allocated(kv_format: str, name: str) -> None:
    """The formula beside the tensors themselves, tails and null block included."""
    shape = find_shape(name)
    assert isinstance(shape, Shape)
    config = EngineConfig("", kv_format=kv_format, max_num_seqs=3, max_num_batched_tokens=40)
    groups = kv_cache_groups(shape_headers(shape).config, kv_format)
    sizes = tuple(group.size(16) for group in groups)
    cache = KVCache(
        groups,
        [size.pool_blocks(config, 100) for size in sizes],
        16,
        CPU,
        max_num_seqs=3,
        max_num_batched_tokens=40,
    )
    tensors: dict[int, torch.Tensor] = {}
    for group in groups:
        for layer in group.layers:
            for entries in cache.layer(layer):
                parts = [entries] if isinstance(entries, torch.Tensor) else [entries.data]
                if isinstance(entries, ChannelGroups):
                    parts += [entries.tails, entries.fresh]
                tensors |= {part.data_ptr(): part for part in parts}
    total = sum(part.nbytes for part in tensors.values())
    assert cache.reserved_bytes == total == kv_pool_bytes(sizes, config, 100)


GROWTH = """
import sys
import psutil, torch
from engine.kv_cache import KVCache, KVCacheGroup, KVCacheSpec

group = KVCacheGroup(KVCacheSpec(8, 64, sys.argv[1]), tuple(range(16)))
num_blocks = (1 << 30) // (16 * group.size(16).bytes_per_token)
process = psutil.Process()
before = process.memory_info().rss
limits = {"max_num_seqs": 8, "max_num_batched_tokens": 512}
cache = KVCache((group,), [num_blocks], 16, torch.device("cpu"), **limits)
for tensor in cache.block_tensors(0):
    tensor.fill_(1)
print(process.memory_info().rss - before, cache.reserved_bytes)
"""


@pytest.mark.parametrize("kv_format", ["bf16", "int4"])
def test_a_touched_pool_takes_what_is_said(kv_format: str) -> None:
    """1 GiB of blocks of a 1B shape, written once, in a process of its own: within 2 %."""
    command = [sys.executable, "-c", GROWTH, kv_format]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    grown, said = map(int, done.stdout.split())
    assert said == pytest.approx(1 << 30, rel=0.02)
    assert grown == pytest.approx(said, rel=0.02)


@pytest.fixture(params=STORED)
def kv_format(request: pytest.FixtureRequest) -> str:
    """Every format."""
    name: str = request.param
    return name


def finish(rig: Rig) -> None:
    """Step until all are done, the books in order throughout."""
    while rig.scheduler.sequences:
        rig.step()
        rig.scheduler.check_integrity()


@pytest.mark.parametrize("path", TINY)
def test_no_history_changes_an_answer(path: str, kv_format: str) -> None:
    """Chunked and in a batch, from a prefix, pushed out and computed again: as alone and whole.

    One model looks at everything, the other one has windows too.
    """
    alone = [
        Rig(path, kv_format=kv_format, block_size=4).generate(prompt, NUM_TOKENS)
        for prompt in PROMPTS
    ]
    for budget in (12, 21):
        rig = Rig(path, kv_format=kv_format, block_size=4, num_blocks=64, budget=budget)
        sequences = [rig.start(prompt, NUM_TOKENS) for prompt in PROMPTS]
        finish(rig)
        assert [s.completion_ids for s in sequences] == alone
        again = [rig.start(prompt, NUM_TOKENS) for prompt in PROMPTS]
        finish(rig)
        assert [s.completion_ids for s in again] == alone
        assert any(s.num_cached_tokens for s in again)
    rig = Rig(path, kv_format=kv_format, block_size=4, num_blocks=18, budget=12)
    sequences = [rig.start(PROMPTS[i], NUM_TOKENS) for i in (0, 1, 3, 2)]
    finish(rig)
    assert [s.completion_ids for s in sequences] == [alone[i] for i in (0, 1, 3, 2)]
    assert sum(s.num_preemptions for s in sequences) > 0


@pytest.mark.starter
def test_decode_loses_no_more_than_prefill(kv_format: str) -> None:
    """Mean KL divergence, in nats, of the starter's recorded native steps from an FP32 cache.

    A last digit decides how a key is rounded, so paths over quantized keys differ; what they lose
    must not.
    """
    path = starter_model_path()
    assert path is not None, "the starter model is not installed: run make test"
    prompts = json.loads((GOLDEN / "smollm2.json").read_text(encoding="utf-8"))["prompts"][:4]
    ids = [token for p in prompts for token in p["prompt_ids"] + p["token_ids"]][:120]
    exact = _prefill_logits(path, "fp32", ids)
    many = _prefill_logits(path, kv_format, ids)
    few = Rig(path, kv_format=kv_format).decode_forced(ids, 20)
    lost = _divergence(exact, many)
    assert lost <= {"int8": 1e-3, "k8v4": 0.02, "int4": 0.03}.get(kv_format, 1e-4)
    assert _divergence(exact, few) <= 1.5 * lost + 1e-5


@torch.inference_mode()
def _prefill_logits(path: str, kv_format: str, ids: list[int]) -> torch.Tensor:
    """Logits behind the first 20 tokens of a prompt that is computed at once."""
    rig = Rig(path, kv_format=kv_format)
    rig.start(ids, 1)
    hidden = rig.runner.hidden_states(rig.scheduler.schedule().prefill)
    return rig.runner.logits(hidden)[20:]


def _divergence(exact: torch.Tensor, other: torch.Tensor) -> float:
    first, second = exact.log_softmax(-1), other.log_softmax(-1)
    return float((first.exp() * (first - second)).sum(-1).mean())


def test_a_format_that_does_not_pack_is_refused(tiny_model: Path) -> None:
    """Blocks of 5 tokens of a head of 12: the sentence names what can be had instead."""
    session = LocalSession()
    config = EngineConfig(str(tiny_model), kv_format="int4", block_size=5, device="cpu")
    *_, failed = session.load(config)
    session.close()
    assert isinstance(failed, LoadFailed)
    assert failed.what.endswith("cannot be kept in int4.")
    assert failed.next == "Choose one of fp32, bf16, int8, k8v4."
