"""Integer codes, scales and zero points to the tensors of GPTQ and AWQ checkpoints.

The layouts are those that `engine.loading.packed.gptq` and `.awq` describe and read.
"""

from __future__ import annotations

import torch

from engine.loading.packed.awq import AWQ_BITS, AWQ_ORDER
from engine.loading.packed.gptq import ONES
from engine.loading.packed.words import pack_words


def pack_gptq(
    codes: torch.Tensor,
    scale: torch.Tensor,
    zeros: torch.Tensor,
    group_of: torch.Tensor,
    bits: int,
) -> dict[str, torch.Tensor]:
    """`qweight`, `qzeros`, `scales` and `g_idx` of w = scale * (code - zero), in version 1.

    codes [N, K] and zeros [N, G] integers of `bits` (4 or 8), scale [N, G] to be rounded to FP16,
    group_of [K] the group of each input. Version 1 is what every reader knows. It stores zero - 1
    and readers disagree about a zero point of 0, so that those are refused: quantize with zero
    points of 1 and more. Raises ValueError, also for sizes that do not fill words of 32 bits.
    """
    if zeros.numel() and int(zeros.min()) < 1:
        raise ValueError("GPTQ's version 1 cannot hold a zero point of 0")
    ones = torch.tensor(ONES[bits], dtype=torch.int32)
    return {
        "qweight": pack_words(codes.t(), bits, 0),
        "qzeros": pack_words(zeros.t(), bits, 1) - ones,
        "scales": scale.t().half().contiguous(),
        "g_idx": group_of.to(torch.int32),
    }


def pack_awq(
    codes: torch.Tensor, scale: torch.Tensor, zeros: torch.Tensor
) -> dict[str, torch.Tensor]:
    """`qweight`, `qzeros` and `scales` of w = scale * (code - zero) in AWQ's gemm layout.

    codes [N, K] and zeros [N, G] integers of 4 bits, scale [N, G] to be rounded to FP16, groups of
    K / G consecutive inputs. Raises ValueError for an N that is no multiple of 8.
    """
    return {
        "qweight": pack_words(codes.t(), AWQ_BITS, 1, AWQ_ORDER),
        "qzeros": pack_words(zeros.t(), AWQ_BITS, 1, AWQ_ORDER),
        "scales": scale.t().half().contiguous(),
    }
