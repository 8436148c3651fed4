"""How a kernel reads and writes the KV cache's entries: the layouts of `kernels.kv_entries`.

Entry number slot * Hk + head holds a head of a token, of keys by channel block * Hk + head one of
a block. Rows of a tile are heads; its columns are dims, in the order that `column_dims` gives. The
sizes of entries are constants of a kernel: its loads are as wide as those sizes let them be.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.kv_entries import (
    ChannelGroups,
    KVEntries,
    TokenGroups,
    channel_entry_bytes,
    token_group_size,
)

# What a kernel is told: INT8 and INT4 are bits of values by token, CHANNEL is 4 bits by channel.
DENSE = tl.constexpr(0)
CHANNEL = tl.constexpr(1)
INT4 = tl.constexpr(4)
INT8 = tl.constexpr(8)

# 1.5 * 2^23: floats of this size have no fraction, and adding rounds half to even.
_ROUNDER = tl.constexpr(12582912.0)
_MAX_CHANNEL_BLOCK = 32
_DIM_MULTIPLE = 8

# Such functions may call no plain ones, hence the size of an entry once more.
_token_group_size = triton.constexpr_function(token_group_size)
_channel_entry_bytes = triton.constexpr_function(channel_entry_bytes)


@triton.constexpr_function
def _token_entry_bytes(bits: int, head_dim: int) -> int:
    size: int = _token_group_size(head_dim)
    return head_dim * bits // 8 + 4 * (head_dim // size)


@triton.constexpr_function
def _block_groups(head_dim: int, block_dim: int) -> int:
    """Groups of a tile's row, a power of two like its columns."""
    size = _token_group_size(head_dim)
    return block_dim // size if head_dim > size else 1


def kernel_format(entries: KVEntries) -> tuple[torch.Tensor, int]:
    """The tensor that a kernel reads entries from, and their format.

    Raises ValueError for shapes that the kernels have no tiles for.
    """
    if isinstance(entries, torch.Tensor):
        return entries, DENSE.value
    if entries.head_dim % _DIM_MULTIPLE:
        raise ValueError(f"quantized heads of {entries.head_dim} dims: 8 must divide them")
    if isinstance(entries, TokenGroups):
        return entries.data, entries.bits
    size = entries.block_size
    if size & (size - 1) or size > _MAX_CHANNEL_BLOCK:
        raise ValueError(f"keys by channel in blocks of {size}: no power of two up to 32")
    return entries.data, CHANNEL.value


def unquantized(entries: KVEntries) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """`tails` and `fresh` of keys by channel; None of others, which a kernel leaves alone."""
    if isinstance(entries, ChannelGroups):
        return entries.tails, entries.fresh
    return None, None


