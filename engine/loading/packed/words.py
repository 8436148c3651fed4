"""Unsigned codes in 32-bit words, as GPTQ, AWQ and compressed-tensors pack them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

WORD_BITS = 32


def unpack_words(
    words: torch.Tensor, bits: int, dim: int, order: Sequence[int] | None = None
) -> torch.Tensor:
    """Codes uint8 of a matrix of int32 words; `dim` becomes 32 / bits times as long.

    The lowest bits of a word hold its first code, or code order[0], the next code order[1] ...
    """
    count = WORD_BITS // bits
    shape = (*words.shape[: dim + 1], count, *words.shape[dim + 1 :])
    codes = torch.empty(shape, dtype=torch.uint8)
    for place, index in enumerate(order or range(count)):
        codes.select(dim + 1, index).copy_((words >> (place * bits)) & (2**bits - 1))
    return codes.flatten(dim, dim + 1)


def pack_words(
    codes: torch.Tensor, bits: int, dim: int, order: Sequence[int] | None = None
) -> torch.Tensor:
    """The inverse of `unpack_words`. Raises ValueError for codes that do not fit or fill words."""
    count = WORD_BITS // bits
    if codes.shape[dim] % count:
        raise ValueError(f"{codes.shape[dim]} codes of {bits} bits do not fill whole words")
    if codes.numel() and not 0 <= int(codes.min()) <= int(codes.max()) < 2**bits:
        raise ValueError(f"codes of {bits} bits are 0..{2**bits - 1}")
    wide = codes.to(torch.int32).unflatten(dim, (-1, count))
    words = torch.zeros_like(wide.select(dim + 1, 0))
    for place, index in enumerate(order or range(count)):
        words |= wide.select(dim + 1, index) << (place * bits)
    return words.contiguous()
