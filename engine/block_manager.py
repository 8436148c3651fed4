"""Which cache blocks belong to whom: free list, reference counts, prefix hashes. No tensors.

A full block is known by the hash of its tokens and of its parent's hash, so an equal prefix finds
it again (vLLM's automatic prefix caching). Blocks that nobody references stay findable until they
are needed, least recently freed first: those of the chat that has been idle longest. What they held
may move to host memory, and comes back when it is asked for.
"""

from __future__ import annotations

import hashlib
import struct
from collections import OrderedDict
from collections.abc import Sequence as Items
from dataclasses import dataclass
from enum import IntEnum

from engine.host_slots import BlockCopy, HostSlots
from engine.kv_cache import NULL_BLOCK
from engine.sequence import Sequence


class BlockState(IntEnum):
    """What a block is to the map of the pool: a byte of `BlockPool.states`."""

    FREE = 0
    CACHED = 1  # nobody's now, but found by its tokens until it is needed
    USED = 2  # by one sequence
    SHARED = 3  # by several


def hash_block(parent: bytes, token_ids: Items[int]) -> bytes:
    """The name of a full block: a digest over its parent's name and its token ids."""
    digest = hashlib.blake2b(parent, digest_size=16)
    digest.update(struct.pack(f"<{len(token_ids)}I", *token_ids))
    return digest.digest()


class BlockPool:
    """Blocks 1..num_blocks of one cache group; `host` keeps prefixes that were evicted.

    `states` has a BlockState byte a block, `last_users` the request that took it last, both by
    block number; `num_evictions` counts prefixes that had to go because their block was needed.
    """

    def __init__(self, num_blocks: int, num_host_blocks: int = 0) -> None:
        self.num_blocks = num_blocks
        self.host = HostSlots(num_host_blocks)
        self._references = [0] * (num_blocks + 1)
        self._hashes: list[bytes | None] = [None] * (num_blocks + 1)
        self._by_hash: dict[bytes, int] = {}
        # Blocks without references, the next one to take first.
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks + 1))
        self.states = bytearray(num_blocks + 1)
        self.last_users = [""] * (num_blocks + 1)
        self.num_evictions = 0

    @property
    def num_free(self) -> int:
        """Blocks that can be taken, those kept for their prefix included."""
        return len(self._free)

    def knows(self, name: bytes) -> bool:
        """Whether a block or host memory holds this prefix."""
        return name in self._by_hash or name in self.host

    def missing(self, names: Items[bytes]) -> list[bytes]:
        """Those that no block holds."""
        return [name for name in names if name not in self._by_hash]

    def num_needed(self, names: Items[bytes]) -> int:
        """Free blocks that using these prefixes takes."""
        found = (self._by_hash.get(name) for name in names)
        return sum(block is None or self.is_free(block) for block in found)

    def is_free(self, block: int) -> bool:
        """Whether nobody references the block."""
        return self._references[block] == 0

    def take(self, user: str) -> int:
        """A block for new tokens; whatever prefix it held goes to host memory or is forgotten."""
        block, _ = self._free.popitem(last=False)
        name = self._hashes[block]
        if name is not None:
            self.host.save(name, block)
            self._forget(block)
            self.num_evictions += 1
        self._references[block] = 1
        self.last_users[block] = user
        self._note_state(block)
        return block

    def use(self, names: Items[bytes], user: str) -> list[int]:
        """The blocks of known prefixes, one more reference to each.

        Those that only host memory holds get blocks, which have their bytes after the next copies.
        """
        missing = self.missing(names)
        slots = self.host.claim(missing)
        # Before any block is taken, so that none of these is.
        for name in names:
            if name in self._by_hash:
                self._share(self._by_hash[name], user)
        restored = [self.take(user) for _ in missing]
        self.host.restore(slots, restored)
        for name, block in zip(missing, restored, strict=True):
            self.name(block, name)
        return [self._by_hash[name] for name in names]

    def release(self, block: int) -> None:
        """One reference less; a block without any can be taken, hashed ones last."""
        self._references[block] -= 1
        if self._references[block] == 0:
            self._free[block] = None
            if self._hashes[block] is None:
                self._free.move_to_end(block, last=False)
        self._note_state(block)

    def name(self, block: int, name: bytes) -> None:
        """Make a full block findable, unless an equal one already is."""
        if name not in self._by_hash and self._hashes[block] is None:
            self._by_hash[name] = block
            self._hashes[block] = name
            self._note_state(block)

    def forget_all(self) -> None:
        """Drop every prefix that nobody uses."""
        for block in list(self._free):
            self._forget(block)
        self.host.forget_all()

    def check_integrity(self) -> None:
        """Raise AssertionError when the books do not balance."""
        assert NULL_BLOCK not in self._free, "the null block must never be handed out"
        free = {b for b in range(1, self.num_blocks + 1) if self._references[b] == 0}
        assert free == set(self._free), "free list and reference counts disagree"
        assert all(count >= 0 for count in self._references), "a block was released twice"
        named = {b: h for b, h in enumerate(self._hashes) if h is not None}
        assert {h: b for b, h in named.items()} == self._by_hash, "hash tables disagree"
        states = bytes(map(self._state, range(self.num_blocks + 1)))
        assert states == self.states, "states disagree with references and hashes"
        self.host.check_integrity()

    def _share(self, block: int, user: str) -> None:
        if self._references[block] == 0:
            del self._free[block]
        self._references[block] += 1
        self.last_users[block] = user
        self._note_state(block)

    def _forget(self, block: int) -> None:
        name = self._hashes[block]
        if name is not None:
            del self._by_hash[name]
            self._hashes[block] = None
            self._note_state(block)

    def _state(self, block: int) -> BlockState:
        if self._references[block]:
            return BlockState.USED if self._references[block] == 1 else BlockState.SHARED
        return BlockState.FREE if self._hashes[block] is None else BlockState.CACHED

    def _note_state(self, block: int) -> None:
        self.states[block] = self._state(block)


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """The blocks of a cache group, and how many of the latest tokens its layers look at.

    `num_host_blocks`: room in host memory for the content of blocks that were needed again.
    """

    num_blocks: int
    window: int | None = None
    num_host_blocks: int = 0

    def first_needed(self, num_computed_tokens: int) -> int:
        """The first token that what follows the computed ones still looks at."""
        if self.window is None:
            return 0
        return max(0, num_computed_tokens + 1 - self.window)


