"""The gated activation of a feed-forward block."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.gpu.launch import OPTIONS, cdiv, packed

BLOCK = 1024
WARPS = 4


@triton.jit
def gate_and_mul_kernel(x, out, x_stride, width, GELU: tl.constexpr, BLOCK: tl.constexpr):
    """out = act(gate) * up in FP32, with a row of x = [gate, up] (arXiv 2002.05202).

    silu(g) = g / (1 + e^-g); GELU's approximation by tanh is g / (1 + e^-2z) with
    z = sqrt(2 / pi) (g + 0.044715 g^3).
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    start = x + row * x_stride
    gate = tl.load(start + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(start + width + column, mask=inside, other=0.0).to(tl.float32)
    z = gate
    if GELU:
        z = gate * (1.0 + 0.044715 * gate * gate) * 1.5957691216057308
    result = gate / (1.0 + tl.exp(-z)) * up
    tl.store(out + row * width + column, result.to(out.dtype.element_ty), mask=inside)


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """As `reference.silu_and_mul`: x [T, 2 width] -> [T, width].

    Rounded once, where torch rounds silu(gate) first: up to one unit in the last place apart.
    """
    return _gate_and_mul(x, gelu=False)


def gelu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """As `reference.gelu_and_mul`: x [T, 2 width] -> [T, width], rounded once."""
    return _gate_and_mul(x, gelu=True)


def _gate_and_mul(x: torch.Tensor, gelu: bool) -> torch.Tensor:
    x = packed(x)
    rows, width = x.shape[0], x.shape[1] // 2
    out = torch.empty((rows, width), dtype=x.dtype, device=x.device)
    gate_and_mul_kernel[(rows, cdiv(width, BLOCK))](
        x, out, x.stride(0), width, GELU=gelu, BLOCK=BLOCK, num_warps=WARPS, **OPTIONS
    )
    return out
