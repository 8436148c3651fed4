"""RMSNorm, alone and behind a residual addition: one program a row, the row in registers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.gpu.launch import OPTIONS, next_power_of_2, packed


@triton.jit
def rms_norm_kernel(x, weight, out, x_stride, hidden, eps, BLOCK: tl.constexpr):
    """out = x / sqrt(mean(x^2) + eps) * weight, in FP32 (arXiv 1910.07467)."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < hidden
    value = tl.load(x + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    gain = tl.load(weight + column, mask=inside, other=0.0)
    inverse = tl.rsqrt(tl.sum(value * value) / hidden + eps)
    result = value * inverse * gain
    tl.store(out + row * hidden + column, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def fused_add_rms_norm_kernel(
    x, residual, weight, out, x_stride, residual_stride, hidden, eps, BLOCK: tl.constexpr
):
    """residual += x, rounded to its dtype; out = RMSNorm of what was stored."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < hidden
    place = residual + row * residual_stride + column
    value = tl.load(x + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    value += tl.load(place, mask=inside, other=0.0).to(tl.float32)
    stored = value.to(residual.dtype.element_ty)
    tl.store(place, stored, mask=inside)
    value = stored.to(tl.float32)
    gain = tl.load(weight + column, mask=inside, other=0.0)
    inverse = tl.rsqrt(tl.sum(value * value) / hidden + eps)
    result = value * inverse * gain
    tl.store(out + row * hidden + column, result.to(out.dtype.element_ty), mask=inside)


def block_and_warps(hidden: int) -> tuple[int, int]:
    """The row rounded up to a power of two, and warps so that a lane holds 16 values or fewer."""
    block = next_power_of_2(hidden, 64)
    return block, min(max(block // 512, 1), 16)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """As `reference.rms_norm`: x [T, hidden], rows may be apart; weight FP32 [hidden].

    Heads [T, H, hidden] are copied to lie as rows first, unless they do.
    """
    if x.dim() == 3:
        return rms_norm(x.reshape(-1, x.shape[-1]), weight, eps).view(x.shape)
    x = packed(x)
    rows, hidden = x.shape
    out = torch.empty((rows, hidden), dtype=x.dtype, device=x.device)
    block, warps = block_and_warps(hidden)
    rms_norm_kernel[(rows,)](
        x, weight, out, x.stride(0), hidden, eps, BLOCK=block, num_warps=warps, **OPTIONS
    )
    return out


def fused_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    """As `reference.fused_add_rms_norm`: `residual` [T, hidden] is changed in place.

    Raises ValueError when a row of `residual` does not lie in one piece.
    """
    if residual.stride(-1) != 1:
        raise ValueError("the residual's rows must each lie in one piece")
    x = packed(x)
    rows, hidden = x.shape
    out = torch.empty((rows, hidden), dtype=x.dtype, device=x.device)
    block, warps = block_and_warps(hidden)
    fused_add_rms_norm_kernel[(rows,)](
        x,
        residual,
        weight,
        out,
        x.stride(0),
        residual.stride(0),
        hidden,
        eps,
        BLOCK=block,
        num_warps=warps,
        **OPTIONS,
    )
    return out
