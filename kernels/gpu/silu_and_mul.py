"""The gated activation of a feed-forward block."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.gpu.launch import OPTIONS, cdiv, packed

BLOCK = 1024
WARPS = 4


@triton.jit
def silu_and_mul_kernel(x, out, x_stride, width, BLOCK: tl.constexpr):
    """out = silu(gate) * up in FP32, with a row of x = [gate, up] (SwiGLU, arXiv 2002.05202)."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    start = x + row * x_stride
    gate = tl.load(start + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(start + width + column, mask=inside, other=0.0).to(tl.float32)
    result = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * width + column, result.to(out.dtype.element_ty), mask=inside)


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """As `reference.silu_and_mul`: x [T, 2 width] -> [T, width].

    Rounded once, where torch rounds silu(gate) first: up to one unit in the last place apart.
    """
    x = packed(x)
    rows, width = x.shape[0], x.shape[1] // 2
    out = torch.empty((rows, width), dtype=x.dtype, device=x.device)
    silu_and_mul_kernel[(rows, cdiv(width, BLOCK))](
        x, out, x.stride(0), width, BLOCK=BLOCK, num_warps=WARPS, **OPTIONS
    )
    return out
