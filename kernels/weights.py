"""Weight formats: how a matrix lies in memory, and quantizing to and from it.

A weight is a matrix [N, K] (N output features, K input features). Dense weights are stored as
that. Quantized weights are stored K-major in groups of consecutive K, so that one vectorised
operation treats a whole group for all outputs:

    INT8: codes int8  [G, S, N],   w = code * scale (+ minimum)     (code -128..127)
    INT4: codes uint8 [G, S/2, N], w = code * scale (+ minimum)     (code 0..15)

with G groups of S inputs. In INT4 a byte holds input s in its low nibble and s + S/2 in its high
one. `scale` and `minimum` are [G, N] in FP16, which is what GGUF's Q8_0, Q4_0 and Q4_1 store, so
those tensors keep their exact values. Our own INT8 is symmetric and has no minimum; weights that
others quantized asymmetrically have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

INT4_GROUP_SIZE = 32
_INT8_MAX = 127
_INT4_MAX = 15


@dataclass(frozen=True, slots=True)
class DenseWeight:
    """A matrix in FP32, BF16 or FP16, shape [N, K]."""

    data: torch.Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return (self.data.shape[0], self.data.shape[1])

    @property
    def num_bytes(self) -> int:
        """Memory it takes."""
        return self.data.numel() * self.data.element_size()


@dataclass(frozen=True, slots=True)
class GroupedWeight:
    """A matrix in INT8 or INT4 groups; see the module's docstring for the layout."""

    bits: int
    codes: torch.Tensor
    scale: torch.Tensor
    minimum: torch.Tensor | None

    @property
    def num_groups(self) -> int:
        """G."""
        return self.scale.shape[0]

    @property
    def group_size(self) -> int:
        """S, the inputs that share a scale."""
        return self.codes.shape[1] * (2 if self.bits == 4 else 1)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return (self.scale.shape[1], self.num_groups * self.group_size)

    @property
    def num_bytes(self) -> int:
        """Memory it takes, scales and minima included."""
        tensors = [self.codes, self.scale] + ([self.minimum] if self.minimum is not None else [])
        return sum(t.numel() * t.element_size() for t in tensors)


Weight = DenseWeight | GroupedWeight  # as read from a file or quantized

TILE = 16  # outputs that lie interleaved
TILE_BLOCK = 32  # inputs are padded to a multiple of it


@dataclass(frozen=True, slots=True)
class TiledWeight:
    """A GroupedWeight laid out for the CPU kernels: one stream of bytes for 16 outputs.

    `data` uint8 [tiles, bytes]. A tile holds its groups in order: codes, then 16 FP16 scales, then
    16 FP16 minima if there are any. INT8 codes come as pairs of inputs (k, k + 1), a byte a code:
    [S/2 pairs, 16 outputs, 2]. INT4 codes, for each 32 inputs, as quads of them: [4 quads, 16
    outputs, 4] with input k in the low nibble and k + 16 in the high one. Outputs are padded to 16,
    inputs to 32.
    """

    bits: int
    group_size: int
    has_minimum: bool
    num_out: int
    num_in: int
    data: torch.Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return (self.num_out, self.num_in)

    @property
    def num_bytes(self) -> int:
        """Memory it takes, scales, minima and padding included."""
        return self.data.numel()


KernelWeight = Weight | TiledWeight  # as a kernel set keeps it


