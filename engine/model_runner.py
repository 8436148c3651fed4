"""Sequences to tensors, forward pass, logits to ids. Knows nothing of scheduling policy.

A step's decode rows and its prefill chunks run as two sub-batches: decode is the one that a
recorded step will replay, prefill the dense one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from engine.kv_cache import NULL_BLOCK, KVCache
from engine.layers.attention_metadata import DecodeMetadata, PrefillMetadata
from engine.models.llama import LayerTimes, LlamaModel
from engine.sampler import SampleRow, sample
from engine.scheduler import PrefillChunk, ScheduledStep
from engine.sequence import Sequence
from kernels.reference import PrefillSpan


@dataclass(slots=True)
class RunTimes:
    """Where the time of one step went, in nanoseconds."""

    layers: LayerTimes = field(default_factory=LayerTimes)
    head_ns: int = 0
    sample_ns: int = 0


@dataclass(frozen=True, slots=True)
class RunResult:
    """Token ids by sequence, decode rows first, for those that sample in this step."""

    sampled: list[tuple[Sequence, int]]
    times: RunTimes


class ModelRunner:
    """Runs scheduled steps on one model and its cache."""

    def __init__(self, model: LlamaModel, cache: KVCache) -> None:
        self._model = model
        self._cache = cache
        self._device = model.device

    @torch.inference_mode()
    def run(self, step: ScheduledStep, aborted: Callable[[], bool]) -> RunResult:
        """Compute a step and sample. Raises StepAborted between layers once `aborted()`."""
        times = RunTimes()
        hidden, sampling = [], []
        if step.decode:
            hidden.append(self._decode(step.decode, aborted, times.layers))
            sampling += step.decode
        last_chunks = [chunk.sequence for chunk in step.prefill if chunk.is_last]
        if step.prefill:
            rows = self._prefill(step.prefill, aborted, times.layers)
            if last_chunks:
                hidden.append(rows)
                sampling += last_chunks
        if not sampling:
            return RunResult([], times)
        start = time.perf_counter_ns()
        logits = self._model.logits(torch.cat(hidden) if len(hidden) > 1 else hidden[0])
        middle = time.perf_counter_ns()
        ids = sample(logits, [sample_row(sequence) for sequence in sampling])
        times.head_ns = middle - start
        times.sample_ns = time.perf_counter_ns() - middle
        return RunResult(list(zip(sampling, ids, strict=True)), times)

    def _decode(
        self, sequences: list[Sequence], aborted: Callable[[], bool], times: LayerTimes
    ) -> torch.Tensor:
        ids = self._ids([sequence.token_ids[-1] for sequence in sequences])
        positions = [len(sequence.token_ids) - 1 for sequence in sequences]
        metadata = tuple(
            self._decode_metadata(
                [sequence.block_tables[group] for sequence in sequences], positions
            )
            for group in range(len(self._cache.groups))
        )
        return self._model.forward(ids, self._ids(positions), self._cache, metadata, aborted, times)

    def _decode_metadata(self, tables: list[list[int]], positions: list[int]) -> DecodeMetadata:
        size = self._cache.block_size
        slots = [
            table[position // size] * size + position % size
            for table, position in zip(tables, positions, strict=True)
        ]
        width = max(position // size + 1 for position in positions)
        padded = [(table + [NULL_BLOCK] * (width - len(table)))[:width] for table in tables]
        return DecodeMetadata(
            slot_mapping=self._ids(slots),
            block_tables=torch.tensor(padded, device=self._device),
            context_lens=self._ids([position + 1 for position in positions]),
        )

    def _prefill(
        self, chunks: list[PrefillChunk], aborted: Callable[[], bool], times: LayerTimes
    ) -> torch.Tensor:
        """Hidden states of the last token of each chunk that reaches its end."""
        ids: list[int] = []
        positions: list[int] = []
        for chunk in chunks:
            start = chunk.sequence.num_computed_tokens
            ids += chunk.sequence.token_ids[start : start + chunk.num_tokens]
            positions += range(start, start + chunk.num_tokens)
        metadata = tuple(
            self._prefill_metadata(chunks, group) for group in range(len(self._cache.groups))
        )
        hidden = self._model.forward(
            self._ids(ids), self._ids(positions), self._cache, metadata, aborted, times
        )
        ends, end = [], 0
        for chunk in chunks:
            end += chunk.num_tokens
            if chunk.is_last:
                ends.append(end - 1)
        return hidden[ends]

    def _prefill_metadata(self, chunks: list[PrefillChunk], group: int) -> PrefillMetadata:
        size = self._cache.block_size
        slots: list[torch.Tensor] = []
        spans: list[PrefillSpan] = []
        for chunk in chunks:
            start = chunk.sequence.num_computed_tokens
            end = start + chunk.num_tokens
            table = self._ids(chunk.sequence.block_tables[group][: -(-end // size)])
            positions = torch.arange(start, end, device=self._device)
            slots.append(table[positions // size] * size + positions % size)
            spans.append(PrefillSpan(chunk.num_tokens, end, table))
        return PrefillMetadata(torch.cat(slots), tuple(spans))

    def _ids(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)


def sample_row(sequence: Sequence) -> SampleRow:
    """How the next token of a sequence is sampled."""
    return SampleRow(
        params=sequence.request.sampling,
        seed=sequence.seed,
        position=len(sequence.token_ids),
        context=sequence.token_ids,
        num_prompt_tokens=sequence.num_prompt_tokens,
    )
