"""What every launcher needs: launch options, the dtype of a dot's operands, powers of two."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

# Triton's interpreter runs kernels in numpy, for tests. The variable is read when a kernel is
# decorated, hence once at import.
INTERPRETED = bool(triton.knobs.runtime.interpret)

# Products and sums contract to FMA; said here because Triton's default changes with 3.10.
OPTIONS: dict[str, Any] = {"enable_fp_fusion": True}

# The least K, and the padded M, of a product on tensor cores.
DOT_ROWS = 16

_TL_DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


def dot_dtype(dtype: torch.dtype) -> tl.dtype:
    """The dtype that operands of `tl.dot` take for activations in `dtype`.

    The interpreter holds BF16 as raw 16-bit integers and would multiply those; there the
    product runs in FP32, which is what tensor cores accumulate in.
    """
    if INTERPRETED and dtype == torch.bfloat16:
        return tl.float32
    return _TL_DTYPES[dtype]


def packed(x: torch.Tensor) -> torch.Tensor:
    """x, or a copy where the last dimension does not lie in one piece, as the kernels assume."""
    return x if x.stride(-1) == 1 else x.contiguous()


def cdiv(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


def next_power_of_2(value: int, least: int = 1) -> int:
    """The smallest power of two that is at least `value` and at least `least`."""
    return max(least, 1 << (value - 1).bit_length())
