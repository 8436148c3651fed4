"""W4A16: a product of 1 to 16 rows with an INT4 weight that is read once, as it is stored.

codes [G, S/2, N] are a matrix of bytes [K/2, N]: in group g, byte j holds input g S + j in its low
nibble and g S + S/2 + j in its high one; w = code * scale + minimum. Hence for a group

    sum over k of x[k] w[k, n] = scale[n] * (x . codes[:, n]) + minimum[n] * sum over k of x[k].

One row is a sum of products in FP32, 2 to 16 rows go through tensor cores, padded to 16.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.gpu.autotune import LinearConfig
from kernels.gpu.launch import DOT_ROWS, OPTIONS, cdiv, dot_dtype
from kernels.gpu.split_k import power_of_2_divisor, split_product
from kernels.weights import GroupedWeight

_ROW_BLOCK = 16
_DOT_BLOCK = 64


@triton.jit
def _inputs_of_block(block, group_size, BLOCK: tl.constexpr):
    """The group of a block of byte rows, and the inputs that their low nibbles multiply."""
    byte = block * BLOCK
    half = group_size // 2
    group = byte // half
    return group, group * group_size + byte % half + tl.arange(0, BLOCK)


@triton.jit
def _sixteenths(low_bits):
    """1 + code / 16 of codes in the low 4 bits, as FP32: the code becomes the top of a mantissa.

    Integer conversions run at half speed or less; this takes a shift and a three-way logic
    operation. Without the conversion the kernel takes 5.3 instead of 6.0 instructions a weight
    (sm_90, 512 columns, one warp).
    """
    return (((low_bits & 15) << 19) | 0x3F800000).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["blocks_per_split"])
def int4_row_kernel(
    x, codes, scale, minimum, out, num_in, num_out, group_size, blocks_per_split,
    BLOCK: tl.constexpr, BLOCK_N: tl.constexpr, HAS_MINIMUM: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """out[split, n] over the split's blocks of BLOCK byte rows; program (columns, split).

    With f = 1 + code / 16, w = 16 scale f + (minimum - 16 scale).
    """
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(1)
    inside = column < num_out
    first = split * blocks_per_split
    last = tl.minimum(first + blocks_per_split, num_in // 2 // BLOCK)
    total = tl.zeros((BLOCK_N,), dtype=tl.float32)
    for block in tl.range(first, last, loop_unroll_factor=UNROLL):
        group, k = _inputs_of_block(block, group_size, BLOCK)
        low_x = tl.load(x + k).to(tl.float32)
        high_x = tl.load(x + group_size // 2 + k).to(tl.float32)
        byte = block * BLOCK + tl.arange(0, BLOCK)
        place = codes + byte[:, None].to(tl.int64) * num_out + column[None, :]
        code = tl.load(place, mask=inside[None, :], other=0).to(tl.int32)
        low, high = _sixteenths(code), _sixteenths(code >> 4)
        product = tl.sum(low * low_x[:, None] + high * high_x[:, None], axis=0)
        row = group.to(tl.int64) * num_out + column
        factor = tl.load(scale + row, mask=inside, other=0.0).to(tl.float32) * 16.0
        floor = -factor
        if HAS_MINIMUM:
            floor += tl.load(minimum + row, mask=inside, other=0.0).to(tl.float32)
        total += product * factor
        total += floor * tl.sum(low_x + high_x)
    place = out + split * num_out + column
    tl.store(place, total.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_rows", "blocks_per_split"])
def int4_rows_kernel(
    x, codes, scale, minimum, out, x_stride, num_rows, num_in, num_out, group_size,
    blocks_per_split, ROWS: tl.constexpr, BLOCK: tl.constexpr, BLOCK_N: tl.constexpr,
    HAS_MINIMUM: tl.constexpr, DOT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """As int4_row_kernel for num_rows <= ROWS rows of x, on tensor cores; out [split, row, n]."""
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(1)
    row = tl.arange(0, ROWS)
    inside = column < num_out
    present = (row < num_rows)[:, None]
    first = split * blocks_per_split
    last = tl.minimum(first + blocks_per_split, num_in // 2 // BLOCK)
    total = tl.zeros((ROWS, BLOCK_N), dtype=tl.float32)
    for block in tl.range(first, last, num_stages=STAGES):
        group, k = _inputs_of_block(block, group_size, BLOCK)
        place = x + row[:, None] * x_stride + k[None, :]
        low_x = tl.load(place, mask=present, other=0.0)
        high_x = tl.load(place + group_size // 2, mask=present, other=0.0)
        byte = block * BLOCK + tl.arange(0, BLOCK)
        place = codes + byte[:, None].to(tl.int64) * num_out + column[None, :]
        code = tl.load(place, mask=inside[None, :], other=0)
        low, high = (code & 15).to(DOT), (code >> 4).to(DOT)
        product = tl.dot(low_x.to(DOT), low, input_precision="ieee")
        product = tl.dot(high_x.to(DOT), high, product, input_precision="ieee")
        start = group.to(tl.int64) * num_out + column
        factor = tl.load(scale + start, mask=inside, other=0.0).to(tl.float32)
        total += product * factor[None, :]
        if HAS_MINIMUM:
            floor = tl.load(minimum + start, mask=inside, other=0.0).to(tl.float32)
            inputs = tl.sum(low_x.to(tl.float32) + high_x.to(tl.float32), axis=1)
            total += inputs[:, None] * floor[None, :]
    place = out + (split * num_rows + row)[:, None] * num_out + column[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=present & inside[None, :])


def can_multiply(weight: GroupedWeight) -> bool:
    """Whether half a group is a whole number of blocks of at least 16 byte rows."""
    return weight.group_size % (2 * DOT_ROWS) == 0


def linear_int4(x: torch.Tensor, weight: GroupedWeight, config: LinearConfig) -> torch.Tensor:
    """x [M, K] with M of 1 to 16, rows may be apart, -> x @ weight.T [M, N] in x's dtype."""
    num_out, num_in = weight.shape
    rows = x.shape[0]
    half = weight.group_size // 2
    block = power_of_2_divisor(half, _ROW_BLOCK if rows == 1 else _DOT_BLOCK)
    blocks_per_split = cdiv(num_in // 2 // block, config.splits)
    grid = (cdiv(num_out, config.block_n), config.splits)
    has_minimum = weight.minimum is not None
    common = {
        "BLOCK": block,
        "BLOCK_N": config.block_n,
        "HAS_MINIMUM": has_minimum,
        "num_warps": config.num_warps,
        **OPTIONS,
    }
    # A kernel without minima never reads the pointer it gets in their place.
    minimum = weight.scale if weight.minimum is None else weight.minimum
    sizes = (num_in, num_out, weight.group_size, blocks_per_split)

    def launch(out: torch.Tensor) -> None:
        stored = (weight.codes, weight.scale, minimum)
        if rows == 1:
            int4_row_kernel[grid](x, *stored, out, *sizes, UNROLL=config.stages, **common)
        else:
            int4_rows_kernel[grid](
                x,
                *stored,
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
