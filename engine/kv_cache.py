"""Storage of keys and values in fixed blocks. Knows nothing of sequences or scheduling.

Layers declare what they keep as a `KVCacheSpec`; layers of equal spec form a group with its own
block tables and its own share of the pool. Block 0 of every group is the null block: padding rows
read and write it, and no sequence owns it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.config import KVGroupSize, kv_group_size
from engine.kv_formats import KV_PARTS
from kernels.kv_entries import (
    ChannelGroups,
    KVEntries,
    TokenGroups,
    channel_entry_bytes,
    token_entry_bytes,
)

NULL_BLOCK = 0
NULL_TAIL = 0  # that of padding rows, as the null block is
_DENSE = {"fp32": torch.float32, "bf16": torch.bfloat16}
_TOKEN_BITS = {"int8": 8, "int4": 4}


@dataclass(frozen=True, slots=True)
class KVCacheSpec:
    """What one layer keeps for a token: keys and values of `num_kv_heads` x `head_dim`.

    `kv_format` is one of engine.kv_formats, "auto" excepted. `window`: how many of the latest
    tokens the layer looks at; None: all.
    """

    num_kv_heads: int
    head_dim: int
    kv_format: str
    window: int | None = None


@dataclass(frozen=True, slots=True)
class KVCacheGroup:
    """Layers (by index in the model) that share a spec and hence a block table."""

    spec: KVCacheSpec
    layers: tuple[int, ...]

    def size(self, block_size: int) -> KVGroupSize:
        """What others than the engine are told of it."""
        spec = self.spec
        return kv_group_size(
            spec.kv_format,
            len(self.layers),
            spec.num_kv_heads,
            spec.head_dim,
            block_size,
            spec.window,
        )


class KVCache:
    """The blocks of all groups, allocated once: `num_blocks` of each group, and the null block.

    Keys that are quantized by block have tails for `max_num_seqs` sequences, and room for the keys
    of a step of `max_num_batched_tokens`.
    """

    def __init__(
        self,
        groups: tuple[KVCacheGroup, ...],
        num_blocks: Sequence[int],
        block_size: int,
        device: torch.device,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
    ) -> None:
        self.groups = groups
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._layers: dict[int, tuple[KVEntries, KVEntries]] = {}
        self._groups: dict[int, int] = {}
        self._tensors: list[torch.Tensor] = []
        self._device = device
        self._num_tails = max_num_seqs + 1
        self._step_tokens = max_num_batched_tokens
        for number, group in enumerate(groups):
            self._groups |= dict.fromkeys(group.layers, number)
            keys, values = (
                self._allocate(part, group, num_blocks[number] + 1)
                for part in KV_PARTS[group.spec.kv_format]
            )
            self._layers |= dict(zip(group.layers, zip(keys, values, strict=True), strict=True))

    def layer(self, index: int) -> tuple[KVEntries, KVEntries]:
        """Keys and values of a layer, over the group's blocks + 1."""
        return self._layers[index]

    def group_of(self, layer: int) -> int:
        """The group, by number, that a layer belongs to."""
        return self._groups[layer]

    def block_tensors(self, group: int) -> list[torch.Tensor]:
        """All that the group's layers keep by block: contiguous, each [its blocks + 1, ...]."""
        return [
            entries if isinstance(entries, torch.Tensor) else entries.data
            for layer in self.groups[group].layers
            for entries in self._layers[layer]
        ]

    @property
    def fills_blocks_at_once(self) -> bool:
        """Whether prompts must be computed in whole blocks; see `ChannelGroups`."""
        return any(isinstance(keys, ChannelGroups) for keys, _ in self._layers.values())

    @property
    def reserved_bytes(self) -> int:
        """All tensors: what the context length costs up front."""
        return sum(tensor.nbytes for tensor in self._tensors)

    def _allocate(self, part: str, group: KVCacheGroup, num_blocks: int) -> list[KVEntries]:
        """Keys or values of the group's layers, in one piece, so that large pages cover it."""
        layers, spec, size = len(group.layers), group.spec, self.block_size
        heads, dim = spec.num_kv_heads, spec.head_dim
        if part in _DENSE:
            return list(self._zeros(_DENSE[part], layers, num_blocks, size, heads, dim))
        if part in _TOKEN_BITS:
            bits = _TOKEN_BITS[part]
            entry = token_entry_bytes(bits, dim)
            data = self._zeros(torch.uint8, layers, num_blocks, size, heads, entry)
            return [TokenGroups(bits, dim, one) for one in data]
        entry = channel_entry_bytes(size, dim)
        data = self._zeros(torch.uint8, layers, num_blocks, heads, entry)
        tails = self._zeros(torch.bfloat16, layers, self._num_tails, size, heads, dim)
        fresh = self._zeros(torch.bfloat16, self._step_tokens, heads, dim)
        pairs = zip(data, tails, strict=True)
        return [ChannelGroups(dim, one, tail, fresh) for one, tail in pairs]

    def _zeros(self, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        tensor = torch.zeros(shape, dtype=dtype, device=self._device)
        self._tensors.append(tensor)
        return tensor
