"""The cache's entries as native operations see them."""

from __future__ import annotations

import torch

from kernels.cpu.linear import FORMATS
from kernels.cpu.structs import Format, NativeKV
from kernels.kv_entries import ChannelGroups, KVEntries, TokenGroups, token_group_size

_WIDEST_PAIRS = 32  # quantized dims are read that many at a time: native/simd.h at its widest


def can_read(entries: KVEntries) -> bool:
    """Whether native operations cover these; what they do not goes to the reference."""
    return isinstance(entries, torch.Tensor) or entries.head_dim % _WIDEST_PAIRS == 0


def native_kv(entries: KVEntries, first_row: int = 0) -> NativeKV:
    """Where the entries are. `fresh` begins with the key of the step's row `first_row`."""
    if isinstance(entries, torch.Tensor):
        dense = NativeKV(format=FORMATS[entries.dtype], group_size=entries.shape[3])
        dense.data = entries.data_ptr()
        return dense
    native = NativeKV(group_size=token_group_size(entries.head_dim), data=entries.data.data_ptr())
    if isinstance(entries, TokenGroups):
        native.format = Format.INT8 if entries.bits == 8 else Format.INT4
        return native
    native.format = Format.INT4_CHANNEL
    native.tails = entries.tails.data_ptr()
    native.fresh = entries.fresh[first_row:].data_ptr()
    return native


def tensors_of(entries: KVEntries) -> tuple[torch.Tensor, ...]:
    """What must stay alive as long as an operation may run."""
    if isinstance(entries, torch.Tensor):
        return (entries,)
    if isinstance(entries, ChannelGroups):
        return (entries.data, entries.tails, entries.fresh)
    return (entries.data,)
