"""The block manager against a plain record of what every block holds, over random histories."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from engine.block_manager import BlockManager, BlockState, PoolSpec
from engine.block_map import MAX_CELLS, block_map
from engine.config import GenerationRequest
from engine.kv_cache import NULL_BLOCK
from engine.sequence import Sequence

BLOCK = 4
EXAMPLES, STEPS = 220, 60
picks = st.integers(0, 99)
# Two tokens only, so that prefixes meet by themselves too.
texts = st.lists(st.integers(1, 2), min_size=1, max_size=26)


def make(name: str, tokens: list[int], *, use_cache: bool = True) -> Sequence:
    """A sequence with these tokens."""
    request = GenerationRequest(name, prompt_ids=tuple(tokens), use_cache=use_cache)
    return Sequence(request, tokens, 99, 0, 0, "")


class BlockHistories(RuleBasedStateMachine):
    """Allocate, append, fork, free, hit, evict, preempt, slide and leave windows, in any order.

    `contents` records, by group and block, the prefix that was stored there last: what a kernel
    would read. `freed_at` records when a block was let go of by its last user.
    """

    specs: tuple[PoolSpec, ...] = (PoolSpec(12),)
    operations = 0

    def __init__(self) -> None:
        super().__init__()
        self.blocks = BlockManager(self.specs, BLOCK, prefix_caching=True, root="model bf16")
        self.contents: list[dict[int, tuple[int, ...]]] = [{} for _ in self.specs]
        self.freed_at: list[dict[int, int]] = [{} for _ in self.specs]
        self.clock = 0
        self.running: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self.ended: list[list[int]] = []
        self.num_started = 0

    # --- operations -----------------------------------------------------------------------

    @rule(tokens=texts, chunk=st.integers(1, 12))
    def allocate(self, tokens: list[int], chunk: int) -> None:
        """A new prompt, whose first chunk is computed."""
        self._start(tokens, chunk)

    @rule(pick=picks, length=st.integers(1, 26), tail=texts)
    def fork(self, pick: int, length: int, tail: list[int]) -> None:
        """A branch of a running text: it shares full blocks and has a last one of its own."""
        if self.running:
            other = self.running[pick % len(self.running)]
            self._start(other.token_ids[:length] + tail[:6], chunk=12)

    @rule(pick=picks, tail=texts)
    def hit(self, pick: int, tail: list[int]) -> None:
        """The next turn of a text that has ended."""
        if self.ended:
            self._start(self.ended[pick % len(self.ended)] + tail[:6], chunk=12)

    @rule(token=st.integers(3, 9))
    def evict(self, token: int) -> None:
        """A prompt that nothing is known of and that takes most of the pool."""
        self._start([token] * (BLOCK * (self.blocks.num_blocks - 2)), chunk=12)

    @rule(pick=picks, tokens=st.lists(st.integers(1, 2), min_size=1, max_size=9))
    def append(self, pick: int, tokens: list[int]) -> None:
        """Tokens are added and everything up to them is computed, chunk by chunk."""
        if not self.running:
            return
        sequence = self.running[pick % len(self.running)]
        sequence.token_ids += tokens
        while sequence.num_uncomputed_tokens:
            end = sequence.num_computed_tokens + min(5, sequence.num_uncomputed_tokens)
            if not self.blocks.can_grow(sequence, end):
                self._preempt(sequence)
                return
            with self._watching_evictions():
                self.blocks.grow(sequence, end)
            self._compute(sequence, end)

    @rule(tokens=texts, chunk=st.integers(1, 12))
    def allocate_without_cache(self, tokens: list[int], chunk: int) -> None:
        """A prompt that finds nothing and that nobody finds."""
        counts = self.blocks.num_queried_tokens, self.blocks.num_hit_tokens
        self._start(tokens, chunk, use_cache=False)
        assert counts == (self.blocks.num_queried_tokens, self.blocks.num_hit_tokens)

    @rule(pick=picks, num_first=st.integers(0, 9))
    def slide(self, pick: int, num_first: int) -> None:
        """Of a long text the two ends are kept; what is stored anew has other names."""
        if not self.running:
            return
        sequence = self.running[pick % len(self.running)]
        num_last = len(sequence.token_ids) // 2
        if 0 < num_last < len(sequence.token_ids) - num_first:
            sequence.drop_between(num_first, num_last)
        with self._noting_freed(sequence):
            self.blocks.restart(sequence)
        sequence.num_computed_tokens = 0

    @rule(pick=picks)
    def free(self, pick: int) -> None:
        """A text ends; its full blocks can be found again."""
        if self.running:
            sequence = self.running.pop(pick % len(self.running))
            self.ended.append(sequence.token_ids)
            self._release(sequence)

    @rule(pick=picks)
    def preempt(self, pick: int) -> None:
        """Another one needs the blocks; the text waits."""
        if self.running:
            self._preempt(self.running[pick % len(self.running)])

    @rule(pick=picks, chunk=st.integers(1, 12))
    def resume(self, pick: int, chunk: int) -> None:
        """A text that waits is admitted again."""
        if self.waiting:
            self._admit(self.waiting.pop(pick % len(self.waiting)), chunk)

    # --- invariants -----------------------------------------------------------------------

    @invariant()
    def books_balance(self) -> None:
        """References are those of the tables, and nobody holds the null block for its own."""
        type(self).operations += 1
        self.blocks.check_integrity()
        for group, pool in enumerate(self.blocks.pools):
            held = [b for s in self.running for b in s.block_tables[group][s.first_blocks[group] :]]
            assert NULL_BLOCK not in held
            for block in range(1, pool.num_blocks + 1):
                users = held.count(block)
                assert pool.is_free(block) == (users == 0)
                assert (pool.states[block] == BlockState.SHARED) == (users > 1)

    @invariant()
    def everyone_reads_their_own_text(self) -> None:
        """What a table leads to is the prefix itself: sharing never mixed two texts."""
        for sequence in self.running:
            for group, table in enumerate(sequence.block_tables):
                for index in range(sequence.first_blocks[group], len(table)):
                    end = min((index + 1) * BLOCK, sequence.num_computed_tokens)
                    if end > index * BLOCK:
                        stored = self.contents[group][table[index]]
                        assert stored[:end] == tuple(sequence.token_ids[:end])

    @invariant()
    def windows_are_let_go_of(self) -> None:
        """A table holds what the next token looks at and nothing before it."""
        for sequence in self.running:
            for spec, table in zip(self.specs, sequence.block_tables, strict=True):
                first = 0
                if spec.window is not None:
                    first = max(0, sequence.num_computed_tokens + 1 - spec.window) // BLOCK
                assert set(table[:first]) <= {NULL_BLOCK}
                assert NULL_BLOCK not in table[first:]

    @invariant()
    def the_map_tells_the_same(self) -> None:
        """States and tokens of the map are those of the record; waste stays below a block."""
        drawn = block_map(self.blocks, self.running, 0)
        unused = {owner.request_id: owner.unused_tokens for owner in drawn.owners}
        names = [owner.request_id for owner in drawn.owners]
        for group, cells in enumerate(drawn.groups):
            for sequence in self.running:
                assert 0 <= unused[sequence.request_id][group] < BLOCK
            for cell in range(cells.num_blocks):
                holders = [s for s in self.running if cell + 1 in s.block_tables[group]]
                assert (cells.used[cell], cells.shared[cell]) == (
                    len(holders) == 1,
                    len(holders) > 1,
                )
                owners = {n for bit, n in enumerate(names) if cells.owners[cell] >> bit & 1}
                if holders:
                    assert owners == {s.request_id for s in holders}
                    index = holders[0].block_tables[group].index(cell + 1)
                    done = holders[0].num_computed_tokens - index * BLOCK
                    assert cells.tokens[cell] == max(0, min(BLOCK, done))
                else:
                    assert len(owners) == cells.cached[cell]
                    assert cells.tokens[cell] == BLOCK * cells.cached[cell]

    def teardown(self) -> None:
        """In the end every block comes back."""
        for sequence in self.running:
            self.blocks.release(sequence)
        self.blocks.check_integrity()
        assert all(pool.num_free == pool.num_blocks for pool in self.blocks.pools)

    # --- how it goes ----------------------------------------------------------------------

    def _start(self, tokens: list[int], chunk: int, *, use_cache: bool = True) -> None:
        self.num_started += 1
        name = f"r{self.num_started}"
        self._admit(make(name, list(tokens), use_cache=use_cache), chunk)

    def _admit(self, sequence: Sequence, chunk: int) -> None:
        known = len(sequence.token_ids)
        with self._watching_evictions():
            if not self.blocks.admit(sequence, chunk):
                self.waiting.append(sequence)
                return
        self.running.append(sequence)
        found = sequence.num_computed_tokens
        assert found % BLOCK == 0
        assert found == 0 or sequence.request.use_cache
        assert found < known, "the last token has to be computed"
        self._compute(sequence, min(known, found + chunk))

    def _compute(self, sequence: Sequence, end: int) -> None:
        """Store what a step would store, then commit it."""
        for group, table in enumerate(sequence.block_tables):
            for index in range(sequence.num_computed_tokens // BLOCK, -(-end // BLOCK)):
                stored = sequence.token_ids[: min(end, (index + 1) * BLOCK)]
                self.contents[group][table[index]] = tuple(stored)
        before = [list(table) for table in sequence.block_tables]
        firsts = list(sequence.first_blocks)
        sequence.num_computed_tokens = end
        self.blocks.commit(sequence)
        for group, table in enumerate(before):
            self._note_freed(group, table[firsts[group] : sequence.first_blocks[group]])

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._release(sequence)
        sequence.num_computed_tokens = 0
        self.waiting.append(sequence)

    def _release(self, sequence: Sequence) -> None:
        with self._noting_freed(sequence):
            self.blocks.release(sequence)

    @contextmanager
    def _noting_freed(self, sequence: Sequence) -> Iterator[None]:
        """All that a sequence holds is let go of, the tail first."""
        held = [
            table[first:]
            for table, first in zip(sequence.block_tables, sequence.first_blocks, strict=True)
        ]
        yield
        for group, blocks in enumerate(held):
            self._note_freed(group, blocks[::-1])

    def _note_freed(self, group: int, blocks: list[int]) -> None:
        for block in blocks:
            if self.blocks.pools[group].is_free(block):
                self.clock += 1
                self.freed_at[group][block] = self.clock

    @contextmanager
    def _watching_evictions(self) -> Iterator[None]:
        """Blocks without a prefix go first, then the prefixes that were let go of first."""
        pools = self.blocks.pools
        before = [(bytes(pool.states), pool.num_evictions) for pool in pools]
        yield
        for pool, (states, count), freed_at in zip(pools, before, self.freed_at, strict=True):
            cached = [b for b in range(1, pool.num_blocks + 1) if states[b] == BlockState.CACHED]
            kept = [b for b in cached if pool.states[b] == BlockState.CACHED]
            evicted = [b for b in cached if b not in kept and pool._hashes[b] is None]
            assert pool.num_evictions - count == len(evicted)
            if evicted:
                free = {b for b in range(1, len(states)) if states[b] == BlockState.FREE}
                assert not any(pool.is_free(block) for block in free)
                latest = max(freed_at[block] for block in evicted)
                assert all(latest < freed_at[block] for block in kept)


class SeveralGroups(BlockHistories):
    """A group that looks at everything beside two with windows."""

    specs = (PoolSpec(12), PoolSpec(8, window=6), PoolSpec(9, window=9))


@pytest.mark.parametrize("machine", [BlockHistories, SeveralGroups])
def test_any_history_keeps_the_invariants(machine: type[BlockHistories]) -> None:
    """Ten thousand operations on a small pool, over one cache group and over several."""
    machine.operations = 0
    run_state_machine_as_test(
        machine, settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None)
    )
    assert machine.operations >= 10_000


def test_another_model_finds_nothing() -> None:
    """Names are rooted in model and formats: equal tokens of two models are different blocks."""
    names = []
    for root in ("one bf16", "one int8"):
        blocks = BlockManager([PoolSpec(4)], BLOCK, prefix_caching=True, root=root)
        sequence = make("r", list(range(9)))
        assert blocks.admit(sequence, 9)
        sequence.num_computed_tokens = 9
        blocks.commit(sequence)
        names.append(set(sequence.block_names))
    assert not names[0] & names[1]


def test_the_map_of_a_large_pool_is_bounded_and_exact() -> None:
    """100,000 blocks in at most 2,048 cells: every block is counted, whoever fills a cell named."""
    num_blocks = 100_000
    blocks = BlockManager([PoolSpec(num_blocks)], BLOCK, prefix_caching=True)
    first, second = make("a", [1] * 120_000), make("b", [2] * 80_002)
    for sequence in (first, second):
        assert blocks.admit(sequence, 10**6)
        sequence.num_computed_tokens = len(sequence.token_ids)
        blocks.commit(sequence)
    blocks.release(first)
    drawn = block_map(blocks, [second], 0)
    [group] = drawn.groups
    assert len(group.used) <= MAX_CELLS
    assert sum(group.cached) == 30_000
    assert sum(group.used) == 20_001
    assert sum(group.tokens) == 120_000 + 80_002
    assert [owner.request_id for owner in drawn.owners] == ["b", "a"]
    assert drawn.owners[0].unused_tokens == (2,)
    for cell, (used, cached) in enumerate(zip(group.used, group.cached, strict=True)):
        if used == group.blocks_per_cell or cached == group.blocks_per_cell:
            assert group.owners[cell] == (1 if used else 2)
