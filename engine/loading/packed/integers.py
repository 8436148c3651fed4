"""Matrices of integer codes with a scale and a zero point a group, whatever packed them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.loading.packed.module import Module, Read
from engine.loading.tensors import Grouping, QuantizedBlocks, TensorInfo


@dataclass(frozen=True, slots=True)
class GroupedCodes:
    """w[n, k] = scale[n, g] * (codes[n, k] - zeros[n, g]) with g = group_of[k].

    `codes` uint8 [N, K], `zeros` uint8 [N, G], `scale` floating point [N, G], `group_of` int64 [K].
    """

    codes: torch.Tensor
    zeros: torch.Tensor
    scale: torch.Tensor
    group_of: torch.Tensor


@dataclass(frozen=True, slots=True)
class IntegerMatrix:
    """See PackedMatrix."""

    info: TensorInfo
    module: Module
    unpack: Callable[[Read], GroupedCodes]

    def dense(self, read: Read) -> torch.Tensor:
        """Float32 [N, K]: exact for scales of 16 bits."""
        stored = self.unpack(read)
        values = stored.codes.float().contiguous()
        values -= stored.zeros.float()[:, stored.group_of]
        values *= stored.scale.float()[:, stored.group_of]
        return values

    def quantized(self, read: Read) -> QuantizedBlocks | None:
        """The codes as they are; 8-bit ones as code - 128, so that they are signed.

        scale * (code - zero) becomes code * scale + minimum. The scale is rounded to FP16 where
        it is stored in BF16 or FP32. The minimum, -scale * zero, is rounded to FP16: exact where
        zero is a power of two, as in symmetric formats, otherwise off by at most 2^-11 of itself,
        which is 1/136 of a step at 4 bits and, as 8-bit zeros are counted from 128, 1/16 at 8.
        """
        grouping = self.info.grouping
        if grouping is None:
            return None
        stored = self.unpack(read)
        scale, middle = stored.scale.half(), 128 if grouping.bits == 8 else 0
        zeros = stored.zeros.float() - middle
        minimum = (-zeros * scale.float()).half()
        if not bool(torch.isfinite(minimum).all() & torch.isfinite(scale).all()):
            return None
        if not grouping.has_minimum and bool(zeros.any()):
            raise self.module.error("zero points", "are not all 128 in a symmetric format")
        order = None
        codes = stored.codes
        if grouping.has_order:
            order = self._sorted_columns(stored.group_of, grouping)
            codes = codes[:, order]
        return QuantizedBlocks(
            grouping.bits,
            (codes ^ 128).view(torch.int8) if grouping.bits == 8 else codes,
            scale,
            minimum if grouping.has_minimum else None,
            order,
        )

    def _sorted_columns(self, group_of: torch.Tensor, grouping: Grouping) -> torch.Tensor:
        """int32 [K]: the columns of group 0, those of group 1 ..., each in their own order."""
        if bool((group_of.bincount() != grouping.group_size).any()):
            raise self.module.error("g_idx", "gives groups different numbers of inputs")
        return group_of.argsort(stable=True).int()


def grouping_of(
    module: Module, bits: int, group_size: int, symmetric: bool, has_order: bool
) -> Grouping | None:
    """The layout that keeps the codes; None where groups are uneven, or odd at 4 bits."""
    if module.num_in % group_size or (bits == 4 and group_size % 2):
        return None
    return Grouping(4 if bits == 4 else 8, group_size, bits == 4 or not symmetric, has_order)


def label(method: str, bits: int, group_size: int | None) -> str:
    """What the window calls the format, e.g. "GPTQ 4-bit g128"."""
    return f"{method} {bits}-bit " + (f"g{group_size}" if group_size else "per channel")


def consecutive_groups(num_in: int, group_size: int) -> torch.Tensor:
    """Group of each column, int64 [K], where groups are consecutive; the last may be shorter."""
    return torch.arange(num_in) // group_size


def stored_groups(
    module: Module, part: str, read: Read, group_size: int, reordered: bool
) -> torch.Tensor:
    """Group of each column, int64 [K], from a part of the files.

    Raises CheckpointError for groups that do not exist, and for an order where there should be
    none: the memory that was promised would not hold it.
    """
    group_of = read(module.part(part)).long()
    if not 0 <= int(group_of.min()) <= int(group_of.max()) < -(-module.num_in // group_size):
        raise module.error(part, "names groups that do not exist")
    natural = consecutive_groups(module.num_in, group_size)
    if not reordered and not torch.equal(group_of, natural):
        raise module.error(part, "reorders columns, which the settings (desc_act) deny")
    return group_of
