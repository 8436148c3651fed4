"""W8A16: a product of 1 to 16 rows with an INT8 weight that is read once, as it is stored.

codes [G, S, N] are a matrix [K, N] with scale[k // S, n]. One row is a sum of products in FP32;
2 to 16 rows go through tensor cores, padded to 16. Codes are exact in BF16 and FP16, so that
both compute sum over groups of scale * (x . codes) with FP32 sums, in another order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.gpu.autotune import LinearConfig
from kernels.gpu.launch import DOT_ROWS, OPTIONS, cdiv, dot_dtype
from kernels.gpu.split_k import power_of_2_divisor, split_product
from kernels.weights import GroupedWeight

# A lane keeps the products of its part of a block until the end where there is one scale a column:
# half as many rows then, or registers run out.
_ROW_BLOCK_K = 32
_ROW_BLOCK_K_BY_CHANNEL = 16
_DOT_BLOCK_K = 128


@triton.jit(do_not_specialize=["blocks_per_split"])
def int8_row_kernel(
    x, codes, scale, out, num_in, num_out, group_size, blocks_per_split,
    BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr, GROUPED: tl.constexpr, EVEN_K: tl.constexpr,
    UNROLL: tl.constexpr,
):  # fmt: skip
    """out[split, n] = sum over the split's k of x[k] * codes[k, n] * scale[k // group_size, n].

    Program (block of columns, split). With one scale a column (not GROUPED) products are summed
    across lanes only once, at the end.
    """
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(1)
    inside = column < num_out
    first = split * blocks_per_split
    last = tl.minimum(first + blocks_per_split, tl.cdiv(num_in, BLOCK_K))
    total = tl.zeros((BLOCK_N,), dtype=tl.float32)
    products = tl.zeros((BLOCK_K, BLOCK_N), dtype=tl.float32)
    for block in tl.range(first, last, loop_unroll_factor=UNROLL):
        k = block * BLOCK_K + tl.arange(0, BLOCK_K)
        mask = inside[None, :]
        if EVEN_K:
            value = tl.load(x + k).to(tl.float32)
        else:
            value = tl.load(x + k, mask=k < num_in, other=0.0).to(tl.float32)
            mask = mask & (k < num_in)[:, None]
        place = codes + k[:, None].to(tl.int64) * num_out + column[None, :]
        code = tl.load(place, mask=mask, other=0).to(tl.float32)
        if GROUPED:
            row = (block * BLOCK_K // group_size).to(tl.int64) * num_out
            factor = tl.load(scale + row + column, mask=inside, other=0.0).to(tl.float32)
            total += tl.sum(code * value[:, None], axis=0) * factor
        else:
            products += code * value[:, None]
    if not GROUPED:
        factor = tl.load(scale + column, mask=inside, other=0.0).to(tl.float32)
        total = tl.sum(products, axis=0) * factor
    place = out + split * num_out + column
    tl.store(place, total.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_rows", "blocks_per_split"])
def int8_rows_kernel(
    x, codes, scale, out, x_stride, num_rows, num_in, num_out, group_size, blocks_per_split,
    ROWS: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr, GROUPED: tl.constexpr,
    EVEN_K: tl.constexpr, DOT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """As int8_row_kernel for num_rows <= ROWS rows of x, on tensor cores; out [split, row, n]."""
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(1)
    row = tl.arange(0, ROWS)
    inside = column < num_out
    first = split * blocks_per_split
    last = tl.minimum(first + blocks_per_split, tl.cdiv(num_in, BLOCK_K))
    total = tl.zeros((ROWS, BLOCK_N), dtype=tl.float32)
    for block in tl.range(first, last, num_stages=STAGES):
        k = block * BLOCK_K + tl.arange(0, BLOCK_K)
        x_mask = (row < num_rows)[:, None]
        mask = inside[None, :]
        if not EVEN_K:
            x_mask = x_mask & (k < num_in)[None, :]
            mask = mask & (k < num_in)[:, None]
        value = tl.load(x + row[:, None] * x_stride + k[None, :], mask=x_mask, other=0.0)
        place = codes + k[:, None].to(tl.int64) * num_out + column[None, :]
        code = tl.load(place, mask=mask, other=0)
        if GROUPED:
            product = tl.dot(value.to(DOT), code.to(DOT), input_precision="ieee")
            group = (block * BLOCK_K // group_size).to(tl.int64) * num_out
            factor = tl.load(scale + group + column, mask=inside, other=0.0).to(tl.float32)
            total += product * factor[None, :]
        else:
            total = tl.dot(value.to(DOT), code.to(DOT), total, input_precision="ieee")
    if not GROUPED:
        factor = tl.load(scale + column, mask=inside, other=0.0).to(tl.float32)
        total *= factor[None, :]
    place = out + (split * num_rows + row)[:, None] * num_out + column[None, :]
    mask = (row < num_rows)[:, None] & inside[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=mask)


def can_multiply(weight: GroupedWeight) -> bool:
    """Whether a block of K fits into the groups: one scale a column, or groups of 16 m inputs."""
    return weight.minimum is None and (weight.num_groups == 1 or weight.group_size % DOT_ROWS == 0)


def linear_int8(x: torch.Tensor, weight: GroupedWeight, config: LinearConfig) -> torch.Tensor:
    """x [M, K] with M of 1 to 16, rows may be apart, -> x @ weight.T [M, N] in x's dtype."""
    num_out, num_in = weight.shape
    rows = x.shape[0]
    grouped = weight.num_groups > 1
    most = _DOT_BLOCK_K
    if rows == 1:
        most = _ROW_BLOCK_K if grouped else _ROW_BLOCK_K_BY_CHANNEL
    block_k = power_of_2_divisor(weight.group_size, most) if grouped else most
    blocks_per_split = cdiv(cdiv(num_in, block_k), config.splits)
    grid = (cdiv(num_out, config.block_n), config.splits)
    common = {
        "BLOCK_K": block_k,
        "BLOCK_N": config.block_n,
        "GROUPED": grouped,
        "EVEN_K": num_in % block_k == 0,
        "num_warps": config.num_warps,
        **OPTIONS,
    }
    sizes = (num_in, num_out, weight.group_size, blocks_per_split)

    def launch(out: torch.Tensor) -> None:
        if rows == 1:
            int8_row_kernel[grid](
                x, weight.codes, weight.scale, out, *sizes, UNROLL=config.stages, **common
            )
        else:
            int8_rows_kernel[grid](
                x,
                weight.codes,
                weight.scale,
                out,
                x.stride(0),
                rows,
                *sizes,
                ROWS=DOT_ROWS,
                DOT=dot_dtype(x.dtype),
                STAGES=config.stages,
                **common,
            )

    return split_product(x, num_out, config.splits, launch)
