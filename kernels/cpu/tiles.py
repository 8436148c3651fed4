"""GroupedWeight to TiledWeight and back."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernels.weights import TILE, TILE_BLOCK, GroupedWeight, TiledWeight, pack_groups, unpack_codes

_HALF = TILE_BLOCK // 2


def can_tile(weight: GroupedWeight) -> bool:
    """Whether groups are whole blocks of 32 inputs, or there is one group an output."""
    one_group = weight.num_groups == 1 and weight.minimum is None
    return one_group or weight.group_size % TILE_BLOCK == 0


def tile(weight: GroupedWeight) -> TiledWeight:
    """The same values in tiles. Raises ValueError for group sizes that `can_tile` refuses."""
    if not can_tile(weight):
        raise ValueError(f"groups of {weight.group_size} are not whole blocks of {TILE_BLOCK}")
    num_out, num_in = weight.shape
    padding = -num_in % TILE_BLOCK
    group_size = weight.group_size + padding  # there is padding with one group only
    codes = unpack_codes(weight.codes, weight.bits).flatten(0, 1)
    codes = F.pad(codes, (0, -num_out % TILE, 0, padding)).view(num_in + padding, -1, TILE)
    data = _interleave_int8(codes) if weight.bits == 8 else _interleave_int4(codes)
    parts = [data.view(data.shape[0], weight.num_groups, -1), _halves(weight.scale)]
    if weight.minimum is not None:
        parts.append(_halves(weight.minimum))
    return TiledWeight(
        bits=weight.bits,
        group_size=group_size,
        has_minimum=weight.minimum is not None,
        num_out=num_out,
        num_in=num_in,
        data=torch.cat(parts, dim=2).flatten(1).contiguous(),
    )


def untile(weight: TiledWeight) -> GroupedWeight:
    """The GroupedWeight that `tile` was given."""
    num_groups = -(-weight.num_in // weight.group_size)
    code_bytes = weight.group_size * TILE * weight.bits // 8
    groups = weight.data.view(weight.data.shape[0], num_groups, -1)
    codes = groups[:, :, :code_bytes]
    plain = _deinterleave_int8(codes) if weight.bits == 8 else _deinterleave_int4(codes)
    halves = groups[:, :, code_bytes:].contiguous().view(torch.float16)
    scale = halves[:, :, :TILE].transpose(1, 2).reshape(-1, num_groups)[: weight.num_out]
    minimum = halves[:, :, TILE:].transpose(1, 2).reshape(-1, num_groups)[: weight.num_out]
    return pack_groups(
        weight.bits,
        plain[: weight.num_out, : weight.num_in],
        scale,
        minimum if weight.has_minimum else None,
    )


def _interleave_int8(codes: torch.Tensor) -> torch.Tensor:
    """[K, tiles, 16] to [tiles, K/2, 16, 2] bytes."""
    pairs = codes.view(-1, 2, *codes.shape[1:])
    return pairs.permute(2, 0, 3, 1).contiguous().view(torch.uint8)


def _interleave_int4(codes: torch.Tensor) -> torch.Tensor:
    """[K, tiles, 16] to [tiles, K/32, 4, 16, 4] bytes of two codes."""
    low, high = codes.view(-1, 2, _HALF // 4, 4, *codes.shape[1:]).unbind(1)
    return (low | (high << 4)).permute(3, 0, 1, 4, 2).contiguous()


def _deinterleave_int8(codes: torch.Tensor) -> torch.Tensor:
    """[tiles, G, bytes] to int8 codes [N, K]."""
    pairs = codes.contiguous().view(torch.int8).view(codes.shape[0], -1, TILE, 2)
    return pairs.transpose(1, 2).reshape(codes.shape[0] * TILE, -1)


def _deinterleave_int4(codes: torch.Tensor) -> torch.Tensor:
    """[tiles, G, bytes] to codes 0..15 [N, K]."""
    quads = codes.reshape(codes.shape[0], -1, _HALF // 4, TILE, 4)
    halves = torch.stack((quads & 15, quads >> 4), dim=2)  # [tiles, blocks, 2, 4, 16, 4]
    return halves.permute(0, 4, 1, 2, 3, 5).reshape(codes.shape[0] * TILE, -1)


def _halves(values: torch.Tensor) -> torch.Tensor:
    """FP16 [G, N] to bytes [tiles, G, 32]."""
    padded = F.pad(values, (0, -values.shape[1] % TILE))
    return padded.view(values.shape[0], -1, TILE).transpose(0, 1).contiguous().view(torch.uint8)
