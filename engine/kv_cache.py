"""Storage of keys and values in fixed blocks. Knows nothing of sequences or scheduling.

Layers declare what they keep as a `KVCacheSpec`; layers of equal spec form a group with its own
block tables and its own share of the pool. Block 0 of every group is the null block: padding rows
read and write it, and no sequence owns it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.config import KVGroupSize

NULL_BLOCK = 0


@dataclass(frozen=True, slots=True)
class KVCacheSpec:
    """What one layer keeps for a token: keys and values of `num_kv_heads` x `head_dim`.

    `window`: how many of the latest tokens it looks at; None: all.
    """

    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    window: int | None = None

    @property
    def bytes_per_token(self) -> int:
        """2 (K and V) x heads x head_dim x bytes, for one layer."""
        return 2 * self.num_kv_heads * self.head_dim * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class KVCacheGroup:
    """Layers (by index in the model) that share a spec and hence a block table."""

    spec: KVCacheSpec
    layers: tuple[int, ...]

    @property
    def bytes_per_token(self) -> int:
        """Bytes one token takes in all layers of the group."""
        return self.spec.bytes_per_token * len(self.layers)

    @property
    def size(self) -> KVGroupSize:
        """What others than the engine are told of it."""
        return KVGroupSize(self.bytes_per_token, self.spec.window)


class KVCache:
    """The blocks of all groups, allocated once: `num_blocks` of each group, and the null block."""

    def __init__(
        self,
        groups: tuple[KVCacheGroup, ...],
        num_blocks: Sequence[int],
        block_size: int,
        device: torch.device,
    ) -> None:
        self.groups = groups
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._groups: dict[int, int] = {}
        for number, group in enumerate(groups):
            self._groups |= dict.fromkeys(group.layers, number)
            spec = group.spec
            shape = (num_blocks[number] + 1, block_size, spec.num_kv_heads, spec.head_dim)
            # In one piece, so that large pages cover it.
            entries = torch.zeros(len(group.layers), 2, *shape, dtype=spec.dtype, device=device)
            for layer, (keys, values) in zip(group.layers, entries, strict=True):
                self._layers[layer] = (keys, values)

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of a layer, each [the group's blocks + 1, block_size, Hk, D]."""
        return self._layers[index]

    def group_of(self, layer: int) -> int:
        """The group, by number, that a layer belongs to."""
        return self._groups[layer]

    @property
    def reserved_bytes(self) -> int:
        """All pools, null blocks not counted: what the context length costs up front."""
        return sum(
            blocks * self.block_size * group.bytes_per_token
            for blocks, group in zip(self.num_blocks, self.groups, strict=True)
        )
