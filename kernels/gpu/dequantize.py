"""Grouped weights expanded to a dense matrix, for products of many rows."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.gpu.launch import OPTIONS, cdiv
from kernels.weights import GroupedWeight

BLOCK_K = 16
BLOCK_N = 256
WARPS = 4


@triton.jit
def dequantize_kernel(
    codes, scale, minimum, out, num_rows, num_out, group_size,
    INT4: tl.constexpr, HAS_MINIMUM: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[k, n] = code * scale + minimum, rounded once; see `kernels.weights` for the layout.

    Program (columns, BLOCK_K of the num_rows stored rows); a row of INT4 bytes gives two of out.
    """
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    row = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    mask = (row < num_rows)[:, None] & (column < num_out)[None, :]
    rows_of_group = group_size // 2 if INT4 else group_size
    group = row // rows_of_group
    place = row[:, None].to(tl.int64) * num_out + column[None, :]
    of_group = group[:, None].to(tl.int64) * num_out + column[None, :]
    code = tl.load(codes + place, mask=mask, other=0)
    factor = tl.load(scale + of_group, mask=mask, other=0.0).to(tl.float32)
    floor = tl.zeros((BLOCK_K, BLOCK_N), dtype=tl.float32)
    if HAS_MINIMUM:
        floor = tl.load(minimum + of_group, mask=mask, other=0.0).to(tl.float32)
    dtype = out.dtype.element_ty
    if INT4:
        k = group * group_size + row % rows_of_group
        place = out + k[:, None].to(tl.int64) * num_out + column[None, :]
        low = (code & 15).to(tl.float32) * factor + floor
        high = (code >> 4).to(tl.float32) * factor + floor
        tl.store(place, low.to(dtype), mask=mask)
        second_half = rows_of_group.to(tl.int64) * num_out
        tl.store(place + second_half, high.to(dtype), mask=mask)
    else:
        value = code.to(tl.float32) * factor + floor
        tl.store(out + place, value.to(dtype), mask=mask)


def dequantize_into(weight: GroupedWeight, out: torch.Tensor) -> None:
    """Fill `out` [K, N], contiguous, with the weight's values: transposed, as codes lie."""
    num_out, num_in = weight.shape
    stored_rows = num_in // 2 if weight.bits == 4 else num_in
    dequantize_kernel[(cdiv(num_out, BLOCK_N), cdiv(stored_rows, BLOCK_K))](
        weight.codes,
        weight.scale,
        weight.scale if weight.minimum is None else weight.minimum,
        out,
        stored_rows,
        num_out,
        weight.group_size,
        INT4=weight.bits == 4,
        HAS_MINIMUM=weight.minimum is not None,
        BLOCK_K=BLOCK_K,
        BLOCK_N=BLOCK_N,
        num_warps=WARPS,
        **OPTIONS,
    )
