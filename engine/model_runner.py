"""Sequences to tensors, forward pass, logits to ids. Knows nothing of scheduling policy.

A step's decode rows and its prefill chunks run as two sub-batches: decode is a recorded step that
is replayed, prefill the dense one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.decode_step import RANKED, DecodeStep
from engine.host_blocks import HostBlocks
from engine.kv_cache import KVCache
from engine.layers.attention_metadata import PrefillMetadata
from engine.models.decoder import DecoderModel
from engine.sampler import Ranking, SampleRow, ranked_logits, sample
from engine.scheduler import PrefillChunk, ScheduledStep
from engine.sequence import Sequence
from kernels.recording import CancelCell
from kernels.reference import PrefillSpan
from kernels.stages import Stage, StageClock


@dataclass(frozen=True, slots=True)
class RunResult:
    """Token ids by sequence, decode rows first, for those that sample in this step."""

    sampled: list[tuple[Sequence, int]]


class ModelRunner:
    """Runs scheduled steps on one model and its cache.

    `context_length` and `max_num_seqs` bound what a decode step is recorded for. Setting `cancel`
    leaves a step between two layers or operations. `host` has blocks that were evicted.
    """

    def __init__(
        self,
        model: DecoderModel,
        cache: KVCache,
        context_length: int,
        max_num_seqs: int,
        cancel: CancelCell | None = None,
        host: HostBlocks | None = None,
    ) -> None:
        self._model = model
        self._cache = cache
        self._host = host
        self._device = model.device
        self._cancel = CancelCell() if cancel is None else cancel
        self._max_num_seqs = max_num_seqs
        self._table_width = -(-context_length // cache.block_size)
        self._decode_steps: dict[tuple[int, int], DecodeStep] = {}

    @property
    def clock(self) -> StageClock:
        """Where the time of the last step went."""
        return self._model.kernels.clock

    @torch.inference_mode()
    def run(self, step: ScheduledStep) -> RunResult:
        """Compute a step and sample. Raises StepAborted when `cancel` was set meanwhile."""
        self.clock.clear()
        if self._host is not None:
            self._host.carry_out(step.copies)
        sampled: list[tuple[Sequence, int]] = []
        if step.decode:
            sampled += self._decode(step.decode)
        if step.prefill:
            sampled += self._prefill(step.prefill)
        return RunResult(sampled)

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Record the steps of a single chat, whose first token nobody should wait for."""
        for num_ranked in RANKED:
            self._decode_step(1, num_ranked)

    @torch.inference_mode()
    def hidden_states(self, chunks: list[PrefillChunk]) -> torch.Tensor:
        """Hidden states [T, hidden] of every token of the chunks, one chunk after the other.

        Raises StepAborted when `cancel` was set meanwhile.
        """
        ids: list[int] = []
        positions: list[int] = []
        for chunk in chunks:
            start = chunk.sequence.num_computed_tokens
            ids += chunk.sequence.token_ids[start : start + chunk.num_tokens]
            positions += range(start, start + chunk.num_tokens)
        metadata = tuple(
            self._prefill_metadata(chunks, group) for group in range(len(self._cache.groups))
        )
        return self._model.forward(
            self._ids(ids), self._ids(positions), self._cache, metadata, self._cancel
        )

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """FP32 logits [rows, vocab] of hidden states [rows, hidden]."""
        return self._model.logits(hidden)

    @torch.inference_mode()
    def decode_logits(self, sequences: list[Sequence]) -> torch.Tensor:
        """FP32 logits [n, vocab] after the newest token of each, by the recorded step.

        They are overwritten by the next step. Raises StepAborted like `run`.
        """
        logits, _ = self._decode_step(len(sequences), RANKED[0]).run(sequences)
        return logits[: len(sequences)]

    def _decode(self, sequences: list[Sequence]) -> list[tuple[Sequence, int]]:
        num_ranked = max(ranked_logits(sequence.request.sampling) for sequence in sequences)
        logits, ranked = self._decode_step(len(sequences), num_ranked).run(sequences)
        return self._sample(sequences, logits, ranked)

    def _decode_step(self, count: int, num_ranked: int) -> DecodeStep:
        """The recorded step with room for `count` rows that ranks at least `num_ranked` logits."""
        num_rows = min(1 << (count - 1).bit_length(), max(count, self._max_num_seqs))
        key = (num_rows, next(size for size in RANKED if size >= num_ranked))
        if key not in self._decode_steps:
            self._decode_steps[key] = DecodeStep(
                self._model, self._cache, key[0], self._table_width, key[1], self._cancel
            )
        return self._decode_steps[key]

    def _sample(
        self, sequences: list[Sequence], logits: torch.Tensor, ranked: Ranking | None
    ) -> list[tuple[Sequence, int]]:
        self.clock.begin(Stage.SAMPLE)
        ids = sample(logits, [sample_row(sequence) for sequence in sequences], ranked)
        self.clock.end()
        return list(zip(sequences, ids, strict=True))

    def _prefill(self, chunks: list[PrefillChunk]) -> list[tuple[Sequence, int]]:
        """Compute chunks; a token for each that reaches its end."""
        hidden = self.hidden_states(chunks)
        ends, end = [], 0
        for chunk in chunks:
            end += chunk.num_tokens
            if chunk.is_last:
                ends.append(end - 1)
        logits = self._model.logits(hidden[ends]) if ends else None
        self.clock.end()
        if logits is None:
            return []
        return self._sample([chunk.sequence for chunk in chunks if chunk.is_last], logits, None)

    def _prefill_metadata(self, chunks: list[PrefillChunk], group: int) -> PrefillMetadata:
        size = self._cache.block_size
        slots: list[torch.Tensor] = []
        tails: list[int] = []
        spans: list[PrefillSpan] = []
        for chunk in chunks:
            start = chunk.sequence.num_computed_tokens
            end = start + chunk.num_tokens
            table = self._ids(chunk.sequence.block_tables[group][: -(-end // size)])
            positions = torch.arange(start, end, device=self._device)
            slots.append(table[positions // size] * size + positions % size)
            spans.append(PrefillSpan(chunk.num_tokens, end, table))
            tails += [chunk.sequence.tail] * chunk.num_tokens
        return PrefillMetadata(torch.cat(slots), tuple(spans), self._ids(tails))

    def _ids(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)


def sample_row(sequence: Sequence) -> SampleRow:
    """How the next token of a sequence is sampled."""
    return SampleRow(
        params=sequence.request.sampling,
        seed=sequence.seed,
        position=sequence.num_tokens,
        context=sequence.token_ids,
        num_prompt_tokens=sequence.num_prompt_tokens_seen,
    )