@triton.jit
def column_dims(FORMAT: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr):
    """The dim of each column of a tile, at least HEAD_DIM for columns that hold none.

    In 4 bits a byte holds a dim of either half of its group. Where the group is the whole head,
    each half fills a power of two of columns.
    """
    column = tl.arange(0, BLOCK_DIM)
    HALVES: tl.constexpr = FORMAT == CHANNEL or (
        FORMAT == INT4 and _token_group_size(HEAD_DIM) == HEAD_DIM
    )
    if HALVES and HEAD_DIM != BLOCK_DIM:
        within = column % (BLOCK_DIM // 2)
        dim = column // (BLOCK_DIM // 2) * (HEAD_DIM // 2) + within
        return tl.where(within < HEAD_DIM // 2, dim, HEAD_DIM)
    else:
        return column


@triton.jit
def load_dense(
    cache, entry, dim, present, MASKED: tl.constexpr, HEAD_DIM: tl.constexpr, DOT: tl.constexpr
):
    """Heads [entries, dims] in DOT; only MASKED ones look at `present`."""
    mask = (dim < HEAD_DIM)[None, :]
    if MASKED:
        mask = mask & present[:, None]
    place = cache + entry[:, None] * HEAD_DIM + dim[None, :]
    return tl.load(place, mask=mask, other=0.0).to(DOT)


@triton.jit
def _side_by_side(low, high, ROWS: tl.constexpr, BLOCK_DIM: tl.constexpr):
    """Low and high halves of groups [.., half] as rows [ROWS, BLOCK_DIM] of whole groups."""
    both = tl.permute(tl.join(low, high), (0, 1, 3, 2))
    return tl.reshape(both, (ROWS, BLOCK_DIM))


@triton.jit
def _nibbles(packed, scale, offset, DOT: tl.constexpr):
    """Values in DOT of the low nibbles, code * scale + offset."""
    return ((packed & 15).to(tl.float32) * scale + offset).to(DOT)


@triton.jit
def load_token_groups(
    cache, entry, present, BITS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    DOT: tl.constexpr,
):  # fmt: skip
    """Heads [entries, BLOCK_DIM] in DOT of entries quantized by token; 0 where not present.

    A group's scale and offset are loaded as one 32-bit word, which can be copied ahead of its
    use like the codes: copies of 2 bytes can not.
    """
    SIZE: tl.constexpr = _token_group_size(HEAD_DIM)
    BLOCK_GROUPS: tl.constexpr = _block_groups(HEAD_DIM, BLOCK_DIM)
    BLOCK_BYTES: tl.constexpr = BLOCK_DIM // BLOCK_GROUPS * BITS // 8
    GROUP_BYTES: tl.constexpr = SIZE * BITS // 8
    CODE_BYTES: tl.constexpr = HEAD_DIM * BITS // 8
    group = tl.arange(0, BLOCK_GROUPS)
    byte = tl.arange(0, BLOCK_BYTES)
    start = cache + entry * _token_entry_bytes(BITS, HEAD_DIM)
    inside = present[:, None] & (group < HEAD_DIM // SIZE)[None, :]
    place = start[:, None] + (CODE_BYTES + 4 * group)[None, :]
    params = tl.load(place.to(tl.pointer_type(tl.int32)), mask=inside, other=0)[:, :, None]
    scale = params.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    offset = (params >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    place = start[:, None, None] + (group * GROUP_BYTES)[None, :, None] + byte[None, None, :]
    mask = inside[:, :, None] & (byte < GROUP_BYTES)[None, None, :]
    packed = tl.load(place, mask=mask, other=0)
    if BITS == 8:
        codes = packed.to(tl.int8, bitcast=True).to(tl.float32)
        return tl.reshape((codes * scale + offset).to(DOT), (entry.shape[0], BLOCK_DIM))
    else:
        low = _nibbles(packed, scale, offset, DOT)
        high = _nibbles(packed >> 4, scale, offset, DOT)
        return _side_by_side(low, high, entry.shape[0], BLOCK_DIM)


@triton.jit
def load_heads(
    cache, entry, present, FORMAT: tl.constexpr, MASKED: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """Heads [entries, BLOCK_DIM] in DOT of entries in any format but CHANNEL."""
    if FORMAT == DENSE:
        dim = tl.arange(0, BLOCK_DIM)
        return load_dense(cache, entry, dim, present, MASKED, HEAD_DIM, DOT)
    else:
        return load_token_groups(cache, entry, present, FORMAT, HEAD_DIM, BLOCK_DIM, DOT)


@triton.jit
def load_channel_keys(
    cache, entry, present, BLOCK_SIZE: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """Keys [blocks * BLOCK_SIZE, BLOCK_DIM] in DOT of blocks' entries; 0 where not present."""
    HALF: tl.constexpr = HEAD_DIM // 2
    byte = tl.arange(0, BLOCK_DIM // 2)
    token = tl.arange(0, BLOCK_SIZE)
    start = cache + entry * _channel_entry_bytes(BLOCK_SIZE, HEAD_DIM)
    inside = present[:, None] & (byte < HALF)[None, :]
    halves = (start + BLOCK_SIZE * HALF).to(tl.pointer_type(tl.float16))
    params = halves[:, None] + byte[None, :]
    low_scale = tl.load(params, mask=inside, other=0.0).to(tl.float32)[:, None, :]
    high_scale = tl.load(params + HALF, mask=inside, other=0.0).to(tl.float32)[:, None, :]
    low_offset = tl.load(params + 2 * HALF, mask=inside, other=0.0).to(tl.float32)[:, None, :]
    high_offset = tl.load(params + 3 * HALF, mask=inside, other=0.0).to(tl.float32)[:, None, :]
    place = start[:, None, None] + (token * HALF)[None, :, None] + byte[None, None, :]
    packed = tl.load(place, mask=inside[:, None, :], other=0)
    low = _nibbles(packed, low_scale, low_offset, DOT)
    high = _nibbles(packed >> 4, high_scale, high_offset, DOT)
    return _side_by_side(low, high, entry.shape[0] * BLOCK_SIZE, BLOCK_DIM)


@triton.jit
def _scale_and_offset(least, largest, BITS: tl.constexpr):
    """FP16 scale and offset of groups; as in `kernels.kv_entries`, to the bit."""
    if BITS == 8:
        offset = ((least + largest) * 0.5).to(tl.float16)
        middle = offset.to(tl.float32)
        scale = tl.div_rn(tl.maximum(largest - middle, middle - least), 127.5).to(tl.float16)
    else:
        offset = least.to(tl.float16)
        scale = tl.div_rn(largest - offset.to(tl.float32), 15.0).to(tl.float16)
    return tl.where(scale == 0.0, 1.0, scale).to(tl.float16), offset


@triton.jit
def _codes(x, scale, offset, BITS: tl.constexpr):
    """Codes of FP32 values as uint8, those of 8 bits in two's complement."""
    code = tl.div_rn(x - offset.to(tl.float32), scale.to(tl.float32))
    code = (code + _ROUNDER) - _ROUNDER
    if BITS == 8:
        code = tl.minimum(tl.maximum(code, -128.0), 127.0)
    else:
        code = tl.minimum(tl.maximum(code, 0.0), 15.0)
    return code.to(tl.int32).to(tl.uint8)


@triton.jit
def _least_and_largest(low, high, inside, AXIS: tl.constexpr):
    """Over an axis of both halves, where inside."""
    least = tl.minimum(
        tl.min(tl.where(inside, low, float("inf")), axis=AXIS),
        tl.min(tl.where(inside, high, float("inf")), axis=AXIS),
    )
    largest = tl.maximum(
        tl.max(tl.where(inside, low, float("-inf")), axis=AXIS),
        tl.max(tl.where(inside, high, float("-inf")), axis=AXIS),
    )
    return least, largest


@triton.jit
def half_group_dims(HEAD_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr):
    """Dims [1, groups, half a group] of groups' low and of their high halves, and which exist."""
    SIZE: tl.constexpr = _token_group_size(HEAD_DIM)
    BLOCK_GROUPS: tl.constexpr = _block_groups(HEAD_DIM, BLOCK_DIM)
    group = tl.arange(0, BLOCK_GROUPS)[None, :, None]
    within = tl.arange(0, BLOCK_DIM // BLOCK_GROUPS // 2)[None, None, :]
    dim = group * SIZE + within
    return dim, dim + SIZE // 2, (group < HEAD_DIM // SIZE) & (within < SIZE // 2)


@triton.jit
def store_token_groups(
    cache, entry, low, high, mask, BITS: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
):  # fmt: skip
    """Quantize heads whose groups' halves are `low` and `high` FP32 [heads, groups, half].

    `mask` of that shape holds for whole heads, and for what `half_group_dims` says exists.
    """
    SIZE: tl.constexpr = _token_group_size(HEAD_DIM)
    BLOCK_GROUPS: tl.constexpr = _block_groups(HEAD_DIM, BLOCK_DIM)
    group = tl.arange(0, BLOCK_GROUPS)[None, :]
    byte = tl.arange(0, BLOCK_DIM // BLOCK_GROUPS // 2)[None, None, :]
    start = cache + entry * _token_entry_bytes(BITS, HEAD_DIM)
    least, largest = _least_and_largest(low, high, mask, 2)
    scale, offset = _scale_and_offset(least, largest, BITS)
    low = _codes(low, scale[:, :, None], offset[:, :, None], BITS)
    high = _codes(high, scale[:, :, None], offset[:, :, None], BITS)
    place = start[:, None, None] + group[:, :, None] * (SIZE * BITS // 8) + byte
    if BITS == 8:
        tl.store(place, low, mask=mask)
        tl.store(place + SIZE // 2, high, mask=mask)
    else:
        tl.store(place, low | (high << 4), mask=mask)
    params = start[:, None] + HEAD_DIM * BITS // 8 + 4 * group
    halves = params.to(tl.pointer_type(tl.float16))
    exists = tl.max(mask.to(tl.int32), axis=2) != 0
    tl.store(halves, scale, mask=exists)
    tl.store(halves + 1, offset, mask=exists)


@triton.jit
def store_channel_keys(
    cache, entry, keys, token_stride, BLOCK_SIZE: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
):  # fmt: skip
    """Quantize a head's keys of a whole block: BLOCK_SIZE rows, token_stride apart, from `keys`."""
    HALF: tl.constexpr = HEAD_DIM // 2
    byte = tl.arange(0, BLOCK_DIM // 2)
    token = tl.arange(0, BLOCK_SIZE)
    exists = byte < HALF
    mask = exists[None, :] & (token >= 0)[:, None]
    place = keys + token[:, None] * token_stride + byte[None, :]
    low = tl.load(place, mask=mask, other=0.0).to(tl.float32)
    high = tl.load(place + HALF, mask=mask, other=0.0).to(tl.float32)
    low_scale, low_offset = _scale_and_offset(tl.min(low, axis=0), tl.max(low, axis=0), 4)
    high_scale, high_offset = _scale_and_offset(tl.min(high, axis=0), tl.max(high, axis=0), 4)
    low_codes = _codes(low, low_scale[None, :], low_offset[None, :], 4)
    high_codes = _codes(high, high_scale[None, :], high_offset[None, :], 4)
    start = cache + entry * _channel_entry_bytes(BLOCK_SIZE, HEAD_DIM)
    place = start + token[:, None] * HALF + byte[None, :]
    tl.store(place, low_codes | (high_codes << 4), mask=mask)
    params = (start + BLOCK_SIZE * HALF).to(tl.pointer_type(tl.float16)) + byte
    tl.store(params, low_scale, mask=exists)
    tl.store(params + HALF, high_scale, mask=exists)
    tl.store(params + 2 * HALF, low_offset, mask=exists)
    tl.store(params + 3 * HALF, high_offset, mask=exists)
