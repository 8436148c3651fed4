"""How far a kernel's result may be from the reference on the same inputs, computed in FP32.

A unit in the last place (ulp) is relative 2^-7 in BF16, 2^-10 in FP16, 2^-23 in FP32. Triton's
interpreter cuts FP32 to BF16 off instead of rounding, which costs a whole ulp instead of half.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16
_ULP = {FP32: 2.0**-23, BF16: 2.0**-7, FP16: 2.0**-10}


@dataclass(frozen=True)
class Tolerance:
    """|actual - expected| <= atol + rtol |expected|."""

    rtol: float
    atol: float


def elementwise(dtype: torch.dtype) -> Tolerance:
    """FP32 inside and one rounding at the end; FP32 itself has a few operations and a sum."""
    return Tolerance(rtol=64 * _ULP[FP32] + _ULP[dtype], atol=1e-6)


def added(dtype: torch.dtype) -> Tolerance:
    """The norm of a sum that was rounded first: two roundings, the first one of the larger sum."""
    return Tolerance(rtol=64 * _ULP[FP32] + 3 * _ULP[dtype], atol=1e-6 + _ULP[dtype] / 16)


def product(dtype: torch.dtype, num_in: int) -> Tolerance:
    """Codes are exact in every dtype and sums are FP32: one rounding, and the sum's order.

    Inputs and weights are near 1, so that sums of `num_in` products are near sqrt(num_in). INT4
    codes are all positive, and one row adds 1 + code / 16: those sums are up to 24 times what is
    left of them beside the minima.
    """
    return Tolerance(rtol=4 * _ULP[FP32] + _ULP[dtype], atol=48 * _ULP[FP32] * math.sqrt(num_in))


def dense_product(dtype: torch.dtype, num_in: int) -> Tolerance:
    """As `product`, with weights (or a result before its bias) that were rounded to `dtype` too."""
    exact = product(dtype, num_in)
    return Tolerance(exact.rtol, exact.atol + 2 * _ULP[dtype] * math.sqrt(num_in))


def attention(dtype: torch.dtype) -> Tolerance:
    """Softmax weights are rounded before they multiply values near 1: an ulp of their sum, 1."""
    return Tolerance(rtol=2 * _ULP[dtype] + 1e-5, atol=2 * _ULP[dtype] + 1e-5)
