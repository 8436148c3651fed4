"""One query a sequence over its paged keys and values, the context cut into splits.

Stage one: each (sequence, key head, split) keeps its own softmax sum, for all query heads that
share the key head at once, so that a key is read once. Stage two merges the splits:
out = sum of 2^(lse_s - m) out_s / sum of 2^(lse_s - m), m = max lse_s (Flash-Decoding).

The number of splits depends on the block table's width alone; where each begins is computed on
the device from the context's length. A recorded step can hence be replayed at any lengths, and
a row does not depend on the other rows of its batch, only on the table's width.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.gpu.attention_prefill import LOG2_E, soft_cap_log2
from kernels.gpu.launch import DOT_ROWS, OPTIONS, cdiv, dot_dtype, next_power_of_2, packed

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


@triton.jit(do_not_specialize=["num_splits", "table_stride"])
def attention_split_kernel(
    q, k_cache, v_cache, block_tables, context_lens, parts, log_sums, table_stride,
    q_token_stride, q_head_stride, slot_stride, cache_head_stride, num_heads, num_splits,
    scale_log2, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, SHARE: tl.constexpr,
    HEAD_BLOCKS: tl.constexpr, BLOCK_SIZE: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_DIM: tl.constexpr, DOT: tl.constexpr,
    STAGES: tl.constexpr,
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
        dim = tl.arange(0, BLOCK_DIM)
        heads = member < SHARE
        mask = heads[:, None] & (dim < HEAD_DIM)[None, :]
        place = sequence * q_token_stride + head[:, None] * q_head_stride + dim[None, :]
        queries = tl.load(q + place, mask=mask, other=0.0).to(DOT)
        table = block_tables + sequence * table_stride
        k_head = k_cache + kv_head * cache_head_stride
        v_head = v_cache + kv_head * cache_head_stride
        acc = tl.zeros((BLOCK_H, BLOCK_DIM), dtype=tl.float32)
        peak = tl.full((BLOCK_H,), float("-inf"), dtype=tl.float32)
        weight_sum = tl.zeros((BLOCK_H,), dtype=tl.float32)
        for first in tl.range(start, end, BLOCK_N, num_stages=STAGES):
            key = first + tl.arange(0, BLOCK_N)
            present = key < end
            block = tl.load(table + key // BLOCK_SIZE, mask=present, other=0)
            slot = (block * BLOCK_SIZE + key % BLOCK_SIZE) * slot_stride
            inside = present[:, None] & (dim < HEAD_DIM)[None, :]
            keys = tl.load(k_head + slot[:, None] + dim[None, :], mask=inside, other=0.0)
            values = tl.load(v_head + slot[:, None] + dim[None, :], mask=inside, other=0.0)
            scores = tl.dot(queries, tl.trans(keys.to(DOT)), input_precision="ieee") * scale_log2
            if SOFTCAP > 0.0:
                scores = soft_cap_log2(scores, SOFTCAP)
            scores = tl.where(present[None, :], scores, float("-inf"))
            new_peak = tl.maximum(peak, tl.max(scores, axis=1))
            shrink = tl.exp2(peak - new_peak)
            weights = tl.exp2(scores - new_peak[:, None])
            weight_sum = weight_sum * shrink + tl.sum(weights, axis=1)
            acc *= shrink[:, None]
            acc = tl.dot(weights.to(DOT), values.to(DOT), acc, input_precision="ieee")
            peak = new_peak
        part = (sequence * num_heads + head) * num_splits + split
        place = parts + part[:, None] * HEAD_DIM + dim[None, :]
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


def tile(head_dim: int, dtype: torch.dtype) -> tuple[int, int, int]:
    """(keys, warps, stages) of a program of stage one, within sm_89's 99 KB of shared memory."""
    if dtype == torch.float32:
        return (32, 8, 1)
    if head_dim > 128:
        return (32, 4, 1)
    return (64, 4, 2)


def num_splits_of(table_width: int, block_size: int, block_n: int) -> int:
    """Splits for tables of `table_width` blocks: one for every block_n keys, up to MAX_SPLITS."""
    return max(1, min(MAX_SPLITS, cdiv(table_width * block_size, block_n)))


def attention_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> torch.Tensor:
    """As `reference.attention_decode`: q [B, Hq, D] -> [B, Hq, D].

    Caches are contiguous [num_blocks, block_size, Hk, D]; block_tables int64 [B, blocks],
    rows may be apart. Products are of q's dtype, scores and sums FP32.
    """
    q = packed(q)
    batch, num_heads, head_dim = q.shape
    _, block_size, num_kv_heads, _ = k_cache.shape
    share = num_heads // num_kv_heads
    block_n, warps, stages = tile(head_dim, q.dtype)
    splits = num_splits_of(block_tables.shape[1], block_size, block_n)
    head_blocks = cdiv(share, DOT_ROWS)
    block_dim = next_power_of_2(head_dim, DOT_ROWS)
    parts, log_sums = (
        torch.empty(shape, dtype=torch.float32, device=q.device)
        for shape in ((batch, num_heads, splits, head_dim), (batch, num_heads, splits))
    )
    attention_split_kernel[(batch, num_kv_heads * head_blocks, splits)](
        q,
        k_cache,
        v_cache,
        block_tables,
        context_lens,
        parts,
        log_sums,
        block_tables.stride(0),
        q.stride(0),
        q.stride(1),
        k_cache.stride(1),
        k_cache.stride(2),
        num_heads,
        splits,
        scale * LOG2_E,
        WINDOW=window,
        SOFTCAP=softcap,
        SHARE=share,
        HEAD_BLOCKS=head_blocks,
        BLOCK_SIZE=block_size,
        HEAD_DIM=head_dim,
        BLOCK_H=DOT_ROWS,
        BLOCK_N=block_n,
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
