"""The figures of a request, from its stamps: definitions in docs/metrics.md."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.config import KVGroupSize, kv_bytes
from engine.events import FinishReason, RequestMetrics
from engine.sequence import Sequence

_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class LoadedFacts:
    """What every request's row repeats about the loaded model."""

    model: str
    device: str
    weight_format: str
    kv_format: str
    context_length: int
    kernels: str
    weight_bytes: int
    kv_groups: tuple[KVGroupSize, ...]
    block_size: int
    kv_bytes_reserved: int
    threads: int
    warmup_s: float

    def kv_bytes_allocated(self, blocks: list[int]) -> int:
        """Bytes of so many blocks of each group."""
        return sum(
            count * self.block_size * group.bytes_per_token
            for count, group in zip(blocks, self.kv_groups, strict=False)
        )


def request_metrics(
    sequence: Sequence, facts: LoadedFacts, reason: FinishReason, peak_memory_bytes: int
) -> RequestMetrics:
    """All figures of a request that has ended; None where a figure has no value."""
    stamps = sequence.t_tokens_ns
    params = sequence.request.sampling
    itl = np.diff(np.asarray(stamps, dtype=np.int64)) / _NS_PER_MS
    p50, p90, p95, p99 = _percentiles(itl)
    decode_ms = _ms(stamps[0], stamps[-1]) if len(stamps) > 1 else None
    prefill_ms = _ms(sequence.t_first_scheduled_ns, sequence.t_prefill_done_ns)
    computed = sequence.num_prompt_tokens - sequence.num_cached_tokens
    return RequestMetrics(
        request_id=sequence.request_id,
        started_at=sequence.started_at,
        t_send_ns=sequence.t_send_ns,
        model=facts.model,
        device=facts.device,
        weight_format=facts.weight_format,
        kv_format=facts.kv_format,
        context_length=facts.context_length,
        kernels=facts.kernels,
        prompt_tokens=sequence.num_prompt_tokens,
        cached_tokens=sequence.num_cached_tokens,
        completion_tokens=len(stamps),
        finish_reason=reason,
        queue_ms=_ms(sequence.t_send_ns, sequence.t_first_scheduled_ns),
        ttft_ms=_ms(sequence.t_send_ns, stamps[0]) if stamps else None,
        prefill_ms=prefill_ms,
        prefill_tok_s=_rate(computed, prefill_ms),
        decode_tok_s=_rate(len(stamps) - 1, decode_ms),
        tpot_ms=decode_ms / (len(stamps) - 1) if decode_ms is not None else None,
        itl_p50_ms=p50,
        itl_p90_ms=p90,
        itl_p95_ms=p95,
        itl_p99_ms=p99,
        e2el_ms=_ms(sequence.t_send_ns, stamps[-1]) if stamps else None,
        kv_bytes_used=kv_bytes(facts.kv_groups, sequence.peak_kv_tokens),
        kv_bytes_allocated=facts.kv_bytes_allocated(sequence.peak_kv_blocks),
        weight_bytes=facts.weight_bytes,
        peak_memory_bytes=peak_memory_bytes,
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
        seed=sequence.seed,
        kv_bytes_reserved=facts.kv_bytes_reserved,
        threads=facts.threads,
        warmup_s=facts.warmup_s,
        use_cache=sequence.request.use_cache,
    )


def _ms(start_ns: int | None, end_ns: int | None) -> float | None:
    if start_ns is None or end_ns is None:
        return None
    return (end_ns - start_ns) / _NS_PER_MS


def _rate(count: int, ms: float | None) -> float | None:
    """Per second; None where nothing or no time passed, never infinite."""
    return count / ms * 1e3 if ms and count > 0 else None


def _percentiles(values: np.ndarray) -> tuple[float | None, ...]:
    if not len(values):
        return (None, None, None, None)
    return tuple(float(p) for p in np.percentile(values, (50, 90, 95, 99)))
