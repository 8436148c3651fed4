"""The native operations behind the signatures of kernels.reference.

Activations are FP32. What a native operation does not cover (a head wider than 256, an odd group
size) goes to the reference; a step with such an operation is computed anew instead of replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from kernels import reference
from kernels.cpu.kv_entries import can_read, native_kv, tensors_of
from kernels.cpu.library import NativeLibrary
from kernels.cpu.linear import CpuLinear, native_weight
from kernels.cpu.structs import (
    Activation,
    AttentionDecode,
    AttentionPrefill,
    Embed,
    GateMul,
    GatherColumns,
    RmsNorm,
    RopeStore,
    SoftCap,
    TopKOp,
)
from kernels.cpu.tape import NotRecordable, Recorder
from kernels.cpu.tiles import can_tile, tile
from kernels.kv_entries import KVEntries, block_size_of, num_kv_heads_of
from kernels.recording import Recording
from kernels.reference import PrefillSpan, TopK
from kernels.select import KernelSet
from kernels.stages import StageClock
from kernels.weights import GroupedWeight, KernelWeight

MAX_HEAD_DIM = 256  # native/ops.h
_PREFILL_DIMS = 16  # a head is a whole number of them: native/gemm.h
T = TypeVar("T", bound=tuple[torch.Tensor, ...])


def cpu_kernels(library: NativeLibrary, threads: int, dense_dtype: torch.dtype) -> KernelSet:
    """The set for this level; `threads` as torch has them."""
    clock = StageClock()
    operations = _Operations(library, threads, clock)
    return KernelSet(
        name=f"native {library.level}",
        activation_dtype=torch.float32,
        clock=clock,
        prepare=_prepare,
        rms_norm=operations.rms_norm,
        fused_add_rms_norm=operations.fused_add_rms_norm,
        add=operations.add,
        rope_and_store_kv=operations.rope_and_store_kv,
        attention_prefill=operations.attention_prefill,
        attention_decode=operations.attention_decode,
        silu_and_mul=operations.silu_and_mul,
        gelu_and_mul=operations.gelu_and_mul,
        mix_experts=operations.mix_experts,
        soft_cap=operations.soft_cap,
        gather_columns=operations.gather_columns,
        embedding=operations.embedding,
        linear=CpuLinear(operations.recorder, dense_dtype),
        top_k=operations.top_k,
        record=operations.record,
    )


def _prepare(weight: KernelWeight) -> KernelWeight:
    """Quantized weights in tiles, dense ones as they are."""
    if isinstance(weight, GroupedWeight) and can_tile(weight):
        return tile(weight)
    return weight


class _Operations:
    """One method an operation; outputs are fresh tensors."""

    def __init__(self, library: NativeLibrary, threads: int, clock: StageClock) -> None:
        self.recorder = Recorder(library, threads, clock)
        self._library = library

    def record(self, run: Callable[[], T]) -> tuple[T, Recording]:
        """A tape of what `run` calls, or, where it cannot be written down, `run` itself."""
        try:
            return self.recorder.record(run)
        except NotRecordable:
            return reference.record(run)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """See reference. Rows may lie apart; the parts of a row [.., hidden] may not."""
        parts = x.shape[1] if x.dim() == 3 else 1
        out = torch.empty(x.shape)
        op = RmsNorm(rows=x.shape[0], parts=parts, hidden=x.shape[-1], stride=x.stride(0), eps=eps)
        op.residual, op.weight, op.out = x.data_ptr(), weight.data_ptr(), out.data_ptr()
        self.recorder.emit(op, x, weight, out)
        return out

    def fused_add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> torch.Tensor:
        """See reference."""
        out = torch.empty_like(residual)
        rows, hidden = residual.shape
        op = RmsNorm(rows=rows, parts=1, hidden=hidden, stride=hidden, eps=eps)
        op.delta, op.residual = x.data_ptr(), residual.data_ptr()
        op.weight, op.out = weight.data_ptr(), out.data_ptr()
        self.recorder.emit(op, x, residual, weight, out)
        return out

    def add(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """See reference."""
        rows, hidden = residual.shape
        op = RmsNorm(rows=rows, parts=1, hidden=hidden, stride=hidden)
        op.delta, op.residual = x.data_ptr(), residual.data_ptr()
        self.recorder.emit(op, x, residual)
        return residual

    def rope_and_store_kv(
        self,
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
        """See reference. Heads of a token must be contiguous."""
        rows, num_heads, head_dim = q.shape
        if head_dim > MAX_HEAD_DIM or not all(map(can_read, (k_cache, v_cache))):
            self.recorder.refuse_to_record()
            return reference.rope_and_store_kv(
                q, k, v, positions, cos, sin, k_cache, v_cache, slot_mapping, tails
            )
        out = torch.empty(rows, num_heads, head_dim)
        op = RopeStore(
            rows=rows,
            num_heads=num_heads,
            num_kv_heads=k.shape[1],
            head_dim=head_dim,
            half=cos.shape[1],
            q=q.data_ptr(),
            k=k.data_ptr(),
            v=v.data_ptr(),
            q_stride=q.stride(0),
            k_stride=k.stride(0),
            v_stride=v.stride(0),
            positions=positions.data_ptr(),
            cos=cos.data_ptr(),
            sin=sin.data_ptr(),
            q_out=out.data_ptr(),
            k_cache=native_kv(k_cache),
            v_cache=native_kv(v_cache),
            block_size=block_size_of(k_cache),
            slot_mapping=slot_mapping.data_ptr(),
        )
        kept = [q, k, v, positions, cos, sin, out, slot_mapping]
        if tails is not None:
            op.tails = tails.data_ptr()
            kept.append(tails)
        self.recorder.emit(op, *kept, *tensors_of(k_cache), *tensors_of(v_cache))
        return out

    def attention_prefill(
        self,
        q: torch.Tensor,
        k_cache: KVEntries,
        v_cache: KVEntries,
        spans: Sequence[PrefillSpan],
        scale: float,
        window: int = 0,
        softcap: float = 0.0,
    ) -> torch.Tensor:
        """See reference. Heads of a token must be contiguous."""
        _, num_heads, head_dim = q.shape
        can_read_both = can_read(k_cache) and can_read(v_cache)
        if head_dim % _PREFILL_DIMS or head_dim > MAX_HEAD_DIM or not can_read_both:
            self.recorder.refuse_to_record()
            return reference.attention_prefill(q, k_cache, v_cache, spans, scale, window, softcap)
        out = torch.empty(q.shape)
        start = 0
        for span in spans:
            op = AttentionPrefill(
                num_queries=span.num_queries,
                context_len=span.context_len,
                q_stride=q.stride(0),
                window=window,
                num_heads=num_heads,
                num_kv_heads=num_kv_heads_of(k_cache),
                head_dim=head_dim,
                block_size=block_size_of(k_cache),
                scale=scale,
                softcap=softcap,
                q=q[start:].data_ptr(),
                k_cache=native_kv(k_cache, start),
                v_cache=native_kv(v_cache),
                block_table=span.block_table.data_ptr(),
                out=out[start:].data_ptr(),
            )
            caches = (*tensors_of(k_cache), *tensors_of(v_cache))
            self.recorder.emit(op, q, span.block_table, out, *caches)
            start += span.num_queries
        return out

    def attention_decode(
        self,
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
        """See reference."""
        rows, num_heads, head_dim = q.shape
        if not (can_read(k_cache) and can_read(v_cache)):
            self.recorder.refuse_to_record()
            return reference.attention_decode(
                q, k_cache, v_cache, block_tables, context_lens, scale, window, softcap, tails
            )
        block_size, table_width = block_size_of(k_cache), block_tables.shape[1]
        out = torch.empty_like(q)
        spans = self._library.attention_spans(table_width * block_size)
        partial = torch.empty(rows * num_heads * spans * (2 + head_dim))
        op = AttentionDecode(
            rows=rows,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads_of(k_cache),
            head_dim=head_dim,
            block_size=block_size,
            table_width=table_width,
            window=window,
            scale=scale,
            softcap=softcap,
            q=q.data_ptr(),
            k_cache=native_kv(k_cache),
            v_cache=native_kv(v_cache),
            block_tables=block_tables.data_ptr(),
            context_lens=context_lens.data_ptr(),
            partial=partial.data_ptr(),
            out=out.data_ptr(),
        )
        kept = [q, block_tables, context_lens, partial, out]
        if tails is not None:
            op.tails = tails.data_ptr()
            kept.append(tails)
        self.recorder.emit(op, *kept, *tensors_of(k_cache), *tensors_of(v_cache))
        return out

    def silu_and_mul(self, x: torch.Tensor) -> torch.Tensor:
        """See reference."""
        return self._gate_and_mul(x, Activation.SILU)

    def gelu_and_mul(self, x: torch.Tensor) -> torch.Tensor:
        """See reference."""
        return self._gate_and_mul(x, Activation.GELU_TANH)

    def _gate_and_mul(self, x: torch.Tensor, activation: Activation) -> torch.Tensor:
        rows, width = x.shape[0], x.shape[1] // 2
        out = torch.empty(rows, width)
        op = GateMul(rows=rows, width=width, activation=activation)
        op.x, op.out = x.data_ptr(), out.data_ptr()
        self.recorder.emit(op, x, out)
        return out

    def mix_experts(
        self,
        x: torch.Tensor,
        logits: torch.Tensor,
        experts: Sequence[Callable[[torch.Tensor], torch.Tensor]],
        num_per_token: int,
        normalize: bool,
    ) -> torch.Tensor:
        """See reference. Which experts run is known only while it runs: not for a tape."""
        self.recorder.refuse_to_record()
        return reference.mix_experts(x, logits, experts, num_per_token, normalize)

    def soft_cap(self, x: torch.Tensor, cap: float) -> torch.Tensor:
        """See reference."""
        rows, width = x.shape
        self.recorder.emit(SoftCap(rows=rows, width=width, cap=cap, x=x.data_ptr()), x)
        return x

    def gather_columns(self, x: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
        """See reference."""
        rows, width = x.shape[0], order.shape[0]
        out = torch.empty(rows, width)
        op = GatherColumns(
            rows=rows,
            width=width,
            x=x.data_ptr(),
            x_stride=x.stride(0),
            order=order.data_ptr(),
            out=out.data_ptr(),
        )
        self.recorder.emit(op, x, order, out)
        return out

    def embedding(
        self, ids: torch.Tensor, weight: KernelWeight, dtype: torch.dtype, scale: float = 1.0
    ) -> torch.Tensor:
        """See reference; `dtype` is FP32."""
        if isinstance(weight, GroupedWeight):
            self.recorder.refuse_to_record()
            return reference.embedding(ids, weight, dtype, scale)
        native, data = native_weight(weight)
        out = torch.empty(ids.shape[0], weight.shape[1])
        op = Embed(rows=ids.shape[0], weight=native, scale=scale)
        op.ids, op.out = ids.data_ptr(), out.data_ptr()
        self.recorder.emit(op, ids, data, out)
        return out

    def top_k(self, logits: torch.Tensor, inverse_temperature: torch.Tensor, k: int) -> TopK:
        """See reference."""
        rows, vocab = logits.shape
        values, ids = torch.empty(rows, k), torch.empty(rows, k, dtype=torch.int64)
        log_sum = torch.empty(rows)
        largest = torch.empty(rows, self._library.top_k_groups(vocab))
        partial = torch.empty(rows, self._library.top_k_slices, 2)
        op = TopKOp(
            rows=rows,
            vocab=vocab,
            k=k,
            logits=logits.data_ptr(),
            inverse_temperature=inverse_temperature.data_ptr(),
            values=values.data_ptr(),
            ids=ids.data_ptr(),
            log_sum=log_sum.data_ptr(),
            largest=largest.data_ptr(),
            partial=partial.data_ptr(),
        )
        kept = (logits, inverse_temperature, values, ids, log_sum, largest, partial)
        self.recorder.emit(op, *kept)
        return TopK(values, ids, log_sum)
