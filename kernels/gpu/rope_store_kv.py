"""RoPE on queries and keys, and the store of keys and values, in one pass over a token's heads."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.gpu.launch import OPTIONS, cdiv, next_power_of_2, packed

BLOCK_HEADS = 8
WARPS = 2


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


@triton.jit(do_not_specialize=["num_query_blocks"])
def rope_store_kv_kernel(
    q, k, v, positions, cos, sin, q_out, k_cache, v_cache, slot_mapping,
    q_token_stride, q_head_stride, k_token_stride, k_head_stride, v_token_stride, v_head_stride,
    slot_stride, cache_head_stride, num_heads, num_kv_heads, num_query_blocks,
    HALF: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_HEADS: tl.constexpr,
    BLOCK_HALF: tl.constexpr, BLOCK_TAIL: tl.constexpr, BLOCK_DIM: tl.constexpr,
):  # fmt: skip
    """Program (token, block of heads): first the blocks of query heads, then those of k and v."""
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
        slot = tl.load(slot_mapping + token) * slot_stride
        _rotate_heads(
            k + token * k_token_stride, k_head_stride, k_cache + slot, cache_head_stride,
            head, num_kv_heads, c, s, HALF, HEAD_DIM, BLOCK_HALF, BLOCK_TAIL,
        )  # fmt: skip
        dim = tl.arange(0, BLOCK_DIM)
        mask = (head < num_kv_heads)[:, None] & (dim < HEAD_DIM)[None, :]
        read = v + token * v_token_stride + head[:, None] * v_head_stride + dim[None, :]
        value = tl.load(read, mask=mask, other=0.0).to(tl.float32)
        write = v_cache + slot + head[:, None] * cache_head_stride + dim[None, :]
        tl.store(write, value.to(v_cache.dtype.element_ty), mask=mask)


def rope_and_store_kv(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    positions: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> torch.Tensor:
    """As `reference.rope_and_store_kv`: rotated queries [T, Hq, D], keys and values stored.

    Keys go into the cache unrounded by the activations' dtype: with an FP32 cache under BF16
    activations they are closer to exact than the reference's.
    """
    q, k, v = packed(q), packed(k), packed(v)
    tokens, num_heads, head_dim = q.shape
    num_kv_heads, half = k.shape[1], cos.shape[1]
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
        k_cache,
        v_cache,
        slot_mapping,
        q.stride(0),
        q.stride(1),
        k.stride(0),
        k.stride(1),
        v.stride(0),
        v.stride(1),
        k_cache.stride(1),
        k_cache.stride(2),
        num_heads,
        num_kv_heads,
        query_blocks,
        HALF=half,
        HEAD_DIM=head_dim,
        BLOCK_HEADS=BLOCK_HEADS,
        BLOCK_HALF=next_power_of_2(half),
        BLOCK_TAIL=next_power_of_2(max(head_dim - 2 * half, 1)),
        BLOCK_DIM=next_power_of_2(head_dim),
        num_warps=WARPS,
        **OPTIONS,
    )
    return q_out
