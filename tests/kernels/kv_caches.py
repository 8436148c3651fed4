"""Caches of every format for the kernels' tests, and what they hold read back another way."""

from __future__ import annotations

import struct

import torch

from kernels.kv_entries import (
    ChannelGroups,
    KVEntries,
    TokenGroups,
    channel_entry_bytes,
    token_entry_bytes,
    token_group_size,
)

# Keys and values, as engine.kv_formats pairs them.
QUANTIZED = {"int8": ("int8", "int8"), "k8v4": ("int8", "int4"), "int4": ("channel", "int4")}
MAX_STEP = 256  # tokens of a step


def entries(part: str, num_blocks: int, block_size: int, heads: int, dim: int) -> KVEntries:
    """Room for `num_blocks` blocks that hold noise, with a tail for each of nine sequences."""
    noise = torch.Generator().manual_seed(3)

    def filled(*shape: int) -> torch.Tensor:
        return torch.randint(0, 120, shape, dtype=torch.uint8, generator=noise)

    if part != "channel":
        bits = int(part.removeprefix("int"))
        shape = (num_blocks, block_size, heads, token_entry_bytes(bits, dim))
        return TokenGroups(bits, dim, filled(*shape))
    return ChannelGroups(
        dim,
        filled(num_blocks, heads, channel_entry_bytes(block_size, dim)),
        torch.full((9, block_size, heads, dim), 9.0, dtype=torch.bfloat16),
        torch.full((MAX_STEP, heads, dim), 9.0, dtype=torch.bfloat16),
    )


def copied(cache: KVEntries) -> KVEntries:
    """The same, in memory of its own."""
    if isinstance(cache, torch.Tensor):
        return cache.clone()
    if isinstance(cache, TokenGroups):
        return TokenGroups(cache.bits, cache.head_dim, cache.data.clone())
    return ChannelGroups(
        cache.head_dim, cache.data.clone(), cache.tails.clone(), cache.fresh.clone()
    )


def read_token(entry: bytes, bits: int, dim: int) -> list[float]:
    """A head of a token by the words of kernels/kv_entries.py, a value at a time."""
    size, code_bytes = token_group_size(dim), dim * bits // 8
    values = []
    for d in range(dim):
        group, within = divmod(d, size)
        place = code_bytes + 4 * group
        scale, offset = struct.unpack("<2e", entry[place : place + 4])
        if bits == 8:
            code = int.from_bytes(entry[d : d + 1], signed=True)
        else:
            byte = entry[group * size // 2 + within % (size // 2)]
            code = byte >> 4 if within >= size // 2 else byte & 15
        values.append(code * scale + offset)
    return values


def read_channels(entry: bytes, block_size: int, dim: int) -> list[list[float]]:
    """The tokens of a head of a full block, a value at a time."""
    place = block_size * dim // 2
    scales = struct.unpack(f"<{dim}e", entry[place : place + 2 * dim])
    offsets = struct.unpack(f"<{dim}e", entry[place + 2 * dim :])
    tokens = []
    for t in range(block_size):
        codes = entry[t * dim // 2 : (t + 1) * dim // 2]
        whole = [byte & 15 for byte in codes] + [byte >> 4 for byte in codes]
        tokens.append([c * s + o for c, s, o in zip(whole, scales, offsets, strict=True)])
    return tokens
