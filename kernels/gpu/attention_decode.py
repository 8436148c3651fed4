"""One query a sequence over its paged keys and values, the context cut into splits.

Stage one: each (sequence, key head, split) keeps its own softmax sum, for all query heads that
share the key head at once, so that a key is read once. Stage two merges the splits:
out = sum of 2^(lse_s - m) out_s / sum of 2^(lse_s - m), m = max lse_s (Flash-Decoding).

The number of splits depends on the block table's width alone; where each begins is computed on
the device from the context's length. A recorded step can hence be replayed at any lengths, and
a row does not depend on the other rows of its batch, only on the table's width.

Keys by channel are loaded by whole blocks, and the newest block's from the row's tail: that is
one more step of the split that the block falls into.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.gpu.attention_prefill import LOG2_E, soft_cap_log2
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

# 8 key heads times this: two programs for each of a large GPU's 132 processors.
MAX_SPLITS = 32
MERGE_WARPS = 4


@triton.jit
def _split_length(context_len, num_splits, BLOCK_N: tl.constexpr):
    """Keys of a split: whole blocks of BLOCK_N, so that few keys occupy few splits."""
    return tl.cdiv(tl.cdiv(context_len, num_splits), BLOCK_N) * BLOCK_N


@triton.jit
def _seen(context_len, WINDOW: tl.constexpr):
    """Keys that a query sees: the last WINDOW, all at 0."""
    if WINDOW > 0:
        return tl.minimum(context_len, WINDOW)
    else:
        return context_len


@triton.jit
def _attend(
    acc, peak, weight_sum, queries, keys, values, present, scale_log2,
    SOFTCAP: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """One step of the online softmax (FlashAttention, arXiv 2205.14135) over a tile of keys."""
    scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale_log2
    if SOFTCAP > 0.0:
        scores = soft_cap_log2(scores, SOFTCAP)
    scores = tl.where(present[None, :], scores, float("-inf"))
    new_peak = tl.maximum(peak, tl.max(scores, axis=1))
    shrink = tl.exp2(peak - new_peak)
    weights = tl.exp2(scores - new_peak[:, None])
    weight_sum = weight_sum * shrink + tl.sum(weights, axis=1)
    acc *= shrink[:, None]
    acc = tl.dot(weights.to(DOT), values, acc, input_precision="ieee")
    return acc, new_peak, weight_sum


@triton.jit(do_not_specialize=["num_splits", "table_stride"])
def attention_split_kernel(
    q, k_cache, v_cache, block_tables, context_lens, tails, k_tails, parts, log_sums, table_stride,
    q_token_stride, q_head_stride, num_heads, num_kv_heads, num_splits, scale_log2,
    K_FORMAT: tl.constexpr, V_FORMAT: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr,
    SHARE: tl.constexpr, HEAD_BLOCKS: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_TAIL: tl.constexpr,
    BLOCK_DIM: tl.constexpr, DOT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Program (sequence, block of query heads of one key head, split); empty splits do nothing.

    parts FP32 [B, Hq, num_splits, D]; log_sums FP32 [B, Hq, num_splits], in base 2.
    """
    sequence = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1) // HEAD_BLOCKS
    split = tl.program_id(2)
    context_len = tl.load(context_lens + sequence).to(tl.int32)
    seen = _seen(context_len, WINDOW)
    length = _split_length(seen, num_splits, BLOCK_N)
    start = context_len - seen + split * length
    end = tl.minimum(start + length, context_len)
    if start < end:
        member = (tl.program_id(1) % HEAD_BLOCKS) * BLOCK_H + tl.arange(0, BLOCK_H)
        head = kv_head * SHARE + member
        heads = member < SHARE
        k_dim = column_dims(K_FORMAT, HEAD_DIM, BLOCK_DIM)
        mask = heads[:, None] & (k_dim < HEAD_DIM)[None, :]
        place = sequence * q_token_stride + head[:, None] * q_head_stride + k_dim[None, :]
        queries = tl.load(q + place, mask=mask, other=0.0).to(DOT)
        table = block_tables + sequence * table_stride
        acc = tl.zeros((BLOCK_H, BLOCK_DIM), dtype=tl.float32)
        peak = tl.full((BLOCK_H,), float("-inf"), dtype=tl.float32)
        weight_sum = tl.zeros((BLOCK_H,), dtype=tl.float32)
        first_key = start
        last_key = end
        newest = (context_len - 1) // BLOCK_SIZE * BLOCK_SIZE
        if K_FORMAT == CHANNEL:
            first_key = start // BLOCK_SIZE * BLOCK_SIZE
            last_key = tl.minimum(end, newest)
        for first in tl.range(first_key, last_key, BLOCK_N, num_stages=STAGES):
            key = first + tl.arange(0, BLOCK_N)
            present = key < last_key
            if K_FORMAT == CHANNEL:
                present = present & (key >= start)
            block = tl.load(table + key // BLOCK_SIZE, mask=present, other=0)
            entry = (block * BLOCK_SIZE + key % BLOCK_SIZE) * num_kv_heads + kv_head
            if K_FORMAT == CHANNEL:
                begin = first + tl.arange(0, BLOCK_N // BLOCK_SIZE) * BLOCK_SIZE
                stored = begin < last_key
                block = tl.load(table + begin // BLOCK_SIZE, mask=stored, other=0)
                keys = load_channel_keys(
                    k_cache, block * num_kv_heads + kv_head, stored,
                    BLOCK_SIZE, HEAD_DIM, BLOCK_DIM, DOT,
                )  # fmt: skip
            else:
                keys = load_heads(k_cache, entry, present, K_FORMAT, True, HEAD_DIM, BLOCK_DIM, DOT)
            values = load_heads(v_cache, entry, present, V_FORMAT, True, HEAD_DIM, BLOCK_DIM, DOT)
            acc, peak, weight_sum = _attend(
                acc, peak, weight_sum, queries, keys, values, present, scale_log2, SOFTCAP, DOT
            )
        if K_FORMAT == CHANNEL and newest < end:
            within = tl.arange(0, BLOCK_TAIL)
            present = (newest + within >= start) & (newest + within < end)
            tail = tl.load(tails + sequence)
            entry = (tail * BLOCK_SIZE + within) * num_kv_heads + kv_head
            keys = load_dense(k_tails, entry, k_dim, present, True, HEAD_DIM, DOT)
            block = tl.load(table + newest // BLOCK_SIZE)
            entry = (block * BLOCK_SIZE + within) * num_kv_heads + kv_head
            values = load_heads(v_cache, entry, present, V_FORMAT, True, HEAD_DIM, BLOCK_DIM, DOT)
            acc, peak, weight_sum = _attend(
                acc, peak, weight_sum, queries, keys, values, present, scale_log2, SOFTCAP, DOT
            )
        part = (sequence * num_heads + head) * num_splits + split
        v_dim = column_dims(V_FORMAT, HEAD_DIM, BLOCK_DIM)
        place = parts + part[:, None] * HEAD_DIM + v_dim[None, :]
        mask = heads[:, None] & (v_dim < HEAD_DIM)[None, :]
        tl.store(place, acc / weight_sum[:, None], mask=mask)
        tl.store(log_sums + part, peak + tl.log2(weight_sum), mask=heads)


@triton.jit(do_not_specialize=["num_splits"])
def merge_splits_kernel(
    parts, log_sums, context_lens, out, num_heads, num_splits, WINDOW: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_SPLITS: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
):  # fmt: skip
    """Program (sequence, query head): the splits that hold keys, weighted by their sums."""
    sequence = tl.program_id(0).to(tl.int64)
    part = sequence * num_heads + tl.program_id(1)
    context_len = tl.load(context_lens + sequence).to(tl.int32)
    seen = _seen(context_len, WINDOW)
    used = tl.cdiv(seen, _split_length(seen, num_splits, BLOCK_N))
    split = tl.arange(0, BLOCK_SPLITS)
    dim = tl.arange(0, BLOCK_DIM)
    log_sum = tl.load(log_sums + part * num_splits + split, mask=split < used, other=float("-inf"))
    weight = tl.exp2(log_sum - tl.max(log_sum))
    place = parts + (part * num_splits + split)[:, None] * HEAD_DIM + dim[None, :]
    mask = (split < used)[:, None] & (dim < HEAD_DIM)[None, :]
    part_out = tl.load(place, mask=mask, other=0.0)
    result = tl.sum(part_out * weight[:, None], axis=0) / tl.sum(weight)
    place = out + part * HEAD_DIM + dim
    tl.store(place, result.to(out.dtype.element_ty), mask=dim < HEAD_DIM)


def tile(head_dim: int, dtype: torch.dtype, v_format: int) -> tuple[int, int, int]:
    """(keys, warps, stages) of a program of stage one, within sm_89's 99 KB of shared memory."""
    if dtype == torch.float32:
        return (32, 8, 1)
    if head_dim > 128:
        return (32, 4, 1)
    # Expanding 64 quantized keys at a time takes over twice the registers.
    return (64, 4, 2) if v_format == DENSE.value else (32, 4, 2)


def num_splits_of(table_width: int, block_size: int, block_n: int) -> int:
    """Splits for tables of `table_width` blocks: one for every block_n keys, up to MAX_SPLITS."""
    return max(1, min(MAX_SPLITS, cdiv(table_width * block_size, block_n)))


def attention_decode(
    q: torch.Tensor,
    k_cache: KVEntries,
    v_cache: KVEntries,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
    tails: torch.Tensor | None = None,
) -> torch.Tensor:
    """As `reference.attention_decode`: q [B, Hq, D] -> [B, Hq, D].

    Entries are contiguous; block_tables int64 [B, blocks], rows may be apart. Products are of q's
    dtype, which quantized entries are expanded to in registers, scores and sums FP32.
    """
    q = packed(q)
    batch, num_heads, head_dim = q.shape
    k_data, k_format = kernel_format(k_cache)
    v_data, v_format = kernel_format(v_cache)
    block_size, num_kv_heads = block_size_of(k_cache), num_kv_heads_of(k_cache)
    share = num_heads // num_kv_heads
    block_n, warps, stages = tile(head_dim, q.dtype, v_format)
    splits = num_splits_of(block_tables.shape[1], block_size, block_n)
    head_blocks = cdiv(share, DOT_ROWS)
    block_dim = next_power_of_2(head_dim, DOT_ROWS)
    parts, log_sums = (
        torch.empty(shape, dtype=torch.float32, device=q.device)
        for shape in ((batch, num_heads, splits, head_dim), (batch, num_heads, splits))
    )
    attention_split_kernel[(batch, num_kv_heads * head_blocks, splits)](
        q,
        k_data,
        v_data,
        block_tables,
        context_lens,
        tails,
        unquantized(k_cache)[0],
        parts,
        log_sums,
        block_tables.stride(0),
        q.stride(0),
        q.stride(1),
        num_heads,
        num_kv_heads,
        splits,
        scale * LOG2_E,
        K_FORMAT=k_format,
        V_FORMAT=v_format,
        WINDOW=window,
        SOFTCAP=softcap,
        SHARE=share,
        HEAD_BLOCKS=head_blocks,
        BLOCK_SIZE=block_size,
        HEAD_DIM=head_dim,
        BLOCK_H=DOT_ROWS,
        BLOCK_N=block_n,
        BLOCK_TAIL=next_power_of_2(block_size, DOT_ROWS),
        BLOCK_DIM=block_dim,
        DOT=dot_dtype(q.dtype),
        STAGES=stages,
        num_warps=warps,
        **OPTIONS,
    )
    out = torch.empty((batch, num_heads, head_dim), dtype=q.dtype, device=q.device)
    merge_splits_kernel[(batch, num_heads)](
        parts,
        log_sums,
        context_lens,
        out,
        num_heads,
        splits,
        WINDOW=window,
        HEAD_DIM=head_dim,
        BLOCK_SPLITS=next_power_of_2(splits),
        BLOCK_N=block_n,
        BLOCK_DIM=block_dim,
        num_warps=MERGE_WARPS,
        **OPTIONS,
    )
    return out
