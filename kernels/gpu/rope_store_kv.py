"""RoPE on queries and keys, and the store of keys and values, in one pass over a token's heads.

Keys by channel are quantized by a second kernel, a program for each row and key head: those whose
row does not end a block do nothing. Which rows do is known on the device alone.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.gpu.kv_entries import (
    CHANNEL,
    DENSE,
    half_group_dims,
    kernel_format,
    store_channel_keys,
    store_token_groups,
    unquantized,
)
from kernels.gpu.launch import OPTIONS, cdiv, next_power_of_2, packed
from kernels.kv_entries import KVEntries, block_size_of

BLOCK_HEADS = 8
WARPS = 2
CLOSE_WARPS = 1


@triton.jit
def _rotate_heads(
    source, source_stride, target, target_stride, head, num_heads, cos, sin,
    HALF: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_HALF: tl.constexpr, BLOCK_TAIL: tl.constexpr,
):  # fmt: skip
    """Pairs (i, i + HALF) of the heads [BLOCK_HEADS] rotated, dims past 2 HALF copied."""
    column = tl.arange(0, BLOCK_HALF)
    inside = (head < num_heads)[:, None] & (column < HALF)[None, :]
    read = source + head[:, None] * source_stride + column[None, :]
    first = tl.load(read, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(read + HALF, mask=inside, other=0.0).to(tl.float32)
    write = target + head[:, None] * target_stride + column[None, :]
    dtype = target.dtype.element_ty
    tl.store(write, (first * cos - second * sin).to(dtype), mask=inside)
    tl.store(write + HALF, (second * cos + first * sin).to(dtype), mask=inside)
    if 2 * HALF < HEAD_DIM:
        tail = 2 * HALF + tl.arange(0, BLOCK_TAIL)
        mask = (head < num_heads)[:, None] & (tail < HEAD_DIM)[None, :]
        rest = tl.load(source + head[:, None] * source_stride + tail[None, :], mask, other=0.0)
        tail_write = target + head[:, None] * target_stride + tail[None, :]
        tl.store(tail_write, rest.to(tl.float32).to(dtype), mask=mask)


@triton.jit
def _rotated(source, dim, mask, cos, sin, HALF: tl.constexpr):
    """The rotated heads' dims `dim` in FP32, of heads that begin at `source` [heads, 1, 1].

    As `_rotate_heads`, for dims in any order: each is read with the one that it is paired with.
    """
    paired = dim < 2 * HALF
    is_first = dim < HALF
    angle = tl.where(is_first, dim, dim - HALF)
    c = tl.load(cos + angle, mask=paired, other=1.0)
    s = tl.load(sin + angle, mask=paired, other=0.0)
    x = tl.load(source + dim, mask=mask, other=0.0).to(tl.float32)
    partner = tl.where(is_first, dim + HALF, dim - HALF)
    other = tl.load(source + partner, mask=mask & paired, other=0.0).to(tl.float32)
    return x * c + other * tl.where(is_first, -s, s)


@triton.jit
def _continues(tails, token, following):
    """Whether the batch's row `following` is of the same sequence as row `token`."""
    known = (following >= 0) & (following < tl.num_programs(0))
    owner = tl.load(tails + token)
    return known & (tl.load(tails + following, mask=known, other=0) == owner)


@triton.jit(do_not_specialize=["num_query_blocks"])
def rope_store_kv_kernel(
    q, k, v, positions, cos, sin, q_out, k_cache, v_cache, slot_mapping, tails, k_tails, fresh,
    q_token_stride, q_head_stride, k_token_stride, k_head_stride, v_token_stride, v_head_stride,
    num_heads, num_kv_heads, num_query_blocks,
    K_FORMAT: tl.constexpr, V_FORMAT: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    HALF: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_HEADS: tl.constexpr,
    BLOCK_HALF: tl.constexpr, BLOCK_TAIL: tl.constexpr, BLOCK_DIM: tl.constexpr,
):  # fmt: skip
    """Program (token, block of heads): first the blocks of query heads, then those of k and v.

    Keys by channel go to `fresh`, and to `k_tails` unless the next block begins in this batch.
    """
    token = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    position = tl.load(positions + token)
    column = tl.arange(0, BLOCK_HALF)
    inside = column < HALF
    c = tl.load(cos + position * HALF + column, mask=inside, other=0.0)[None, :]
    s = tl.load(sin + position * HALF + column, mask=inside, other=0.0)[None, :]
    if block < num_query_blocks:
        head = block * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
        _rotate_heads(
            q + token * q_token_stride, q_head_stride, q_out + token * num_heads * HEAD_DIM,
            HEAD_DIM, head, num_heads, c, s, HALF, HEAD_DIM, BLOCK_HALF, BLOCK_TAIL,
        )  # fmt: skip
    else:
        head = (block - num_query_blocks) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
        slot = tl.load(slot_mapping + token)
        first_entry = slot * num_kv_heads
        k_row = k + token * k_token_stride
        v_row = v + token * v_token_stride
        if K_FORMAT == DENSE:
            _rotate_heads(
                k_row, k_head_stride, k_cache + first_entry * HEAD_DIM, HEAD_DIM,
                head, num_kv_heads, c, s, HALF, HEAD_DIM, BLOCK_HALF, BLOCK_TAIL,
            )  # fmt: skip
        elif K_FORMAT == CHANNEL:
            _rotate_heads(
                k_row, k_head_stride, fresh + token * num_kv_heads * HEAD_DIM, HEAD_DIM,
                head, num_kv_heads, c, s, HALF, HEAD_DIM, BLOCK_HALF, BLOCK_TAIL,
            )  # fmt: skip
            within = slot % BLOCK_SIZE
            if not _continues(tails, token, token + BLOCK_SIZE - within):
                place = (tl.load(tails + token) * BLOCK_SIZE + within) * num_kv_heads
                _rotate_heads(
                    k_row, k_head_stride, k_tails + place * HEAD_DIM, HEAD_DIM,
                    head, num_kv_heads, c, s, HALF, HEAD_DIM, BLOCK_HALF, BLOCK_TAIL,
                )  # fmt: skip
        else:
            low_dim, high_dim, exists = half_group_dims(HEAD_DIM, BLOCK_DIM)
            mask = exists & (head < num_kv_heads)[:, None, None]
            source = k_row + (head * k_head_stride)[:, None, None]
            angles = position * HALF
            low = _rotated(source, low_dim, mask, cos + angles, sin + angles, HALF)
            high = _rotated(source, high_dim, mask, cos + angles, sin + angles, HALF)
            store_token_groups(
                k_cache, first_entry + head, low, high, mask, K_FORMAT, HEAD_DIM, BLOCK_DIM
            )
        if V_FORMAT == DENSE:
            dim = tl.arange(0, BLOCK_DIM)
            mask = (head < num_kv_heads)[:, None] & (dim < HEAD_DIM)[None, :]
            read = v_row + head[:, None] * v_head_stride + dim[None, :]
            value = tl.load(read, mask=mask, other=0.0).to(tl.float32)
            write = v_cache + (first_entry + head)[:, None] * HEAD_DIM + dim[None, :]
            tl.store(write, value.to(v_cache.dtype.element_ty), mask=mask)
        else:
            low_dim, high_dim, exists = half_group_dims(HEAD_DIM, BLOCK_DIM)
            mask = exists & (head < num_kv_heads)[:, None, None]
            read = v_row + (head * v_head_stride)[:, None, None]
            low = tl.load(read + low_dim, mask=mask, other=0.0).to(tl.float32)
            high = tl.load(read + high_dim, mask=mask, other=0.0).to(tl.float32)
            store_token_groups(
                v_cache, first_entry + head, low, high, mask, V_FORMAT, HEAD_DIM, BLOCK_DIM
            )


