"""Every operation in plain torch: the oracle of the tests and the fallback on any device.

Shapes: T tokens, B sequences, Hq query heads, Hk key/value heads, D head dimension. The KV cache
of a layer is two `KVEntries`, dense ones tensors [num_blocks, block_size, Hk, D]; a slot is
block * block_size + offset.
Activations are in one dtype for the whole model (FP32 on CPU). Operations that a faster set fuses
are one operation here too, so that either set fits the same layer code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

import torch
import torch.nn.functional as F

from kernels.kv_entries import (
    ChannelGroups,
    KVEntries,
    TokenGroups,
    block_size_of,
    dense_blocks,
    num_kv_heads_of,
    quantize_by_channel,
    quantize_by_token,
)
from kernels.recording import CancelCell
from kernels.weights import DenseWeight, GroupedWeight, Weight, unpack_codes

# Rows up to which reading a weight as it is stored beats expanding it first. Measured for
# BF16 and grouped weights on two AVX2 cores: equal near 4, clearly lost at 8.
SMALL_M = 4
# Bytes of FP32 that a grouped weight is expanded to at a time: about what a core's cache holds.
_CHUNK_BYTES = 4 << 20


T = TypeVar("T", bound=tuple[torch.Tensor, ...])


class TopK(NamedTuple):
    """The k largest logits of each row, in order: values FP32 and ids int64 [rows, k].

    `log_sum` FP32 [rows] is log(sum(exp((logits - largest) / temperature))) over the whole row:
    the softmax of a value v is exp((v - largest) / temperature - log_sum). 0 for greedy rows.
    """

    values: torch.Tensor
    ids: torch.Tensor
    log_sum: torch.Tensor


@dataclass(frozen=True, slots=True)
class PrefillSpan:
    """One sequence's share of a prefill batch: `num_queries` tokens that end at `context_len`.

    `block_table` int64 [blocks], covering the whole context, on the device.
    """

    num_queries: int
    context_len: int
    block_table: torch.Tensor


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dim (arXiv 1910.07467), in FP32.

    weight FP32 [hidden].
    """
    return F.rms_norm(x.float(), (x.shape[-1],), weight, eps).to(x.dtype)


def fused_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    """Add `x` to `residual` in place and return the RMSNorm of the sum, [T, hidden]."""
    residual += x
    return rms_norm(residual, weight, eps)


