"""Causal attention of a prompt's chunk over paged keys and values, one pass, online softmax.

Keys by channel take two passes: over the blocks before each query's own as they are stored, then
over the queries' own blocks as `rope_and_store_kv` left their keys in `fresh`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from kernels.gpu.kv_entries import (
    CHANNEL,
    DENSE,
    column_dims,
    kernel_format,
    load_channel_keys,
    load_dense,
    load_heads,
    unquantized,
)
from kernels.gpu.launch import DOT_ROWS, OPTIONS, cdiv, dot_dtype, next_power_of_2, packed
from kernels.kv_entries import KVEntries, block_size_of, num_kv_heads_of
from kernels.reference import PrefillSpan

LOG2_E = 1.4426950408889634


@triton.jit
def soft_cap_log2(scores, SOFTCAP: tl.constexpr):
    """c * tanh(s / c) of scores s * log2(e), times log2(e): tanh(x) = 1 - 2 / (1 + e^(2x))."""
    tanh = 1.0 - 2.0 / (1.0 + tl.exp2(scores * (2.0 / SOFTCAP)))
    return SOFTCAP * 1.4426950408889634 * tanh


@triton.jit
def _load_keys(
    k_cache, fresh, entry, present, block_table, first, end, start, num_kv_heads, kv_head,
    FORMAT: tl.constexpr, OWN: tl.constexpr, MASKED: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_DIM: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """Keys [BLOCK_N, BLOCK_DIM] from `first` on: OWN ones, of the step itself, out of `fresh`."""
    if OWN:
        row = (first - start + tl.arange(0, BLOCK_N)).to(tl.int64)
        dim = column_dims(FORMAT, HEAD_DIM, BLOCK_DIM)
        return load_dense(fresh, row * num_kv_heads + kv_head, dim, present, MASKED, HEAD_DIM, DOT)
    elif FORMAT == CHANNEL:
        begin = first + tl.arange(0, BLOCK_N // BLOCK_SIZE) * BLOCK_SIZE
        stored = begin < end
        block = tl.load(block_table + begin // BLOCK_SIZE, mask=stored, other=0)
        return load_channel_keys(
            k_cache, block * num_kv_heads + kv_head, stored, BLOCK_SIZE, HEAD_DIM, BLOCK_DIM, DOT
        )
    else:
        return load_heads(k_cache, entry, present, FORMAT, MASKED, HEAD_DIM, BLOCK_DIM, DOT)


@triton.jit
def _attend_blocks(
    acc, peak, weight_sum, queries, position, k_cache, v_cache, fresh, block_table, first_key, end,
    start, num_kv_heads, kv_head, scale_log2,
    K_FORMAT: tl.constexpr, V_FORMAT: tl.constexpr, OWN: tl.constexpr, MASKED: tl.constexpr,
    WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, BLOCK_SIZE: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_DIM: tl.constexpr, DOT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Online softmax (FlashAttention, arXiv 2205.14135) over keys first_key to end, by BLOCK_N.

    Only MASKED blocks look at causality, the window and the end. Of keys by channel queries see
    those of their OWN block, or those before it.
    """
    for first in tl.range(first_key, end, BLOCK_N, num_stages=STAGES):
        key = first + tl.arange(0, BLOCK_N)
        present = key < end
        block = tl.load(block_table + key // BLOCK_SIZE, mask=present, other=0)
        entry = (block * BLOCK_SIZE + key % BLOCK_SIZE) * num_kv_heads + kv_head
        keys = _load_keys(
            k_cache, fresh, entry, present, block_table, first, end, start, num_kv_heads, kv_head,
            K_FORMAT, OWN, MASKED, BLOCK_SIZE, HEAD_DIM, BLOCK_N, BLOCK_DIM, DOT,
        )  # fmt: skip
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale_log2
        if SOFTCAP > 0.0:
            scores = soft_cap_log2(scores, SOFTCAP)
        if MASKED:
            last = position
            if K_FORMAT == CHANNEL and not OWN:
                last = position // BLOCK_SIZE * BLOCK_SIZE - 1
            scores = tl.where(key[None, :] <= last[:, None], scores, float("-inf"))
        if OWN:
            begin = position // BLOCK_SIZE * BLOCK_SIZE
            scores = tl.where(key[None, :] >= begin[:, None], scores, float("-inf"))
        if WINDOW > 0:
            scores = tl.where(key[None, :] > position[:, None] - WINDOW, scores, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(scores, axis=1))
        base = new_peak
        if WINDOW > 0 or K_FORMAT == CHANNEL:  # a row may see no key yet
            base = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        shrink = tl.exp2(peak - base)
        weights = tl.exp2(scores - base[:, None])
        weight_sum = weight_sum * shrink + tl.sum(weights, axis=1)
        values = load_heads(v_cache, entry, present, V_FORMAT, MASKED, HEAD_DIM, BLOCK_DIM, DOT)
        acc *= shrink[:, None]
        acc = tl.dot(weights.to(DOT), values, acc, input_precision="ieee")
        peak = new_peak
    return acc, peak, weight_sum


@triton.jit(do_not_specialize=["num_queries", "context_len"])
def attention_prefill_kernel(
    q, k_cache, v_cache, fresh, block_table, out, num_queries, context_len,
    q_token_stride, q_head_stride, num_kv_heads, out_token_stride, scale_log2,
    K_FORMAT: tl.constexpr, V_FORMAT: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr,
    SHARE: tl.constexpr, BLOCK_SIZE: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_DIM: tl.constexpr, DOT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Program (block of queries, head): keys before the block's first query, then the diagonal.

    SHARE query heads read one key head (GQA, arXiv 2305.13245).
    """
    # The last queries look at the most keys: they start first, so that no long program is last.
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1)
    kv_head = head // SHARE
    k_dim = column_dims(K_FORMAT, HEAD_DIM, BLOCK_DIM)
    row = block * BLOCK_M + tl.arange(0, BLOCK_M)
    mask = (row < num_queries)[:, None] & (k_dim < HEAD_DIM)[None, :]
    place = row[:, None].to(tl.int64) * q_token_stride + head * q_head_stride + k_dim[None, :]
    queries = tl.load(q + place, mask=mask, other=0.0).to(DOT)
    start = context_len - num_queries
    position = start + row

    acc = tl.zeros((BLOCK_M, BLOCK_DIM), dtype=tl.float32)
    peak = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    weight_sum = tl.zeros((BLOCK_M,), dtype=tl.float32)
    # Every query of the block sees all keys up to the first query's own, unless there is a window;
    # of keys by channel all up to its block, which begins with it.
    first_query = start + block * BLOCK_M
    end = tl.minimum(first_query + BLOCK_M, context_len)
    stored_end = end
    seen_by_all = first_query + 1
    if K_FORMAT == CHANNEL:
        stored_end = (end - 1) // BLOCK_SIZE * BLOCK_SIZE
        seen_by_all = first_query
    begin = 0
    plain = seen_by_all // BLOCK_N * BLOCK_N
    if WINDOW > 0:
        begin = tl.maximum(first_query + 1 - WINDOW, 0) // BLOCK_N * BLOCK_N
        plain = begin
    acc, peak, weight_sum = _attend_blocks(
        acc, peak, weight_sum, queries, position, k_cache, v_cache, fresh, block_table,
        begin, plain, start, num_kv_heads, kv_head, scale_log2, K_FORMAT, V_FORMAT, False, False,
        WINDOW, SOFTCAP, BLOCK_SIZE, HEAD_DIM, BLOCK_N, BLOCK_DIM, DOT, STAGES,
    )  # fmt: skip
    acc, peak, weight_sum = _attend_blocks(
        acc, peak, weight_sum, queries, position, k_cache, v_cache, fresh, block_table,
        plain, stored_end, start, num_kv_heads, kv_head, scale_log2, K_FORMAT, V_FORMAT, False,
        True, WINDOW, SOFTCAP, BLOCK_SIZE, HEAD_DIM, BLOCK_N, BLOCK_DIM, DOT, STAGES,
    )  # fmt: skip
    if K_FORMAT == CHANNEL:
        acc, peak, weight_sum = _attend_blocks(
            acc, peak, weight_sum, queries, position, k_cache, v_cache, fresh, block_table,
            first_query, end, start, num_kv_heads, kv_head, scale_log2, K_FORMAT, V_FORMAT, True,
            True, WINDOW, SOFTCAP, BLOCK_SIZE, HEAD_DIM, BLOCK_N, BLOCK_DIM, DOT, STAGES,
        )  # fmt: skip
    result = acc / weight_sum[:, None]
    v_dim = column_dims(V_FORMAT, HEAD_DIM, BLOCK_DIM)
    mask = (row < num_queries)[:, None] & (v_dim < HEAD_DIM)[None, :]
    place = row[:, None].to(tl.int64) * out_token_stride + head * HEAD_DIM + v_dim[None, :]
    tl.store(out + place, result.to(out.dtype.element_ty), mask=mask)


def tile(
    head_dim: int, dtype: torch.dtype, v_format: int, num_queries: int
) -> tuple[int, int, int, int]:
    """(queries, keys, warps, stages) of a program, within the 99 KB of shared memory of sm_89."""
    if dtype == torch.float32:
        return (32, 32, 8, 1)  # exact products take no tensor cores: 4 warps run out of registers
    if v_format != DENSE.value:  # the largest for which sm_80 has the registers to expand keys
        return (32, 32, 8, 1) if head_dim > 128 else (64, 32, 8, 2)
    if head_dim > 128:
        return (32, 32, 4, 1)
    if num_queries <= 64:
        return (64, 64, 4, 2)
    return (128, 64, 8 if head_dim > 64 else 4, 2)


def attention_prefill(
    q: torch.Tensor,
    k_cache: KVEntries,
    v_cache: KVEntries,
    spans: Sequence[PrefillSpan],
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> torch.Tensor:
    """As `reference.attention_prefill`: q [T, Hq, D] -> [T, Hq, D], one launch a span.

    Entries are contiguous; scores and sums are FP32, products of q's dtype, which quantized
    entries are expanded to in registers.
    """
    q = packed(q)
    tokens, num_heads, head_dim = q.shape
    k_data, k_format = kernel_format(k_cache)
    v_data, v_format = kernel_format(v_cache)
    fresh, num_kv_heads = unquantized(k_cache)[1], num_kv_heads_of(k_cache)
    out = torch.empty((tokens, num_heads, head_dim), dtype=q.dtype, device=q.device)
    start = 0
    for span in spans:
        part = slice(start, start + span.num_queries)
        block_m, block_n, warps, stages = tile(head_dim, q.dtype, v_format, span.num_queries)
        attention_prefill_kernel[(cdiv(span.num_queries, block_m), num_heads)](
            q[part],
            k_data,
            v_data,
            None if fresh is None else fresh[part],
            span.block_table,
            out[part],
            span.num_queries,
            span.context_len,
            q.stride(0),
            q.stride(1),
            num_kv_heads,
            out.stride(0),
            scale * LOG2_E,
            K_FORMAT=k_format,
            V_FORMAT=v_format,
            WINDOW=window,
            SOFTCAP=softcap,
            SHARE=num_heads // num_kv_heads,
            BLOCK_SIZE=block_size_of(k_cache),
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
