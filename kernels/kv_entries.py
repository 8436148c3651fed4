"""How keys and values lie in the cache, and quantizing to and from it.

A layer keeps its keys and its values apart, each in one of three layouts over blocks of
`block_size` tokens (T), Hk heads of D dims:

    dense      a tensor [num_blocks, block_size, Hk, D] in FP32, BF16 or FP16
    by token   TokenGroups: the dims of a head of a token in groups of 64
    by channel ChannelGroups: each dim of a head over the tokens of a block, 4 bits

Quantized values are code * scale + offset, scale and offset FP16. Codes of 8 bits are -128..127
around the middle of the group's range, codes of 4 bits 0..15 from its minimum. In 4 bits a byte
holds value i of a group of S in its low nibble and i + S / 2 in its high one.

Keys have channels that are large in every token, so that groups along the head lose the others;
along the tokens of one channel they are even (KIVI, arXiv 2402.02750).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch

TOKEN_GROUP_SIZE = 64


def token_group_size(head_dim: int) -> int:
    """Dims that share a scale: 64, or the whole head where 64 does not divide it."""
    return TOKEN_GROUP_SIZE if head_dim % TOKEN_GROUP_SIZE == 0 else head_dim


def token_entry_bytes(bits: int, head_dim: int) -> int:
    """Bytes of one head of a token: its codes, then a scale and an offset for each group."""
    return head_dim * bits // 8 + 4 * (head_dim // token_group_size(head_dim))


def channel_entry_bytes(block_size: int, head_dim: int) -> int:
    """Bytes of one head of a block: 4-bit codes token by token, then D scales, then D offsets."""
    return block_size * head_dim // 2 + 4 * head_dim


@dataclass(frozen=True, slots=True)
class TokenGroups:
    """Keys or values in 8 or 4 bits: data uint8 [num_blocks, block_size, Hk, entry bytes].

    An entry is D codes, then for each group its scale and its offset.
    """

    bits: int
    head_dim: int
    data: torch.Tensor

    @property
    def block_size(self) -> int:
        """Tokens of a block."""
        return self.data.shape[1]

    @property
    def num_kv_heads(self) -> int:
        """Hk."""
        return self.data.shape[2]


@dataclass(frozen=True, slots=True)
class ChannelGroups:
    """Keys in 4 bits by channel: data uint8 [num_blocks, Hk, entry bytes].

    A block's scales are known once it is full. Until then its keys are in `tails`, BF16
    [num_tails, block_size, Hk, D], one for each running sequence. A query sees the block that
    holds its own position unquantized, and those before it as they are stored, so that it does
    not matter in which chunks a prompt was computed. `fresh`, BF16 [tokens of a step, Hk, D], has
    the keys of the step under way, for queries in the middle of a prompt; layers share it.
    """

    head_dim: int
    data: torch.Tensor
    tails: torch.Tensor
    fresh: torch.Tensor

    @property
    def block_size(self) -> int:
        """Tokens of a block."""
        return self.tails.shape[1]

    @property
    def num_kv_heads(self) -> int:
        """Hk."""
        return self.data.shape[1]


KVEntries: TypeAlias = torch.Tensor | TokenGroups | ChannelGroups


def block_size_of(entries: KVEntries) -> int:
    """Tokens of a block."""
    return entries.shape[1] if isinstance(entries, torch.Tensor) else entries.block_size


def num_kv_heads_of(entries: KVEntries) -> int:
    """Hk."""
    return entries.shape[2] if isinstance(entries, torch.Tensor) else entries.num_kv_heads


def quantize_by_token(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Entries uint8 [..., entry bytes] of heads [..., D]."""
    groups = x.float().unflatten(-1, (-1, token_group_size(x.shape[-1])))
    codes, scale, offset = _quantize(groups, bits)
    packed = codes.view(torch.uint8) if bits == 8 else _pack_nibbles(codes)
    params = torch.stack((scale, offset), dim=-1).flatten(-2)
    return torch.cat((packed.flatten(-2), params.view(torch.uint8)), dim=-1)