def add(x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    """Add `x` to `residual` [T, hidden] in place and return it."""
    residual += x
    return residual


def rotary_embedding(
    x: torch.Tensor, positions: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Rotate pairs (i, i + R/2) of the first R dims (RoFormer, arXiv 2104.09864).

    x [T, H, D], positions int64 [T]; cos and sin FP32 [num_positions, R/2], R <= D.
    """
    half = cos.shape[-1]
    cos = cos.index_select(0, positions)[:, None]
    sin = sin.index_select(0, positions)[:, None]
    first, second = x[..., :half].float(), x[..., half : 2 * half].float()
    rotated = torch.cat(
        (first * cos - second * sin, second * cos + first * sin, x[..., 2 * half :].float()), dim=-1
    )
    return rotated.to(x.dtype)


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
    """Rotate queries and keys, write keys and values to their slots, return the queries.

    q [T, Hq, D], k and v [T, Hk, D], views of one tensor or apart; positions and slot_mapping
    int64 [T]; cos and sin FP32 [num_positions, R/2]. The cache decides the format stored. `tails`
    int64 [T], for keys by channel, says which tail is each token's; see `store_kv`.
    """
    num_queries = q.shape[1]
    rotated = rotary_embedding(torch.cat((q, k), dim=1), positions, cos, sin)
    store_kv(rotated[:, num_queries:], v, k_cache, v_cache, slot_mapping, tails)
    return rotated[:, :num_queries]


def store_kv(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: KVEntries,
    v_cache: KVEntries,
    slot_mapping: torch.Tensor,
    tails: torch.Tensor | None = None,
) -> None:
    """Write k and v [T, Hk, D] to their slots of the cache, in the cache's formats.

    Keys by channel: a sequence's tokens follow each other in the batch. They begin where a block
    begins, or there is one of them. What its last block has of them goes to its tail; each block
    that they fill is quantized, out of the batch or, where it had begun before, out of the tail.
    """
    if isinstance(k_cache, ChannelGroups):
        assert tails is not None, "keys by channel need to know their tails"
        _store_by_channel(k, k_cache, slot_mapping, tails)
    else:
        _store_by_token(k, k_cache, slot_mapping)
    assert not isinstance(v_cache, ChannelGroups), "values are kept by token"
    _store_by_token(v, v_cache, slot_mapping)


def _store_by_token(
    x: torch.Tensor, cache: torch.Tensor | TokenGroups, slot_mapping: torch.Tensor
) -> None:
    if isinstance(cache, TokenGroups):
        entries = quantize_by_token(x, cache.bits)
        cache.data.flatten(0, 1).index_copy_(0, slot_mapping, entries)
    else:
        cache.flatten(0, 1).index_copy_(0, slot_mapping, x.to(cache.dtype))


def _store_by_channel(
    k: torch.Tensor, cache: ChannelGroups, slot_mapping: torch.Tensor, tails: torch.Tensor
) -> None:
    size, num_tokens = cache.block_size, k.shape[0]
    fresh = cache.fresh[:num_tokens]
    fresh.copy_(k)
    slots, owners = slot_mapping.tolist(), tails.tolist()
    for row, (slot, owner) in enumerate(zip(slots, owners, strict=True)):
        following = row + size - slot % size  # where the next block of the sequence would begin
        if following >= num_tokens or owners[following] != owner:
            cache.tails[owner, slot % size] = fresh[row]
    for row, (slot, owner) in enumerate(zip(slots, owners, strict=True)):
        if slot % size != size - 1:
            continue
        first = row + 1 - size
        within = first >= 0 and owners[first] == owner
        block = fresh[first : row + 1] if within else cache.tails[owner]
        cache.data[slot // size] = quantize_by_channel(block)


def attention_prefill(
    q: torch.Tensor,
    k_cache: KVEntries,
    v_cache: KVEntries,
    spans: Sequence[PrefillSpan],
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> torch.Tensor:
    """Causal attention of several spans over paged blocks, [T, Hq, D].

    Keys and values are read from the cache, those of the span too, so that a prefix hit equals
    a fresh run whatever the cache's format. A query sees the last `window` keys up to its own,
    all at 0. `softcap` c makes scores s to c * tanh(s / c) (Gemma 2, arXiv 2408.00118), 0 does
    nothing. Keys by channel: spans begin where a block begins, and the keys of a query's own block
    are those that `rope_and_store_kv` left in `fresh` just before.
    """
    outputs, start = [], 0
    for span in spans:
        queries = q[start : start + span.num_queries]
        if isinstance(k_cache, ChannelGroups):
            fresh = k_cache.fresh[start : start + span.num_queries].to(q.dtype)
            out = _attend_own_block(queries, fresh, k_cache, v_cache, span, scale, window, softcap)
        else:
            out = _attend_span(queries, k_cache, v_cache, span, scale, window, softcap)
        outputs.append(out)
        start += span.num_queries
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _attend_own_block(
    q: torch.Tensor,
    fresh: torch.Tensor,
    k_cache: ChannelGroups,
    v_cache: KVEntries,
    span: PrefillSpan,
    scale: float,
    window: int,
    softcap: float,
) -> torch.Tensor:
    """Attention [T, Hq, D] in which a query's own block has its `fresh` keys [T, Hk, D]."""
    size, begin = k_cache.block_size, span.context_len - span.num_queries
    stored = _gather(k_cache, span.block_table, span.context_len, q.dtype)
    values = _gather(v_cache, span.block_table, span.context_len, q.dtype)
    exact = torch.cat((stored[:begin], fresh))
    share = q.shape[1] // stored.shape[1]
    queries = q.float().unflatten(1, (-1, share))
    scores, own_scores = (
        torch.einsum("qhsd,khd->hsqk", queries, keys.float()) * scale for keys in (stored, exact)
    )
    positions = torch.arange(span.context_len, device=q.device)
    own = (positions[begin:, None] // size) == (positions // size)
    scores = torch.where(own, own_scores, scores)
    if softcap:
        scores = soft_cap(scores, softcap)
    mask = _causal_mask(span.num_queries, span.context_len, window, q.device)
    weights = scores.masked_fill(~mask, float("-inf")).softmax(-1).to(q.dtype)
    return torch.einsum("hsqk,khd->qhsd", weights, values).flatten(1, 2)


def _attend_span(
    q: torch.Tensor,
    k_cache: KVEntries,
    v_cache: KVEntries,
    span: PrefillSpan,
    scale: float,
    window: int,
    softcap: float,
) -> torch.Tensor:
    keys = _gather(k_cache, span.block_table, span.context_len, q.dtype)
    values = _gather(v_cache, span.block_table, span.context_len, q.dtype)
    fresh = span.num_queries == span.context_len and not window
    mask = None
    if not fresh or softcap:
        mask = _causal_mask(span.num_queries, span.context_len, window, q.device)
    if softcap:
        return _attend_capped(q, keys, values, mask, scale, softcap)
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        keys.transpose(0, 1)[None],
        values.transpose(0, 1)[None],
        attn_mask=mask,
        is_causal=fresh,
        scale=scale,
        enable_gqa=q.shape[1] != keys.shape[1],
    )
    return out[0].transpose(0, 1)


def _gather(
    cache: KVEntries, block_table: torch.Tensor, context_len: int, dtype: torch.dtype
) -> torch.Tensor:
    """The first `context_len` entries of a sequence, [context_len, Hk, D]."""
    return dense_blocks(cache, block_table).flatten(0, 1)[:context_len].to(dtype)


def _attend_capped(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    softcap: float,
) -> torch.Tensor:
    """Attention [T, Hq, D] with soft-capped scores, which torch's own has no place for."""
    share = q.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(share, 1), values.repeat_interleave(share, 1)
    scores = torch.einsum("qhd,khd->hqk", q.float(), keys.float()) * scale
    scores = soft_cap(scores, softcap)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1).to(q.dtype), values)


