"""Host memory for what evicted blocks of the KV cache held: bytes there and back. No policy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch

from engine.host_slots import BlockCopy
from engine.kv_cache import KVCache

# Device memory for blocks on their way: large enough that launching kernels costs little.
_STAGED_BYTES = 16 << 20
# Gathering goes element by element: on a CPU 8-byte words are 5 times as fast as bytes where
# blocks come back, 4.4 against 0.8 GB/s.
_WORDS = (torch.int64, torch.int32, torch.int16, torch.uint8)


class HostBlocks:
    """`num_slots` blocks of each group, by group; pinned where the cache is on a GPU."""

    def __init__(self, cache: KVCache, num_slots: Sequence[int]) -> None:
        self._groups = [
            _GroupRows(cache.block_tensors(group), count) for group, count in enumerate(num_slots)
        ]

    def carry_out(self, copies: Sequence[Sequence[BlockCopy]]) -> None:
        """Do each group's copies in order.

        They are queued on the device's current stream: what is queued there later sees them done.
        """
        for rows, due in zip(self._groups, copies, strict=True):
            for to_host, same_way in groupby(due, key=lambda copy: copy.to_host):
                rows.move(list(same_way), to_host)


class _GroupRows:
    """A group's slots: rows of words in which all tensors' parts of a block follow each other.

    A row crosses the bus in one piece. On the device the parts are gathered from, and spread to,
    all layers through a few staged rows: one kernel a tensor for many blocks.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], num_slots: int) -> None:
        part_bytes = [tensor[0].nbytes for tensor in tensors]
        word = next(w for w in _WORDS if all(size % w.itemsize == 0 for size in part_bytes))
        self._parts = [tensor.view(len(tensor), -1).view(word) for tensor in tensors]
        self._device = tensors[0].device
        sizes = [part.shape[1] for part in self._parts]
        num_staged = min(num_slots, max(1, _STAGED_BYTES // sum(part_bytes)))
        on_gpu = self._device.type == "cuda"
        self._rows = torch.empty(num_slots, sum(sizes), dtype=word, pin_memory=on_gpu)
        self._staged = torch.empty(num_staged, sum(sizes), dtype=word, device=self._device)
        self._columns = self._staged.split(sizes, dim=1)

    def move(self, copies: Sequence[BlockCopy], to_host: bool) -> None:
        """Do copies that all go one way."""
        for start in range(0, len(copies), len(self._staged)):
            batch = copies[start : start + len(self._staged)]
            blocks = torch.tensor([copy.block for copy in batch], device=self._device)
            if to_host:
                self._save(batch, blocks)
            else:
                self._restore(batch, blocks)

    def _save(self, copies: Sequence[BlockCopy], blocks: torch.Tensor) -> None:
        for part, columns in zip(self._parts, self._columns, strict=True):
            columns[: len(blocks)] = part.index_select(0, blocks)
        for index, copy in enumerate(copies):
            self._rows[copy.slot].copy_(self._staged[index], non_blocking=True)

    def _restore(self, copies: Sequence[BlockCopy], blocks: torch.Tensor) -> None:
        for index, copy in enumerate(copies):
            self._staged[index].copy_(self._rows[copy.slot], non_blocking=True)
        for part, columns in zip(self._parts, self._columns, strict=True):
            part.index_copy_(0, blocks, columns[: len(blocks)])
