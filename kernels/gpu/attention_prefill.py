"""Causal attention of a prompt's chunk over paged keys and values, one pass, online softmax."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from kernels.gpu.launch import DOT_ROWS, OPTIONS, cdiv, dot_dtype, next_power_of_2, packed
from kernels.reference import PrefillSpan

LOG2_E = 1.4426950408889634


@triton.jit
def soft_cap_log2(scores, SOFTCAP: tl.constexpr):
    """c * tanh(s / c) of scores s * log2(e), times log2(e): tanh(x) = 1 - 2 / (1 + e^(2x))."""
    tanh = 1.0 - 2.0 / (1.0 + tl.exp2(scores * (2.0 / SOFTCAP)))
    return SOFTCAP * 1.4426950408889634 * tanh


@triton.jit
def _attend_blocks(
    acc, peak, weight_sum, queries, position, k_cache, v_cache, block_table, start, end,
    context_len, slot_stride, scale_log2,
    MASKED: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_DIM: tl.constexpr, DOT: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Online softmax (FlashAttention, arXiv 2205.14135) over keys start to end, by BLOCK_N.

    Only MASKED blocks look at causality, the window and the context's end.
    """
    dim = tl.arange(0, BLOCK_DIM)
    for first in tl.range(start, end, BLOCK_N, num_stages=STAGES):
        key = first + tl.arange(0, BLOCK_N)
        present = key < (context_len if MASKED else end)
        block = tl.load(block_table + key // BLOCK_SIZE, mask=present, other=0)
        slot = (block * BLOCK_SIZE + key % BLOCK_SIZE) * slot_stride
        mask = (dim < HEAD_DIM)[None, :]
        if MASKED:
            mask = mask & present[:, None]
        keys = tl.load(k_cache + slot[:, None] + dim[None, :], mask=mask, other=0.0)
        scores = tl.dot(queries, tl.trans(keys.to(DOT)), input_precision="ieee") * scale_log2
        if SOFTCAP > 0.0:
            scores = soft_cap_log2(scores, SOFTCAP)
        if MASKED:
            scores = tl.where(key[None, :] <= position[:, None], scores, float("-inf"))
        if WINDOW > 0:
            scores = tl.where(key[None, :] > position[:, None] - WINDOW, scores, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(scores, axis=1))
        base = new_peak
        if WINDOW > 0:  # a row may see no key yet
            base = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        shrink = tl.exp2(peak - base)
        weights = tl.exp2(scores - base[:, None])
        weight_sum = weight_sum * shrink + tl.sum(weights, axis=1)
        values = tl.load(v_cache + slot[:, None] + dim[None, :], mask=mask, other=0.0)
        acc *= shrink[:, None]
        acc = tl.dot(weights.to(DOT), values.to(DOT), acc, input_precision="ieee")
        peak = new_peak
    return acc, peak, weight_sum


@triton.jit(do_not_specialize=["num_queries", "context_len"])
def attention_prefill_kernel(
    q, k_cache, v_cache, block_table, out, num_queries, context_len, q_token_stride, q_head_stride,
    slot_stride, cache_head_stride, out_token_stride, scale_log2,
    WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, SHARE: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_DIM: tl.constexpr,
    DOT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Program (block of queries, head): keys before the block's first query, then the diagonal.

    SHARE query heads read one key head (GQA, arXiv 2305.13245).
    """
    # The last queries look at the most keys: they start first, so that no long program is last.
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1)
    dim = tl.arange(0, BLOCK_DIM)
    row = block * BLOCK_M + tl.arange(0, BLOCK_M)
    mask = (row < num_queries)[:, None] & (dim < HEAD_DIM)[None, :]
    place = row[:, None].to(tl.int64) * q_token_stride + head * q_head_stride + dim[None, :]
    queries = tl.load(q + place, mask=mask, other=0.0).to(DOT)
    start = context_len - num_queries
    position = start + row
    k_head = k_cache + (head // SHARE) * cache_head_stride
    v_head = v_cache + (head // SHARE) * cache_head_stride

    acc = tl.zeros((BLOCK_M, BLOCK_DIM), dtype=tl.float32)
    peak = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    weight_sum = tl.zeros((BLOCK_M,), dtype=tl.float32)
    # Every query of the block sees all keys up to the first query's own, unless there is a window.
    begin = 0
    plain = (start + block * BLOCK_M + 1) // BLOCK_N * BLOCK_N
    if WINDOW > 0:
        begin = tl.maximum(start + block * BLOCK_M + 1 - WINDOW, 0) // BLOCK_N * BLOCK_N
        plain = begin
    end = tl.minimum(start + (block + 1) * BLOCK_M, context_len)
    acc, peak, weight_sum = _attend_blocks(
        acc, peak, weight_sum, queries, position, k_head, v_head, block_table, begin, plain,
        context_len, slot_stride, scale_log2,
        False, WINDOW, SOFTCAP, BLOCK_SIZE, HEAD_DIM, BLOCK_N, BLOCK_DIM, DOT, STAGES,
    )  # fmt: skip
    acc, peak, weight_sum = _attend_blocks(
        acc, peak, weight_sum, queries, position, k_head, v_head, block_table, plain, end,
        context_len, slot_stride, scale_log2,
        True, WINDOW, SOFTCAP, BLOCK_SIZE, HEAD_DIM, BLOCK_N, BLOCK_DIM, DOT, STAGES,
    )  # fmt: skip
    result = acc / weight_sum[:, None]
    place = row[:, None].to(tl.int64) * out_token_stride + head * HEAD_DIM + dim[None, :]
    tl.store(out + place, result.to(out.dtype.element_ty), mask=mask)


def tile(head_dim: int, dtype: torch.dtype, num_queries: int) -> tuple[int, int, int, int]:
    """(queries, keys, warps, stages) of a program, within the 99 KB of shared memory of sm_89."""
    if dtype == torch.float32:
        return (32, 32, 8, 1)  # exact products take no tensor cores: 4 warps run out of registers
    if head_dim > 128:
        return (32, 32, 4, 1)
    if num_queries <= 64:
        return (64, 64, 4, 2)
    return (128, 64, 8 if head_dim > 64 else 4, 2)


def attention_prefill(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    spans: Sequence[PrefillSpan],
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> torch.Tensor:
    """As `reference.attention_prefill`: q [T, Hq, D] -> [T, Hq, D], one launch a span.

    Caches are contiguous [num_blocks, block_size, Hk, D]; scores and sums are FP32, products of
    q's dtype.
    """
    q = packed(q)
    tokens, num_heads, head_dim = q.shape
    out = torch.empty((tokens, num_heads, head_dim), dtype=q.dtype, device=q.device)
    start = 0
    for span in spans:
        part = slice(start, start + span.num_queries)
        block_m, block_n, warps, stages = tile(head_dim, q.dtype, span.num_queries)
        attention_prefill_kernel[(cdiv(span.num_queries, block_m), num_heads)](
            q[part],
            k_cache,
            v_cache,
            span.block_table,
            out[part],
            span.num_queries,
            span.context_len,
            q.stride(0),
            q.stride(1),
            k_cache.stride(1),
            k_cache.stride(2),
            out.stride(0),
            scale * LOG2_E,
            WINDOW=window,
            SOFTCAP=softcap,
            SHARE=num_heads // k_cache.shape[2],
            BLOCK_SIZE=k_cache.shape[1],
            HEAD_DIM=head_dim,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            BLOCK_DIM=next_power_of_2(head_dim, DOT_ROWS),
            DOT=dot_dtype(q.dtype),
            STAGES=stages,
            num_warps=warps,
            **OPTIONS,
        )
        start += span.num_queries
    return out
