"""A decode step of one sequence on a model without session: the same at each call."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from engine.config import GenerationRequest
from engine.kv_cache import KVCache
from engine.model_runner import ModelRunner
from engine.models.decoder import DecoderModel, kv_cache_groups
from engine.scheduler import ScheduledStep
from engine.sequence import Sequence
from kernels.kv_entries import (
    ChannelGroups,
    KVEntries,
    TokenGroups,
    quantize_by_channel,
    quantize_by_token,
)

BLOCK_SIZE = 16


def lone_step(model: DecoderModel, kv_format: str, context: int) -> Callable[[], float]:
    """Milliseconds of a step whose token is the last of `context`, noise before it."""
    groups = kv_cache_groups(model.config, kv_format)
    blocks = -(-context // BLOCK_SIZE)
    cache = KVCache(
        groups,
        [blocks] * len(groups),
        BLOCK_SIZE,
        model.device,
        max_num_seqs=1,
        max_num_batched_tokens=512,
    )
    for group in groups:
        for layer in group.layers:
            for entries in cache.layer(layer):
                _fill(entries, group.spec.num_kv_heads, group.spec.head_dim)
    runner = ModelRunner(model, cache, context, 1)
    request = GenerationRequest("r", prompt_ids=(1,))
    sequence = Sequence(request, [1] * context, 1, 0, 0, "", tail=1)
    sequence.block_tables = [list(range(1, blocks + 1)) for _ in groups]
    sequence.first_blocks = [0] * len(groups)

    def step() -> float:
        start = time.perf_counter()
        runner.run(ScheduledStep(decode=[sequence]))
        return (time.perf_counter() - start) * 1e3

    return step


def _fill(entries: KVEntries, num_kv_heads: int, head_dim: int) -> None:
    """Every block with the same noise, so that no number is one that processors are slow at."""
    noise = torch.randn(BLOCK_SIZE, num_kv_heads, head_dim)
    if isinstance(entries, TokenGroups):
        entries.data[:] = quantize_by_token(noise, entries.bits)
    elif isinstance(entries, ChannelGroups):
        entries.data[:] = quantize_by_channel(noise)
        entries.tails[:] = noise
    else:
        entries[:] = noise