class BlockManager:
    """Block tables of sequences over all cache groups.

    A table has an entry for every block of the sequence. Blocks that have left a group's window
    are given back as the sequence goes on: their entries are the null block.

    `root` names what a block's content depends on besides its tokens: the model and its formats.
    `num_queried_tokens` and `num_hit_tokens` count tokens asked for and found at admission,
    `num_restored_tokens` those found of which a group had to fetch its part from host memory.
    """

    def __init__(
        self, specs: Items[PoolSpec], block_size: int, prefix_caching: bool, root: str = ""
    ) -> None:
        self.block_size = block_size
        self._prefix_caching = prefix_caching
        self._root = root.encode()
        self.specs = specs
        self.pools = [BlockPool(spec.num_blocks, spec.num_host_blocks) for spec in specs]
        self.num_queried_tokens = 0
        self.num_hit_tokens = 0
        self.num_restored_tokens = 0

    @property
    def num_blocks(self) -> int:
        """Blocks of the smallest group."""
        return min(pool.num_blocks for pool in self.pools)

    @property
    def num_free_blocks(self) -> int:
        """Blocks that every group could still hand out."""
        return min(pool.num_free for pool in self.pools)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def admit(self, sequence: Sequence, max_chunk: int) -> bool:
        """Give a sequence blocks, re-using a computed prefix.

        Of groups that look at everything it gets those of all its tokens, of windowed groups those
        of its first chunk of at most `max_chunk` tokens; `grow` gets the rest. Sets
        `num_computed_tokens` to the tokens found, at most all but the last, which must be
        computed for its logits. False, and nothing taken, when there are too few blocks.
        """
        tokens = sequence.token_ids
        shares = self._shares_prefixes(sequence)
        names = self._prefix_names(tokens) if shares else []
        num_shared = self._num_shared(names)
        computed = num_shared * self.block_size
        chunk_end = min(len(tokens), computed + max_chunk)
        firsts = [self._first_block(spec, computed) for spec in self.specs]
        num_new = []
        for spec, pool, first in zip(self.specs, self.pools, firsts, strict=True):
            end = len(tokens) if spec.window is None else chunk_end
            new = self.blocks_for(end) - num_shared
            if new + pool.num_needed(names[first:num_shared]) > pool.num_free:
                return False
            num_new.append(new)
        tables, restored = [], set[bytes]()
        for pool, first, new in zip(self.pools, firsts, num_new, strict=True):
            restored.update(pool.missing(names[first:num_shared]))
            found = pool.use(names[first:num_shared], sequence.request_id)
            taken = [pool.take(sequence.request_id) for _ in range(new)]
            tables.append([NULL_BLOCK] * first + found + taken)
        self.num_restored_tokens += len(restored) * self.block_size
        sequence.block_tables = tables
        sequence.first_blocks = firsts
        sequence.block_names = names[:num_shared]
        sequence.num_computed_tokens = computed
        if shares:
            self.num_queried_tokens += len(tokens)
            self.num_hit_tokens += computed
        return True

    def can_grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Whether `grow` would succeed."""
        needed = self.blocks_for(num_tokens)
        return all(
            needed - len(table) <= pool.num_free
            for pool, table in zip(self.pools, sequence.block_tables, strict=True)
        )

    def grow(self, sequence: Sequence, num_tokens: int) -> None:
        """Give a running sequence blocks for `num_tokens` tokens. Call only after `can_grow`."""
        needed = self.blocks_for(num_tokens)
        for pool, table in zip(self.pools, sequence.block_tables, strict=True):
            missing = needed - len(table)
            table.extend(pool.take(sequence.request_id) for _ in range(missing))

    def commit(self, sequence: Sequence) -> None:
        """Name the blocks that computed tokens have filled, and give back those left behind."""
        if self._shares_prefixes(sequence):
            self._name_blocks(sequence)
        for number, (spec, pool) in enumerate(zip(self.specs, self.pools, strict=True)):
            table, first = sequence.block_tables[number], sequence.first_blocks[number]
            first_needed = self._first_block(spec, sequence.num_computed_tokens)
            for index in range(first, first_needed):
                pool.release(table[index])
                table[index] = NULL_BLOCK
            sequence.first_blocks[number] = max(first, first_needed)

    def release(self, sequence: Sequence) -> None:
        """Give a sequence's blocks back, the tail first so that it is taken first."""
        tables = zip(self.pools, sequence.block_tables, sequence.first_blocks, strict=True)
        for pool, table, first in tables:
            for block in reversed(table[first:]):
                pool.release(block)
        sequence.block_tables = []
        sequence.block_names = []

    def restart(self, sequence: Sequence) -> None:
        """Give a running sequence's blocks back; `grow` gets others, from the first token on."""
        self.release(sequence)
        sequence.block_tables = [[] for _ in self.pools]
        sequence.first_blocks = [0] * len(self.pools)

    def take_copies(self) -> list[list[BlockCopy]]:
        """By group, what to copy before the next step computes anything; see `HostSlots`."""
        return [pool.host.take_copies() for pool in self.pools]

    def forget_prefixes(self) -> None:
        """Make every unused block and host memory forget what they held."""
        for pool in self.pools:
            pool.forget_all()

    def reset_counts(self) -> None:
        """Begin to count anew."""
        for pool in self.pools:
            pool.num_evictions = 0
        self.num_queried_tokens = self.num_hit_tokens = self.num_restored_tokens = 0

    def check_integrity(self) -> None:
        """Raise AssertionError when the books do not balance."""
        for pool in self.pools:
            pool.check_integrity()

    def _shares_prefixes(self, sequence: Sequence) -> bool:
        return self._prefix_caching and sequence.request.use_cache

    def _first_block(self, spec: PoolSpec, num_computed_tokens: int) -> int:
        return spec.first_needed(num_computed_tokens) // self.block_size

    def _name_blocks(self, sequence: Sequence) -> None:
        size, names = self.block_size, sequence.block_names
        for index in range(len(names), sequence.num_computed_tokens // size):
            tokens = sequence.token_ids[index * size : (index + 1) * size]
            names.append(hash_block(names[-1] if names else self._root, tokens))
            for pool, table in zip(self.pools, sequence.block_tables, strict=True):
                pool.name(table[index], names[-1])

    def _prefix_names(self, tokens: list[int]) -> list[bytes]:
        """Names of the full blocks of all tokens but the last."""
        names, size = [], self.block_size
        parent = self._root
        for start in range(0, (len(tokens) - 1) // size * size, size):
            parent = hash_block(parent, tokens[start : start + size])
            names.append(parent)
        return names

    def _num_shared(self, names: list[bytes]) -> int:
        """The longest prefix, in blocks, of which every group still has what it looks at."""
        best = [True] * (len(names) + 1)
        for spec, pool in zip(self.specs, self.pools, strict=True):
            run = 0  # blocks found in a row up to here
            for count, name in enumerate(names, start=1):
                run = run + 1 if pool.knows(name) else 0
                first = self._first_block(spec, count * self.block_size)
                best[count] &= run >= count - first
        return max(count for count, found in enumerate(best) if found)
