"""The block manager against a plain record of what every block holds, over random histories."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from engine.block_manager import BlockManager, BlockPool, BlockState, PoolSpec
from engine.block_map import MAX_CELLS, block_map
from engine.config import GenerationRequest
from engine.host_slots import HostSlots
from engine.kv_cache import NULL_BLOCK
from engine.sequence import Sequence

BLOCK = 4
EXAMPLES, STEPS = 275, 60
picks = st.integers(0, 99)
# Two tokens only, so that prefixes meet by themselves too.
texts = st.lists(st.integers(1, 2), min_size=1, max_size=26)


def make(name: str, tokens: list[int], *, use_cache: bool = True) -> Sequence:
    """A sequence with these tokens."""
    request = GenerationRequest(name, prompt_ids=tuple(tokens), use_cache=use_cache)
    return Sequence(request, tokens, 99, 0, 0, "")


class BlockHistories(RuleBasedStateMachine):
    """Allocate, append, fork, free, hit, evict, restore, preempt, slide, leave windows, whenever.

    `contents` records, by group and block, the prefix that was stored there last: what a kernel
    would read. `on_host` is the same of the slots of host memory, and `named` has the prefix that
    each name was given to. `freed_at` records when a block was let go of by its last user.
    """

    specs: tuple[PoolSpec, ...] = (PoolSpec(12),)
    operations = 0
    restored_tokens = 0

    def __init__(self) -> None:
        super().__init__()
        self.blocks = BlockManager(self.specs, BLOCK, prefix_caching=True, root="model bf16")
        self.contents: list[dict[int, tuple[int, ...]]] = [{} for _ in self.specs]
        self.on_host: list[dict[int, tuple[int, ...]]] = [{} for _ in self.specs]
        self.named: dict[bytes, tuple[int, ...]] = {}
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

    @rule(picks=st.lists(picks, min_size=2, max_size=3), tail=texts)
    def hit_together(self, picks: list[int], tail: list[int]) -> None:
        """Several turns are admitted, and may push each other out, before anything is computed."""
        texts = [self.ended[pick % len(self.ended)] + tail[:6] for pick in picks if self.ended]
        admitted = [each for each in map(self._new, texts) if self._admit(each, chunk=12)]
        for sequence in admitted:
            self._first_chunk(sequence, chunk=12)

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
            sequence = self.waiting.pop(pick % len(self.waiting))
            if self._admit(sequence, chunk):
                self._first_chunk(sequence, chunk)

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
    def names_tell_the_truth(self) -> None:
        """Whatever is found by its name, in the pool or in host memory, is the prefix so named."""
        for pool, contents, on_host in zip(
            self.blocks.pools, self.contents, self.on_host, strict=True
        ):
            for name, block in pool._by_hash.items():
                assert contents[block] == self.named[name]
            assert len(pool.host._slots) <= pool.host.num_slots
            for name, slot in pool.host._slots.items():
                assert on_host[slot] == self.named[name]

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
        tables = {owner.request_id: owner.block_tables for owner in drawn.owners}
        for sequence in self.running:
            assert list(map(list, tables.pop(sequence.request_id))) == sequence.block_tables
        assert not any(tables.values())
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
        type(self).restored_tokens += self.blocks.num_restored_tokens
        for sequence in self.running:
            self.blocks.release(sequence)
        self.blocks.check_integrity()
        assert all(pool.num_free == pool.num_blocks for pool in self.blocks.pools)

    # --- how it goes ----------------------------------------------------------------------

    def _start(self, tokens: list[int], chunk: int, *, use_cache: bool = True) -> None:
        sequence = self._new(tokens, use_cache=use_cache)
        if self._admit(sequence, chunk):
            self._first_chunk(sequence, chunk)

    def _new(self, tokens: list[int], *, use_cache: bool = True) -> Sequence:
        self.num_started += 1
        return make(f"r{self.num_started}", list(tokens), use_cache=use_cache)

    def _admit(self, sequence: Sequence, chunk: int) -> bool:
        """Whether it runs now; else it waits, and nothing has changed."""
        before = [self._books(pool) for pool in self.blocks.pools]
        with self._watching_evictions():
            if not self.blocks.admit(sequence, chunk):
                assert [self._books(pool) for pool in self.blocks.pools] == before
                self.waiting.append(sequence)
                return False
        self.running.append(sequence)
        found = sequence.num_computed_tokens
        assert found % BLOCK == 0
        assert found == 0 or sequence.request.use_cache
        assert found < len(sequence.token_ids), "the last token has to be computed"
        return True

    @staticmethod
    def _books(pool: BlockPool) -> tuple[object, ...]:
        host = pool.host
        return list(pool._free), dict(pool._by_hash), list(host._slots.items()), len(host._copies)

    def _first_chunk(self, sequence: Sequence, chunk: int) -> None:
        self._compute(sequence, min(len(sequence.token_ids), sequence.num_computed_tokens + chunk))

    def _compute(self, sequence: Sequence, end: int) -> None:
        """Copy and store what a step would copy and store, then commit it."""
        for contents, on_host, copies in zip(
            self.contents, self.on_host, self.blocks.take_copies(), strict=True
        ):
            for copy in copies:
                if copy.to_host:
                    on_host[copy.slot] = contents[copy.block]
                else:
                    contents[copy.block] = on_host[copy.slot]
        for group, table in enumerate(sequence.block_tables):
            for index in range(sequence.num_computed_tokens // BLOCK, -(-end // BLOCK)):
                stored = sequence.token_ids[: min(end, (index + 1) * BLOCK)]
                self.contents[group][table[index]] = tuple(stored)
        before = [list(table) for table in sequence.block_tables]
        firsts = list(sequence.first_blocks)
        sequence.num_computed_tokens = end
        self.blocks.commit(sequence)
        for count, name in enumerate(sequence.block_names, start=1):
            self.named[name] = tuple(sequence.token_ids[: count * BLOCK])
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
        before = [(bytes(pool.states), list(pool._hashes), pool.num_evictions) for pool in pools]
        yield
        for pool, (states, names, count), freed_at in zip(
            pools, before, self.freed_at, strict=True
        ):
            cached = [b for b in range(1, pool.num_blocks + 1) if states[b] == BlockState.CACHED]
            kept = [b for b in cached if pool.states[b] == BlockState.CACHED]
            evicted = [b for b in cached if pool._hashes[b] != names[b]]
            assert pool.num_evictions - count == len(evicted)
            if evicted:
                free = {b for b in range(1, len(states)) if states[b] == BlockState.FREE}
                assert not any(pool.is_free(block) for block in free)
                latest = max(freed_at[block] for block in evicted)
                assert all(latest < freed_at[block] for block in kept)


class SeveralGroups(BlockHistories):
    """A group that looks at everything beside two with windows."""

    specs = (PoolSpec(12), PoolSpec(8, window=6), PoolSpec(9, window=9))


class WithHostMemory(BlockHistories):
    """Host memory for fewer blocks than are evicted."""

    specs = (PoolSpec(12, num_host_blocks=9),)


class SeveralGroupsWithHostMemory(BlockHistories):
    """Groups in whose host memory different prefixes are left."""

    specs = (
        PoolSpec(12, num_host_blocks=12),
        PoolSpec(8, window=6, num_host_blocks=5),
        PoolSpec(9, window=9, num_host_blocks=20),
    )


@pytest.mark.parametrize(
    "machine", [BlockHistories, SeveralGroups, WithHostMemory, SeveralGroupsWithHostMemory]
)
def test_any_history_keeps_the_invariants(machine: type[BlockHistories]) -> None:
    """Ten thousand operations on a small pool, over one cache group and over several."""
    machine.operations = machine.restored_tokens = 0
    run_state_machine_as_test(
        machine, settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None)
    )
    assert machine.operations >= 10_000
    assert (machine.restored_tokens > 0) == any(spec.num_host_blocks for spec in machine.specs)


def run_to_end(blocks: BlockManager, name: str, tokens: list[int]) -> Sequence:
    """A text that is computed and not yet let go of."""
    sequence = make(name, tokens)
    assert blocks.admit(sequence, len(tokens))
    sequence.num_computed_tokens = len(tokens)
    blocks.commit(sequence)
    return sequence


def test_the_longest_idle_chat_goes_first() -> None:
    """From its tail on, and before a chat that was let go of later; running ones lose nothing."""
    blocks = BlockManager([PoolSpec(10)], BLOCK, prefix_caching=True)
    running = run_to_end(blocks, "runs", [1] * 8)
    idle = [run_to_end(blocks, name, [token] * 12) for name, token in (("a", 2), ("b", 3))]
    names = [list(sequence.block_names) for sequence in idle]
    for sequence in reversed(idle):  # a began first, but b has been idle for longer
        blocks.release(sequence)
    left = []
    for token in range(4, 8):
        run_to_end(blocks, f"new {token}", [token] * 8)
        left.append([list(map(blocks.pools[0].knows, chat)) for chat in names])
        assert all(map(blocks.pools[0].knows, running.block_names))
    assert left == [
        [[True, True, True], [True, True, True]],  # two blocks were free
        [[True, True, True], [True, False, False]],
        [[True, True, False], [False, False, False]],
        [[False, False, False], [False, False, False]],
    ]


def test_the_least_recently_saved_gives_way_in_host_memory() -> None:
    """As many as there are slots; saving a prefix again makes it the latest, without a copy."""
    host = HostSlots(2)
    for name in (b"a", b"b", b"a", b"c"):
        host.save(name, block=ord(name))
    assert [name in host for name in (b"a", b"b", b"c")] == [True, False, True]
    copies = host.take_copies()
    assert [(copy.block, copy.to_host) for copy in copies] == [(ord(c), True) for c in "abc"]
    assert copies[2].slot == copies[1].slot != copies[0].slot
    host.check_integrity()


def test_a_slot_that_is_wanted_back_is_not_overwritten() -> None:
    """What has to go for a restored block finds no slot rather than the one that is restored."""
    host = HostSlots(1)
    host.save(b"a", block=1)
    slots = host.claim([b"a"])
    host.save(b"b", block=2)
    host.restore(slots, [2])
    assert b"b" not in host
    assert [(copy.block, copy.to_host) for copy in host.take_copies()] == [(1, True), (2, False)]
    host.check_integrity()


def test_a_turn_that_pushes_out_another_chat_is_restored_in_order() -> None:
    """Two chats that fill the pool in turn: each is saved before the other's bytes come in."""
    blocks = BlockManager([PoolSpec(3, num_host_blocks=6)], BLOCK, prefix_caching=True)
    for token in (1, 2):
        blocks.release(run_to_end(blocks, f"{token}", [token] * 12))
    blocks.take_copies()
    back = make("1", [1] * 12)
    assert blocks.admit(back, 12)
    assert back.num_computed_tokens == blocks.num_restored_tokens == 8
    [copies] = blocks.take_copies()
    for copy in copies:
        earlier = copies[: copies.index(copy)]
        if not copy.to_host:  # the block was saved before
            assert any(other.block == copy.block and other.to_host for other in earlier)
    assert sum(not copy.to_host for copy in copies) == 2


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
