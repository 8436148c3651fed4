"""Which sequences run in the next step and how many tokens of each. No tensors, no text.

Running sequences decode first, one token each; what is left of the token budget goes to prefill
chunks in order of arrival. When blocks run out the youngest running sequence is preempted: its
blocks are freed and it waits, first in line, to be computed again.

A sequence that goes on from its first token (without cache, or because its context slid) keeps its
place among the running ones, behind the others: their prompts are not held up by its own.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from engine.block_manager import BlockManager
from engine.host_slots import BlockCopy
from engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """The next `num_tokens` uncomputed tokens of a sequence."""

    sequence: Sequence
    num_tokens: int

    @property
    def is_last(self) -> bool:
        """Whether the chunk reaches the end, so that a token is sampled after it."""
        return self.num_tokens == self.sequence.num_uncomputed_tokens


@dataclass(frozen=True, slots=True)
class ScheduledStep:
    """One step's work. `exhausted` sequences cannot go on: the pool has no block for them.

    `copies`, by cache group and in order, have to be done before anything is computed.
    """

    decode: list[Sequence] = field(default_factory=list)
    prefill: list[PrefillChunk] = field(default_factory=list)
    exhausted: list[Sequence] = field(default_factory=list)
    copies: list[list[BlockCopy]] = field(default_factory=list)

    @property
    def sequences(self) -> list[Sequence]:
        """Everyone taking part, decode rows first."""
        return self.decode + [chunk.sequence for chunk in self.prefill]

    @property
    def num_tokens(self) -> int:
        """Tokens computed in the step."""
        return len(self.decode) + sum(chunk.num_tokens for chunk in self.prefill)


class Scheduler:
    """Owns the waiting and running queues; the block manager owns the blocks.

    `num_preemptions` counts those since the start. Where the cache `fills_blocks_at_once`, a
    prompt's chunks end where a block ends; the budget must then have room for a block besides the
    decode rows.
    """

    def __init__(
        self,
        blocks: BlockManager,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        fills_blocks_at_once: bool = False,
    ) -> None:
        self._blocks = blocks
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._chunk_multiple = blocks.block_size if fills_blocks_at_once else 1
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self.num_preemptions = 0

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence behind the others."""
        self._waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, finished or not, and give its blocks back."""
        if sequence in self._running:
            self._running.remove(sequence)
            self._blocks.release(sequence)
        elif sequence in self._waiting:
            self._waiting.remove(sequence)

    def restart(self, sequence: Sequence) -> None:
        """Let a running sequence be computed again from its first token, with blocks of its own."""
        self._blocks.restart(sequence)
        sequence.num_computed_tokens = 0
        self._running.remove(sequence)
        self._running.append(sequence)

    @property
    def sequences(self) -> list[Sequence]:
        """Everyone, running first."""
        return self._running + list(self._waiting)

    def schedule(self) -> ScheduledStep:
        """Choose the next step's work; its sequences have the blocks they need."""
        step = ScheduledStep()
        self._schedule_decode(step)
        budget = self._max_num_batched_tokens - len(step.decode)
        for sequence in list(self._running):
            if budget and not sequence.is_decoding and sequence not in step.exhausted:
                budget -= self._continue(step, sequence, budget)
        while budget and self._waiting and len(self._running) < self._max_num_seqs:
            sequence = self._waiting[0]
            if not self._blocks.admit(sequence, budget):
                if not self._running:
                    self._waiting.popleft()
                    step.exhausted.append(sequence)
                break
            self._waiting.popleft()
            sequence.tail = self._free_tail()
            self._running.append(sequence)
            if sequence.num_preemptions == 0:
                sequence.num_cached_tokens = sequence.num_computed_tokens
            budget -= self._add_chunk(step, sequence, budget)
        if step.sequences:  # else nothing runs, and copies stay due
            step.copies.extend(self._blocks.take_copies())
        return step

    def commit(self, step: ScheduledStep) -> None:
        """Record that the step's tokens are in the cache."""
        for sequence in step.decode:
            self._advance(sequence, 1)
        for chunk in step.prefill:
            self._advance(chunk.sequence, chunk.num_tokens)

    def check_integrity(self) -> None:
        """Raise AssertionError when queues and blocks disagree."""
        self._blocks.check_integrity()
        assert all(not s.block_tables for s in self._waiting), "a waiting sequence holds blocks"
        for sequence in self._running:
            for table in sequence.block_tables:
                held = len(table) * self._blocks.block_size
                assert sequence.num_computed_tokens <= held, "tokens computed outside of blocks"

    def _schedule_decode(self, step: ScheduledStep) -> None:
        for sequence in list(self._running):
            if sequence not in self._running or not sequence.is_decoding:
                continue
            num_tokens = len(sequence.token_ids)
            while (
                not self._blocks.can_grow(sequence, num_tokens)
                and self._running[-1] is not sequence
            ):
                self._preempt(self._running[-1])
            if self._blocks.can_grow(sequence, num_tokens):
                self._blocks.grow(sequence, num_tokens)
                step.decode.append(sequence)
            elif len(self._running) == 1:
                step.exhausted.append(sequence)
            else:
                self._preempt(sequence)

    def _preempt(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._blocks.release(sequence)
        sequence.num_computed_tokens = 0
        sequence.num_preemptions += 1
        self.num_preemptions += 1
        self._waiting.appendleft(sequence)

    def _continue(self, step: ScheduledStep, sequence: Sequence, budget: int) -> int:
        """The next chunk of a running prompt; windowed groups may lack the blocks, and it waits."""
        end = sequence.num_computed_tokens + self._chunk_tokens(sequence, budget)
        if not self._blocks.can_grow(sequence, end):
            self._preempt(sequence)
            return 0
        self._blocks.grow(sequence, end)
        return self._add_chunk(step, sequence, budget)

    def _add_chunk(self, step: ScheduledStep, sequence: Sequence, budget: int) -> int:
        num_tokens = self._chunk_tokens(sequence, budget)
        if num_tokens:
            step.prefill.append(PrefillChunk(sequence, num_tokens))
        return num_tokens

    def _chunk_tokens(self, sequence: Sequence, budget: int) -> int:
        left = sequence.num_uncomputed_tokens
        return left if left <= budget else budget // self._chunk_multiple * self._chunk_multiple

    def _free_tail(self) -> int:
        """The smallest number that no running sequence has."""
        taken = {sequence.tail for sequence in self._running}
        return next(tail for tail in range(1, self._max_num_seqs + 1) if tail not in taken)

    def _advance(self, sequence: Sequence, num_tokens: int) -> None:
        sequence.num_computed_tokens += num_tokens
        sequence.peak_kv_tokens = max(sequence.peak_kv_tokens, sequence.num_computed_tokens)
        held, peak = sequence.held_blocks, sequence.peak_kv_blocks
        sequence.peak_kv_blocks = list(map(max, held, peak)) if peak else held
        self._blocks.commit(sequence)
