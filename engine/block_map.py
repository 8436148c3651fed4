"""A map of the block pool for a window: bounded in size and quick to take. No tensors.

0.15 ms for a pool of 1,000 blocks, 0.7 ms for one of 100,000, on one of two cores of a virtual
machine (tests/benchmarks/block_map.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress, repeat

import numpy as np
import numpy.typing as npt

from engine.block_manager import BlockManager, BlockPool, BlockState
from engine.events import BlockGroupMap, BlockMap, BlockOwner
from engine.sequence import Sequence

# More cells than a panel has room for; a larger pool has several blocks in a cell.
MAX_CELLS = 2048
_MAX_OWNERS = 62  # bits of a signed 64-bit mask

Ints = npt.NDArray[np.int64]


def block_map(blocks: BlockManager, sequences: Iterable[Sequence], t_ns: int) -> BlockMap:
    """The pools of `blocks` as `sequences`, all those that may hold blocks, share them now."""
    running = [sequence for sequence in sequences if sequence.block_tables]
    groups = [
        _GroupMapper(pool, blocks.block_size, number) for number, pool in enumerate(blocks.pools)
    ]
    bits: dict[str, int] = {}
    for sequence in running:
        bit = bits.setdefault(sequence.request_id, len(bits))
        for group in groups:
            group.add_running(sequence, bit)
    for group in groups:
        group.add_cached(bits)
    held = {sequence.request_id: sequence for sequence in running}
    return BlockMap(
        t_ns=t_ns,
        block_size=blocks.block_size,
        groups=tuple(
            group.finish(spec.window) for group, spec in zip(groups, blocks.specs, strict=True)
        ),
        owners=tuple(_owner(r, held.get(r), blocks) for r in bits),
        evicted_blocks=sum(pool.num_evictions for pool in blocks.pools),
        queried_tokens=blocks.num_queried_tokens,
        hit_tokens=blocks.num_hit_tokens,
        restored_tokens=blocks.num_restored_tokens,
    )


def _owner(request_id: str, sequence: Sequence | None, blocks: BlockManager) -> BlockOwner:
    """A request with what it holds, `sequence` being None when it has ended."""
    if sequence is None:
        return BlockOwner(request_id, False, (0,) * len(blocks.pools))
    known, tables = len(sequence.token_ids), sequence.shown_tables
    # Places of the last block that none of the known tokens will take.
    unused = tuple(max(0, len(table) * blocks.block_size - known) for table in tables)
    return BlockOwner(request_id, True, unused, tables)


class _GroupMapper:
    """One group's columns in the making: states exactly, owners by every `_stride`-th block.

    Blocks are mostly taken in a row, so that two samples a cell find who fills it.
    """

    def __init__(self, pool: BlockPool, block_size: int, number: int) -> None:
        self._pool = pool
        self._block_size = block_size
        self._number = number
        self._per_cell = -(-pool.num_blocks // MAX_CELLS)
        self._stride = max(1, self._per_cell // 2)
        self._states = np.frombuffer(bytes(pool.states), np.uint8)
        self._missing = np.zeros(pool.num_blocks + 1, np.int64)  # tokens that are not there yet
        self._owners = np.zeros(pool.num_blocks + 1, np.int64)

    def add_running(self, sequence: Sequence, bit: int) -> None:
        """Mark what a sequence holds as its own, and what is still empty of it."""
        table = sequence.block_tables[self._number]
        if bit < _MAX_OWNERS:
            held = table[sequence.first_blocks[self._number] :: self._stride]
            self._owners[np.fromiter(held, np.intp, len(held))] |= 1 << bit
        full, begun = divmod(sequence.num_computed_tokens, self._block_size)
        if full < len(table):
            self._missing[table[full:]] = self._block_size
            self._missing[table[full]] -= begun

    def add_cached(self, bits: dict[str, int]) -> None:
        """Mark cached blocks as those of their last user, who gets the next bit if it has none."""
        cached = self._states[1 :: self._stride] == BlockState.CACHED
        users = list(compress(self._pool.last_users[1 :: self._stride], cached.tolist()))
        for user in dict.fromkeys(users):
            if len(bits) < _MAX_OWNERS:
                bits.setdefault(user, len(bits))
        masks = {user: 1 << bit for user, bit in bits.items() if bit < _MAX_OWNERS}
        found = np.fromiter(map(masks.get, users, repeat(0)), np.int64, len(users))
        self._owners[1 :: self._stride][cached] = found

    def finish(self, window: int | None) -> BlockGroupMap:
        """The columns, summed up by cell."""
        starts = np.arange(0, self._pool.num_blocks, self._per_cell)

        def cells(blocks: npt.NDArray[np.generic]) -> Ints:
            return np.add.reduceat(blocks[1:], starts, dtype=np.int64)

        states = self._states
        used, shared, cached = (
            cells(states == state)
            for state in (BlockState.USED, BlockState.SHARED, BlockState.CACHED)
        )
        tokens = (used + shared + cached) * self._block_size - cells(self._missing)
        owners = np.bitwise_or.reduceat(self._owners[1:], starts)
        return BlockGroupMap(
            window,
            self._pool.num_blocks,
            self._per_cell,
            *map(_plain, (used, shared, cached, tokens, owners)),
        )


def _plain(column: Ints) -> tuple[int, ...]:
    return tuple(column.tolist())
