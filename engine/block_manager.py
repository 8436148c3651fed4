"""Which cache blocks belong to whom: free list, reference counts, prefix hashes. No tensors.

A full block is known by the hash of its tokens and of its parent's hash, so an equal prefix finds
it again (vLLM's automatic prefix caching). Blocks that nobody references stay findable until they
are needed, least recently freed first.
"""

from __future__ import annotations

import hashlib
import struct
from collections import OrderedDict
from collections.abc import Sequence as TokenIds

from engine.kv_cache import NULL_BLOCK
from engine.sequence import Sequence

_ROOT = b""


def hash_block(parent: bytes, token_ids: TokenIds[int]) -> bytes:
    """The name of a full block: a digest over its parent's name and its token ids."""
    digest = hashlib.blake2b(parent, digest_size=16)
    digest.update(struct.pack(f"<{len(token_ids)}I", *token_ids))
    return digest.digest()


class BlockPool:
    """Blocks 1..num_blocks of one cache group."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._references = [0] * (num_blocks + 1)
        self._hashes: list[bytes | None] = [None] * (num_blocks + 1)
        self._by_hash: dict[bytes, int] = {}
        # Blocks without references, the next one to take first.
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks + 1))

    @property
    def num_free(self) -> int:
        """Blocks that can be taken, those kept for their prefix included."""
        return len(self._free)

    def find(self, name: bytes) -> int | None:
        """The block that holds this prefix, if it still does."""
        return self._by_hash.get(name)

    def is_free(self, block: int) -> bool:
        """Whether nobody references the block."""
        return self._references[block] == 0

    def take(self) -> int:
        """A block for new tokens; whatever prefix it held is forgotten."""
        block, _ = self._free.popitem(last=False)
        self._forget(block)
        self._references[block] = 1
        return block

    def share(self, block: int) -> None:
        """One more reference to a block found by its hash."""
        if self._references[block] == 0:
            del self._free[block]
        self._references[block] += 1

    def release(self, block: int) -> None:
        """One reference less; a block without any can be taken, hashed ones last."""
        self._references[block] -= 1
        if self._references[block] == 0:
            self._free[block] = None
            if self._hashes[block] is None:
                self._free.move_to_end(block, last=False)

    def name(self, block: int, name: bytes) -> None:
        """Make a full block findable, unless an equal one already is."""
        if name not in self._by_hash and self._hashes[block] is None:
            self._by_hash[name] = block
            self._hashes[block] = name

    def forget_all(self) -> None:
        """Drop every prefix that nobody uses."""
        for block in list(self._free):
            self._forget(block)

    def check_integrity(self) -> None:
        """Raise AssertionError when the books do not balance."""
        assert NULL_BLOCK not in self._free, "the null block must never be handed out"
        free = {b for b in range(1, self.num_blocks + 1) if self._references[b] == 0}
        assert free == set(self._free), "free list and reference counts disagree"
        assert all(count >= 0 for count in self._references), "a block was released twice"
        named = {b: h for b, h in enumerate(self._hashes) if h is not None}
        assert {h: b for b, h in named.items()} == self._by_hash, "hash tables disagree"

    def _forget(self, block: int) -> None:
        name = self._hashes[block]
        if name is not None:
            del self._by_hash[name]
            self._hashes[block] = None


class BlockManager:
    """Block tables of sequences over all cache groups."""

    def __init__(
        self, num_groups: int, num_blocks: int, block_size: int, prefix_caching: bool
    ) -> None:
        self.block_size = block_size
        self.num_blocks = num_blocks
        self._prefix_caching = prefix_caching
        self._pools = [BlockPool(num_blocks) for _ in range(num_groups)]

    @property
    def num_free_blocks(self) -> int:
        """Blocks that every group could still hand out."""
        return min(pool.num_free for pool in self._pools)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def admit(self, sequence: Sequence) -> bool:
        """Give a sequence blocks for all its tokens, re-using a computed prefix.

        Sets `num_computed_tokens` to the tokens found, at most all but the last, which must be
        computed for its logits. False, and nothing taken, when there are too few blocks.
        """
        tokens = sequence.token_ids
        names = self._prefix_names(tokens) if self._prefix_caching else []
        found = [self._match(pool, names) for pool in self._pools]
        num_shared = min(len(blocks) for blocks in found)
        needed = self.blocks_for(len(tokens)) - num_shared
        for pool, blocks in zip(self._pools, found, strict=True):
            revived = sum(pool.is_free(block) for block in blocks[:num_shared])
            if needed + revived > pool.num_free:
                return False
        sequence.block_tables = []
        for pool, blocks in zip(self._pools, found, strict=True):
            for block in blocks[:num_shared]:
                pool.share(block)
            table = blocks[:num_shared] + [pool.take() for _ in range(needed)]
            sequence.block_tables.append(table)
        sequence.block_names = names[:num_shared]
        sequence.num_computed_tokens = num_shared * self.block_size
        return True

    def can_grow(self, sequence: Sequence) -> bool:
        """Whether `grow` would succeed."""
        return self._missing_blocks(sequence) <= self.num_free_blocks

    def grow(self, sequence: Sequence) -> None:
        """Give a running sequence blocks for all its tokens. Call only after `can_grow`."""
        missing = self._missing_blocks(sequence)
        for pool, table in zip(self._pools, sequence.block_tables, strict=True):
            table.extend(pool.take() for _ in range(missing))

    def commit(self, sequence: Sequence) -> None:
        """Name the blocks that computed tokens have filled, so that others may find them."""
        if not self._prefix_caching:
            return
        size, names = self.block_size, sequence.block_names
        for index in range(len(names), sequence.num_computed_tokens // size):
            tokens = sequence.token_ids[index * size : (index + 1) * size]
            names.append(hash_block(names[-1] if names else _ROOT, tokens))
            for pool, table in zip(self._pools, sequence.block_tables, strict=True):
                pool.name(table[index], names[-1])

    def release(self, sequence: Sequence) -> None:
        """Give a sequence's blocks back, the tail first so that it is taken first."""
        for pool, table in zip(self._pools, sequence.block_tables, strict=True):
            for block in reversed(table):
                pool.release(block)
        sequence.block_tables = []
        sequence.block_names = []

    def forget_prefixes(self) -> None:
        """Make every unused block forget what it held."""
        for pool in self._pools:
            pool.forget_all()

    def check_integrity(self) -> None:
        """Raise AssertionError when the books do not balance."""
        for pool in self._pools:
            pool.check_integrity()

    def _missing_blocks(self, sequence: Sequence) -> int:
        return self.blocks_for(len(sequence.token_ids)) - len(sequence.block_tables[0])

    def _prefix_names(self, tokens: list[int]) -> list[bytes]:
        """Names of the full blocks of all tokens but the last."""
        names, size = [], self.block_size
        parent = _ROOT
        for start in range(0, (len(tokens) - 1) // size * size, size):
            parent = hash_block(parent, tokens[start : start + size])
            names.append(parent)
        return names

    @staticmethod
    def _match(pool: BlockPool, names: list[bytes]) -> list[int]:
        blocks: list[int] = []
        for name in names:
            block = pool.find(name)
            if block is None:
                break
            blocks.append(block)
        return blocks