def dequantize_by_token(entries: torch.Tensor, bits: int, head_dim: int) -> torch.Tensor:
    """Heads FP32 [..., D] of entries uint8 [..., entry bytes]."""
    size = token_group_size(head_dim)
    code_bytes = head_dim * bits // 8
    packed = entries[..., :code_bytes].unflatten(-1, (head_dim // size, -1))
    params = _halves(entries[..., code_bytes:]).unflatten(-1, (-1, 2))
    codes = packed.view(torch.int8).float() if bits == 8 else _unpack_nibbles(packed)
    values: torch.Tensor = codes * params[..., :1] + params[..., 1:]
    return values.flatten(-2)


def quantize_by_channel(keys: torch.Tensor) -> torch.Tensor:
    """Entries uint8 [..., Hk, entry bytes] of whole blocks [..., block_size, Hk, D]."""
    channels = keys.float().movedim(-3, -1)  # [..., Hk, D, block_size]
    codes, scale, offset = _quantize(channels, 4)
    packed = _pack_nibbles(codes.transpose(-1, -2)).flatten(-2)
    return torch.cat((packed, scale.view(torch.uint8), offset.view(torch.uint8)), dim=-1)


def dequantize_by_channel(entries: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Blocks FP32 [..., block_size, Hk, D] of entries uint8 [..., Hk, entry bytes]."""
    params = _halves(entries[..., -4 * head_dim :])
    scale, offset = params.split(head_dim, dim=-1)
    packed = entries[..., : -4 * head_dim].unflatten(-1, (-1, head_dim // 2))
    values: torch.Tensor = _unpack_nibbles(packed) * scale[..., None, :] + offset[..., None, :]
    return values.transpose(-2, -3)


def dense_blocks(entries: KVEntries, blocks: torch.Tensor) -> torch.Tensor:
    """The entries of some blocks as floating point [len(blocks), block_size, Hk, D].

    Of keys by channel only full blocks hold anything.
    """
    if isinstance(entries, torch.Tensor):
        return entries.index_select(0, blocks)
    stored = entries.data.index_select(0, blocks)
    if isinstance(entries, TokenGroups):
        return dequantize_by_token(stored, entries.bits, entries.head_dim)
    return dequantize_by_channel(stored, entries.head_dim)


def _quantize(groups: torch.Tensor, bits: int) -> tuple[torch.Tensor, ...]:
    """Codes of groups FP32 [..., S], and scale and offset FP16 [...]."""
    least, largest = groups.aminmax(dim=-1)
    if bits == 8:
        offset = ((least + largest) / 2).half()
        reach = torch.maximum(largest - offset.float(), offset.float() - least)
        scale = _nonzero((reach / 127.5).half())
        low, high, dtype = -128, 127, torch.int8
    else:
        offset = least.half()
        scale = _nonzero(((largest - offset.float()) / 15).half())
        low, high, dtype = 0, 15, torch.uint8
    codes = (groups - offset.float()[..., None]) / scale.float()[..., None]
    return codes.round().clamp(low, high).to(dtype), scale, offset


def _nonzero(scale: torch.Tensor) -> torch.Tensor:
    """1 where all values of a group are equal, so that dividing is safe."""
    return torch.where(scale == 0, torch.ones_like(scale), scale)


def _pack_nibbles(codes: torch.Tensor) -> torch.Tensor:
    low, high = codes.chunk(2, dim=-1)
    return low | (high << 4)


def _unpack_nibbles(packed: torch.Tensor) -> torch.Tensor:
    return torch.cat((packed & 15, packed >> 4), dim=-1).float()


def _halves(data: torch.Tensor) -> torch.Tensor:
    """FP16 parameters as FP32; copied first, since they may lie at odd addresses."""
    return data.contiguous().view(torch.float16).float()