def pack_groups(
    bits: int, codes: torch.Tensor, scale: torch.Tensor, minimum: torch.Tensor | None
) -> GroupedWeight:
    """Lay out codes [N, K] and scales [N, G] K-major. INT8 codes -128..127, INT4 codes 0..15.

    Groups are of K / G inputs, in INT4 an even number.
    """
    num_out, num_in = codes.shape
    groups = scale.shape[1]
    grouped = codes.t().reshape(groups, num_in // groups, num_out)
    if bits == 4:
        low, high = grouped.to(torch.uint8).chunk(2, dim=1)
        grouped = low | (high << 4)
    return GroupedWeight(
        bits,
        grouped.contiguous(),
        scale.t().contiguous(),
        None if minimum is None else minimum.t().contiguous(),
    )


def quantize_int8(weight: torch.Tensor, group_size: int | None = None) -> GroupedWeight:
    """Symmetric round-to-nearest INT8 of [N, K], per output channel or in groups along K.

    The scale is rounded to FP16 first, so that codes are the best for the scale in use.
    Raises ValueError when the group size does not divide K.
    """
    groups = _split_groups(weight, group_size or weight.shape[1])
    scale = _nonzero_half(groups.abs().amax(-1) / _INT8_MAX)
    codes = (groups / scale.float()[..., None]).round().clamp(-_INT8_MAX, _INT8_MAX)
    return pack_groups(8, codes.to(torch.int8).flatten(1), scale, None)


def quantize_int4(weight: torch.Tensor, group_size: int = INT4_GROUP_SIZE) -> GroupedWeight:
    """Asymmetric round-to-nearest INT4 of [N, K] in groups along K: w = code * scale + minimum.

    Raises ValueError when the group size does not divide K.
    """
    groups = _split_groups(weight, group_size)
    minimum = groups.amin(-1).half()
    scale = _nonzero_half((groups.amax(-1) - minimum.float()) / _INT4_MAX)
    codes = (groups - minimum.float()[..., None]) / scale.float()[..., None]
    codes = codes.round().clamp(0, _INT4_MAX).to(torch.uint8)
    return pack_groups(4, codes.flatten(1), scale, minimum)


def dequantize(weight: Weight) -> torch.Tensor:
    """The matrix [N, K] in FP32, exactly as the format defines it."""
    if isinstance(weight, DenseWeight):
        return weight.data.float()
    values = unpack_codes(weight.codes, weight.bits).float() * weight.scale.float()[:, None]
    if weight.minimum is not None:
        values = values + weight.minimum.float()[:, None]
    return values.flatten(0, 1).t().contiguous()


def unpack_codes(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes one a value: [G, S, N] from the stored layout."""
    return codes if bits == 8 else torch.cat((codes & 15, codes >> 4), dim=1)


def select_outputs(weight: Weight, rows: torch.Tensor) -> Weight:
    """The weight with only the given output rows, e.g. to undo a row permutation."""
    if isinstance(weight, DenseWeight):
        return DenseWeight(weight.data[rows])
    return GroupedWeight(
        weight.bits,
        weight.codes[:, :, rows],
        weight.scale[:, rows],
        None if weight.minimum is None else weight.minimum[:, rows],
    )


def concat_outputs(weights: Sequence[KernelWeight]) -> KernelWeight | None:
    """One weight that computes all outputs of several over the same input.

    None when their formats differ, in which case they must stay apart.
    """
    first = weights[0]
    if len(weights) == 1:
        return first
    if isinstance(first, DenseWeight):
        dense = [w for w in weights if isinstance(w, DenseWeight)]
        if len(dense) != len(weights) or any(w.data.dtype != first.data.dtype for w in dense):
            return None
        return DenseWeight(torch.cat([w.data for w in dense]))
    if isinstance(first, TiledWeight):
        return None
    grouped = [w for w in weights if isinstance(w, GroupedWeight)]
    same = len(grouped) == len(weights) and all(
        w.bits == first.bits
        and w.group_size == first.group_size
        and (w.minimum is None) == (first.minimum is None)
        for w in grouped
    )
    if not same:
        return None
    minima = [w.minimum for w in grouped if w.minimum is not None]
    return GroupedWeight(
        first.bits,
        torch.cat([w.codes for w in grouped], dim=2),
        torch.cat([w.scale for w in grouped], dim=1),
        torch.cat(minima, dim=1) if minima else None,
    )


def _split_groups(weight: torch.Tensor, group_size: int) -> torch.Tensor:
    num_out, num_in = weight.shape
    if num_in % group_size:
        raise ValueError(f"groups of {group_size} do not divide {num_in} inputs")
    return weight.float().view(num_out, num_in // group_size, group_size)


def _nonzero_half(scale: torch.Tensor) -> torch.Tensor:
    """FP16 scales with 1 where they vanish (an all-equal group), so that dividing is safe."""
    half = scale.half()
    return torch.where(half == 0, torch.ones_like(half), half)