@lru_cache(maxsize=4)
def _causal_mask(
    num_queries: int, context_len: int, window: int, device: torch.device
) -> torch.Tensor:
    """Lower-right aligned causal mask, True where a query may look; the same in many layers."""
    positions = torch.arange(context_len - num_queries, context_len, device=device)[:, None]
    keys = torch.arange(context_len, device=device)
    seen = keys <= positions
    return seen & (keys > positions - window) if window else seen


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
    """One query a sequence over its paged blocks, [B, Hq, D].

    block_tables int64 [B, blocks], padded with the null block; context_lens int64 [B], each at
    least 1 and at most what the table holds. Query heads that share a key head are treated as
    one matrix product (GQA, arXiv 2305.13245). `window` and `softcap` as in attention_prefill;
    what blocks before the window hold does not matter. Keys by channel: the block of the newest
    token is read from the row's tail, `tails` int64 [B].
    """
    batch, num_heads, head_dim = q.shape
    max_context_len = int(context_lens.max())
    num_kv_heads = num_kv_heads_of(k_cache)
    block_tables = block_tables[:, : -(-max_context_len // block_size_of(k_cache))]
    keys = _gather_batch(k_cache, block_tables, max_context_len, q.dtype)
    if isinstance(k_cache, ChannelGroups):
        assert tails is not None, "keys by channel need to know their tails"
        _put_tails(keys, k_cache, context_lens, tails)
    values = _gather_batch(v_cache, block_tables, max_context_len, q.dtype)
    grouped = q.reshape(batch, num_kv_heads, num_heads // num_kv_heads, head_dim)
    mask = None
    if batch > 1 or window:
        positions = torch.arange(max_context_len, device=q.device)
        seen = positions < context_lens[:, None]
        if window:
            seen &= positions >= context_lens[:, None] - window
        mask = seen[:, None, None]
    if softcap:
        scores = soft_cap((grouped.float() @ keys.float().transpose(-1, -2)) * scale, softcap)
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        return (scores.softmax(-1).to(q.dtype) @ values).reshape(batch, num_heads, head_dim)
    out = F.scaled_dot_product_attention(
        grouped,
        keys,
        values,
        attn_mask=mask,
        scale=scale,
    )
    return out.reshape(batch, num_heads, head_dim)


def _gather_batch(
    cache: KVEntries, block_tables: torch.Tensor, max_context_len: int, dtype: torch.dtype
) -> torch.Tensor:
    """Entries of several sequences, [B, Hk, max_context_len, D]."""
    batch = block_tables.shape[0]
    blocks = dense_blocks(cache, block_tables.flatten())
    entries = blocks.reshape(batch, -1, *blocks.shape[2:])[:, :max_context_len]
    return entries.to(dtype).transpose(1, 2)


def _put_tails(
    keys: torch.Tensor, cache: ChannelGroups, context_lens: torch.Tensor, tails: torch.Tensor
) -> None:
    """Put the newest block of each row into its keys [B, Hk, max_context_len, D]."""
    for row, (length, tail) in enumerate(zip(context_lens.tolist(), tails.tolist(), strict=True)):
        begin = (length - 1) // cache.block_size * cache.block_size
        newest = cache.tails[tail, : length - begin].to(keys.dtype)
        keys[row, :, begin:length] = newest.transpose(0, 1)


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up of x = [gate, up] along the last dim (SwiGLU, arXiv 2002.05202)."""
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


def gelu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """gelu(gate) * up of x = [gate, up], GELU approximated by tanh (GeGLU, arXiv 2002.05202)."""
    gate, up = x.chunk(2, dim=-1)
    return F.gelu(gate, approximate="tanh") * up


def soft_cap(x: torch.Tensor, cap: float) -> torch.Tensor:
    """cap * tanh(x / cap) of FP32 x, in place."""
    return x.div_(cap).tanh_().mul_(cap)


def mix_experts(
    x: torch.Tensor,
    logits: torch.Tensor,
    experts: Sequence[Callable[[torch.Tensor], torch.Tensor]],
    num_per_token: int,
    normalize: bool,
) -> torch.Tensor:
    """Outputs [T, hidden] of the experts that each token of x [T, hidden] goes to, weighted.

    A token's weights are the `num_per_token` largest of softmax(logits [T, experts]) in FP32,
    which `normalize` makes add up to 1 (Mixtral, arXiv 2401.04088).
    """
    weights, chosen = logits.float().softmax(-1).topk(num_per_token)
    if normalize:
        weights = weights / weights.sum(-1, keepdim=True)
    out = torch.zeros_like(x)
    for expert in chosen.unique().tolist():
        rows, rank = (chosen == expert).nonzero(as_tuple=True)
        shares = weights[rows, rank, None].to(x.dtype)
        out.index_add_(0, rows, experts[expert](x[rows]) * shares)
    return out


def gather_columns(x: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """x [T, K] with its columns in another order: x[:, order], order int32 [K]."""
    return x.index_select(1, order)


def embedding(
    ids: torch.Tensor, weight: Weight, dtype: torch.dtype, scale: float = 1.0
) -> torch.Tensor:
    """Rows `ids` of a weight [vocab, hidden] times `scale` as [T, hidden] in `dtype`."""
    rows = _rows(ids, weight)
    return (rows if scale == 1.0 else rows.float() * scale).to(dtype).contiguous()


def _rows(ids: torch.Tensor, weight: Weight) -> torch.Tensor:
    """[T, hidden], dense ones as stored."""
    if isinstance(weight, DenseWeight):
        return F.embedding(ids, weight.data)
    codes = unpack_codes(weight.codes.index_select(2, ids), weight.bits)
    rows = codes.float() * weight.scale.index_select(1, ids).float()[:, None]
    if weight.minimum is not None:
        rows += weight.minimum.index_select(1, ids).float()[:, None]
    return rows.flatten(0, 1).t()


def top_k(logits: torch.Tensor, inverse_temperature: torch.Tensor, k: int) -> TopK:
    """Rank FP32 logits [rows, vocab]; inverse_temperature FP32 [rows], 0 for greedy rows."""
    values, ids = logits.topk(k)
    log_sum = ((logits - values[:, :1]) * inverse_temperature[:, None]).logsumexp(-1)
    return TopK(values, ids, log_sum.masked_fill(inverse_temperature == 0, 0.0))


def record(run: Callable[[], T]) -> tuple[T, EagerRecording[T]]:
    """A "recording" for operations that cannot be written down: it computes again each time."""
    result = run()
    return result, EagerRecording(run, result)


class EagerRecording(Generic[T]):
    """See kernels.recording.Recording."""

    def __init__(self, run: Callable[[], T], result: T) -> None:
        self._run = run
        self._result = result

    def replay(self, cancel: CancelCell) -> bool:
        """`run` itself may stop early between its layers: by raising StepAborted."""
        for kept, fresh in zip(self._result, self._run(), strict=True):
            kept.copy_(fresh)
        return not cancel


class LinearKernel:
    """x @ weight.T + bias for every weight format; owns the scratch that weights expand into.

    `dense_dtype` is the dtype in which this device multiplies large matrices fastest: weights
    are expanded to it for more than SMALL_M rows.
    """

    def __init__(self, dense_dtype: torch.dtype) -> None:
        self.dense_dtype = dense_dtype
        self._scratch: dict[tuple[torch.dtype, torch.device], torch.Tensor] = {}

    def __call__(
        self,
        x: torch.Tensor,
        weight: Weight,
        bias: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """x [M, K] -> [M, N] in x's dtype, into `out` (rows may be apart) where one is given."""
        result = self._product(x, weight)
        if bias is not None:
            result += bias
        return result if out is None else out.copy_(result)

    def _product(self, x: torch.Tensor, weight: Weight) -> torch.Tensor:
        if isinstance(weight, DenseWeight):
            return self._dense(x, weight.data)
        if x.shape[0] <= SMALL_M:
            return self._grouped_small(x, weight)
        return self._grouped_large(x, weight)

    def tune(self, weight: Weight) -> None:
        """Nothing to choose here."""

    @property
    def scratch_bytes(self) -> int:
        """Memory held for expanding weights."""
        return sum(t.numel() * t.element_size() for t in self._scratch.values())

    def _dense(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if weight.dtype == x.dtype:
            return F.linear(x, weight)
        if x.shape[0] <= SMALL_M or weight.dtype == self.dense_dtype:
            return F.linear(x.to(weight.dtype), weight).to(x.dtype)
        expanded = self._take(weight.shape, self.dense_dtype, weight.device)
        return F.linear(x.to(self.dense_dtype), expanded.copy_(weight)).to(x.dtype)

    def _grouped_small(self, x: torch.Tensor, weight: GroupedWeight) -> torch.Tensor:
        """Codes are widened a few groups at a time and the scales applied to the products."""
        if weight.num_groups == 1 and weight.bits == 8 and weight.minimum is None:
            return self._channel_small(x.float(), weight).to(x.dtype)
        rows, groups, size = x.shape[0], weight.num_groups, weight.group_size
        num_out = weight.shape[0]
        x_groups = x.float().view(rows, groups, size).transpose(0, 1)
        out = torch.zeros(rows, num_out, dtype=torch.float32, device=x.device)
        step = max(1, _CHUNK_BYTES // (4 * size * num_out))
        for start in range(0, groups, step):
            part = slice(start, min(start + step, groups))
            codes = self._widen(weight.codes[part], weight.bits)
            products = torch.bmm(x_groups[part], codes)
            out += (products * weight.scale[part, None]).sum(0)
        if weight.minimum is not None:
            out += x_groups.sum(-1).t() @ weight.minimum.float()
        return out.to(x.dtype)

    def _channel_small(self, x: torch.Tensor, weight: GroupedWeight) -> torch.Tensor:
        """One INT8 scale an output: sum over chunks of inputs, then scale."""
        codes, num_out = weight.codes[0], weight.shape[0]
        out = torch.zeros(x.shape[0], num_out, dtype=torch.float32, device=x.device)
        step = max(1, _CHUNK_BYTES // (4 * num_out))
        for start in range(0, codes.shape[0], step):
            part = codes[start : start + step]
            out.addmm_(x[:, start : start + step], self._widen(part[None], 8)[0])
        return out * weight.scale

    def _grouped_large(self, x: torch.Tensor, weight: GroupedWeight) -> torch.Tensor:
        num_out, num_in = weight.shape
        expanded = self._widen(weight.codes, weight.bits, self.dense_dtype)
        scale = weight.scale[:, None].to(expanded.dtype)
        if weight.minimum is None:
            expanded *= scale
        else:
            torch.addcmul(weight.minimum[:, None].to(expanded.dtype), expanded, scale, out=expanded)
        return (x.to(self.dense_dtype) @ expanded.view(num_in, num_out)).to(x.dtype)

    def _widen(
        self, codes: torch.Tensor, bits: int, dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """Codes as floating point [G, S, N] in the scratch, valid until the next call."""
        groups, stored, num_out = codes.shape
        if bits == 8:
            return self._take((groups, stored, num_out), dtype, codes.device).copy_(codes)
        wide = self._take((groups, 2 * stored, num_out), dtype, codes.device)
        nibbles = self._take(codes.shape, torch.uint8, codes.device)
        wide[:, :stored] = torch.bitwise_and(codes, 15, out=nibbles)
        wide[:, stored:] = torch.bitwise_right_shift(codes, 4, out=nibbles)
        return wide

    def _take(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """A view of reused memory: a fresh large allocation costs more in page faults."""
        count = 1
        for size in shape:
            count *= size
        scratch = self._scratch.get((dtype, device))
        if scratch is None or scratch.numel() < count:
            scratch = torch.empty(count, dtype=dtype, device=device)
            self._scratch[(dtype, device)] = scratch
        return scratch[:count].view(tuple(shape))