@triton.jit
def close_blocks_kernel(
    k_cache, k_tails, fresh, slot_mapping, tails,
    BLOCK_SIZE: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
):  # fmt: skip
    """Program (row, key head): quantize the block that the row fills, if it does.

    The block's keys are in the batch, or in the tail where it had begun before.
    """
    row = tl.program_id(0).to(tl.int64)
    head, num_kv_heads = tl.program_id(1), tl.num_programs(1)
    slot = tl.load(slot_mapping + row)
    if slot % BLOCK_SIZE == BLOCK_SIZE - 1:
        first = row + 1 - BLOCK_SIZE
        keys = k_tails + tl.load(tails + row) * BLOCK_SIZE * num_kv_heads * HEAD_DIM
        if _continues(tails, row, first):
            keys = fresh + first * num_kv_heads * HEAD_DIM
        store_channel_keys(
            k_cache, slot // BLOCK_SIZE * num_kv_heads + head, keys + head * HEAD_DIM,
            num_kv_heads * HEAD_DIM, BLOCK_SIZE, HEAD_DIM, BLOCK_DIM,
        )  # fmt: skip


def rope_and_store_kv(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    positions: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    k_cache: KVEntries,
    v_cache: KVEntries,
    slot_mapping: torch.Tensor,
    tails: torch.Tensor | None = None,
) -> torch.Tensor:
    """As `reference.rope_and_store_kv`: rotated queries [T, Hq, D], keys and values stored.

    Entries are contiguous. Keys go into the cache unrounded by the activations' dtype: with an
    FP32 or a quantized cache under BF16 activations they are closer to exact than the reference's.
    """
    q, k, v = packed(q), packed(k), packed(v)
    tokens, num_heads, head_dim = q.shape
    num_kv_heads, half = k.shape[1], cos.shape[1]
    k_data, k_format = kernel_format(k_cache)
    v_data, v_format = kernel_format(v_cache)
    k_tails, fresh = unquantized(k_cache)
    block_size, block_dim = block_size_of(k_cache), next_power_of_2(head_dim)
    q_out = torch.empty((tokens, num_heads, head_dim), dtype=q.dtype, device=q.device)
    query_blocks = cdiv(num_heads, BLOCK_HEADS)
    grid = (tokens, query_blocks + cdiv(num_kv_heads, BLOCK_HEADS))
    rope_store_kv_kernel[grid](
        q,
        k,
        v,
        positions,
        cos,
        sin,
        q_out,
        k_data,
        v_data,
        slot_mapping,
        tails,
        k_tails,
        fresh,
        q.stride(0),
        q.stride(1),
        k.stride(0),
        k.stride(1),
        v.stride(0),
        v.stride(1),
        num_heads,
        num_kv_heads,
        query_blocks,
        K_FORMAT=k_format,
        V_FORMAT=v_format,
        BLOCK_SIZE=block_size,
        HALF=half,
        HEAD_DIM=head_dim,
        BLOCK_HEADS=BLOCK_HEADS,
        BLOCK_HALF=next_power_of_2(half),
        BLOCK_TAIL=next_power_of_2(max(head_dim - 2 * half, 1)),
        BLOCK_DIM=block_dim,
        num_warps=WARPS,
        **OPTIONS,
    )
    if k_format == CHANNEL.value:
        close_blocks_kernel[(tokens, num_kv_heads)](
            k_data,
            k_tails,
            fresh,
            slot_mapping,
            tails,
            BLOCK_SIZE=block_size,
            HEAD_DIM=head_dim,
            BLOCK_DIM=block_dim,
            num_warps=CLOSE_WARPS,
            **OPTIONS,
        )
    return q_out
