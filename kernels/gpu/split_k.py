"""A product over few rows in parts of K, and the sum of the parts.

Columns alone give too few programs to fill a GPU, so the inputs (K) are cut into `splits` as well.
Each split writes FP32 sums to a workspace; a second kernel adds them in the order of the splits,
so that a result never depends on which program ended first.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from kernels.gpu.launch import OPTIONS, cdiv

REDUCE_BLOCK = 256
REDUCE_WARPS = 4


@triton.jit(do_not_specialize=["splits"])
def reduce_splits_kernel(parts, out, count, splits, BLOCK: tl.constexpr):
    """out[i] = sum over s of parts[s, i], s ascending, both flat over rows and columns."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for split in range(splits):
        total += tl.load(parts + split * count + place, mask=inside, other=0.0)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=inside)


def split_product(
    x: torch.Tensor, num_out: int, splits: int, launch: Callable[[torch.Tensor], None]
) -> torch.Tensor:
    """The product [M, num_out] in x's dtype of a kernel that fills [splits, M, num_out].

    `launch` gets where to write: the result itself where there is one split, else a workspace.
    """
    rows = x.shape[0]
    out = torch.empty((rows, num_out), dtype=x.dtype, device=x.device)
    if splits == 1:
        launch(out)
        return out
    parts = torch.empty((splits, rows, num_out), dtype=torch.float32, device=x.device)
    launch(parts)
    count = rows * num_out
    reduce_splits_kernel[(cdiv(count, REDUCE_BLOCK),)](
        parts, out, count, splits, BLOCK=REDUCE_BLOCK, num_warps=REDUCE_WARPS, **OPTIONS
    )
    return out


def power_of_2_divisor(value: int, most: int) -> int:
    """The largest power of two that divides `value`, at most `most` (a power of two)."""
    return min(value & -value, most)
