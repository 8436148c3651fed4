"""What is known of one request: every figure as the engine stamped it, times from Send."""

from __future__ import annotations

from typing import Literal

import numpy as np

from app.telemetry.series import Series
from app.telemetry.token_texts import TokenTexts
from engine.events import (
    ContextCut,
    FinishReason,
    GenerationFailed,
    GenerationFinished,
    PrefillDone,
    PrefillProgress,
    RequestMetrics,
    TokenEvent,
)

RunPhase = Literal["idle", "prefill", "decode"]
RequestEvent = (
    ContextCut | PrefillProgress | PrefillDone | TokenEvent | GenerationFinished | GenerationFailed
)


class RequestTrace:
    """The growing record of one request. Knows no Qt; times are seconds from `t_send_ns`.

    `tokens`: t_s, itl_ms (NaN for the first), step_id; `texts` has their texts. `kv`: t_s,
    used and allocated (bytes), context (tokens). `paint`: paint_ms a token, in order.
    `slid_rows`: rows of `tokens` that waited for a context that slid to be computed again.
    `block_rows`: rows for which the cache took another block. `block_tables`: the last ones known,
    as BlockOwner has them.
    `kv_bytes_reserved` and `pool_tokens` are those of the model that was loaded when the
    request was sent.
    """

    def __init__(
        self,
        request_id: str,
        t_send_ns: int,
        kv_bytes_reserved: int | None = None,
        pool_tokens: int | None = None,
        on_gpu: bool = False,
    ) -> None:
        self.request_id = request_id
        self.t_send_ns = t_send_ns
        self.kv_bytes_reserved = kv_bytes_reserved
        self.pool_tokens = pool_tokens
        self.on_gpu = on_gpu
        self.tokens = Series("t_s", "itl_ms", "step_id")
        self.texts = TokenTexts()
        self.kv = Series("t_s", "used", "allocated", "context")
        self.paint = Series("paint_ms")
        self.slid_rows: set[int] = set()
        self.block_rows: list[int] = []
        self.block_tables: tuple[tuple[int, ...], ...] = ()
        self.tokens_done = 0
        self.tokens_total: int | None = None
        self.cached_tokens = 0
        self.queue_ms: float | None = None
        self.prefill_ms: float | None = None
        self.end_s: float | None = None
        self.finish_reason: FinishReason | None = None
        self.metrics: RequestMetrics | None = None
        self._progress_s: float | None = None

    # --- what happens ---------------------------------------------------------------------

    def handle(self, event: RequestEvent) -> None:
        """Take in one event of this request."""
        match event:
            case ContextCut():
                self.slid_rows.add(len(self.tokens))
            case PrefillProgress():
                self._on_progress(event)
            case PrefillDone():
                self._on_prefill_done(event)
            case TokenEvent():
                self._on_token(event)
            case GenerationFinished():
                self._end(event.t_ns, event.finish_reason)
                self.metrics = event.metrics
                self.block_tables = event.block_tables or self.block_tables
            case GenerationFailed():
                self._end(event.t_ns, "failed")

    def painted(self, index: int, t_ns: int) -> None:
        """Tokens up to `index` are on the screen since `t_ns`; only the first time counts."""
        times = self.tokens["t_s"]
        for i in range(len(self.paint), min(index + 1, len(times))):
            self.paint.append(max(0.0, self.seconds(t_ns) - times[i]) * 1e3)

    # --- readings -------------------------------------------------------------------------

    @property
    def phase(self) -> RunPhase:
        """prefill until the first token, decode until the end, then idle."""
        if self.end_s is not None:
            return "idle"
        return "decode" if len(self.tokens) else "prefill"

    @property
    def ttft_s(self) -> float | None:
        """First token - Send."""
        return float(self.tokens["t_s"][0]) if len(self.tokens) else None

    @property
    def prefill_start_s(self) -> float:
        """When the first chunk was scheduled: the wait in the queue lies before."""
        return (self.queue_ms or 0.0) / 1e3

    @property
    def chunk_ends_s(self) -> list[float]:
        """When each chunk of the prompt but the last was in the cache."""
        before = len(self.kv) - len(self.tokens) - (self.prefill_ms is not None)
        ends: list[float] = self.kv["t_s"][1 : max(1, before - 1)].tolist()
        return ends

    @property
    def last_s(self) -> float:
        """The time of the newest fact."""
        if self.end_s is not None:
            return self.end_s
        return max(self.kv.last("t_s") or 0.0, self.tokens.last("t_s") or 0.0)

    @property
    def decode_tok_s(self) -> float | None:
        """(N - 1) / (t_N - t_1), None below two tokens."""
        if self.metrics is not None:
            return self.metrics.decode_tok_s
        times = self.tokens["t_s"]
        if len(times) < 2 or times[-1] <= times[0]:
            return None
        return float((len(times) - 1) / (times[-1] - times[0]))

    @property
    def prefill_tok_s(self) -> float | None:
        """Prompt tokens computed (cached prefix excluded) / time since first scheduled."""
        if self.metrics is not None:
            return self.metrics.prefill_tok_s
        computed = self.tokens_done - self.cached_tokens
        seconds = self._prefill_seconds()
        return computed / seconds if computed > 0 and seconds else None

    def itl_percentiles(self, *points: float) -> tuple[float, ...] | None:
        """Percentiles of the inter-token latencies, linear interpolation; None without any."""
        values = self.tokens["itl_ms"][1:]
        values = values[~np.isnan(values)]
        if not len(values):
            return None
        return tuple(float(p) for p in np.percentile(values, points))

    def paint_percentile_ms(self, point: float) -> float | None:
        """Percentile of the paint latency (on screen - known to the host)."""
        values = self.paint["paint_ms"]
        return float(np.percentile(values, point)) if len(values) else None

    def elapsed_s(self, now_ns: int) -> float:
        """How far the request has come: to now while it runs, to its end afterwards."""
        if self.end_s is not None:
            return self.end_s
        return max(self.last_s, self.seconds(now_ns))

    def seconds_left(self, now_ns: int) -> float | None:
        """Estimate of the rest of the prefill at its pace so far; None before the first chunk."""
        rate = self.prefill_tok_s
        if self.phase != "prefill" or rate is None or self._progress_s is None:
            return None
        rest = ((self.tokens_total or 0) - self.tokens_done) / rate
        return max(0.0, rest - max(0.0, self.seconds(now_ns) - self._progress_s))

    def seconds(self, t_ns: int) -> float:
        """A moment as seconds from Send."""
        return (t_ns - self.t_send_ns) / 1e9

    # --- events ---------------------------------------------------------------------------

    def _on_progress(self, event: PrefillProgress) -> None:
        self.t_send_ns = event.t_send_ns
        if not len(self.kv):
            self._start_cache(event)
        self.tokens_done, self.tokens_total = event.tokens_done, event.tokens_total
        self.cached_tokens = event.cached_tokens
        self._progress_s = self.seconds(event.t_ns)
        self._note_cache(event, event.tokens_done)

    def _on_prefill_done(self, event: PrefillDone) -> None:
        self.t_send_ns = event.t_send_ns
        self.tokens_done = self.tokens_total = event.prompt_tokens
        self.cached_tokens = event.cached_tokens
        self.queue_ms, self.prefill_ms = event.queue_ms, event.prefill_ms
        self._note_cache(event, event.prompt_tokens)

    def _on_token(self, event: TokenEvent) -> None:
        self.t_send_ns = event.t_send_ns
        if event.kv_bytes_allocated > (self.kv.last("allocated") or 0.0):
            self.block_rows.append(len(self.tokens))
        self.tokens.append(self.seconds(event.t_ns), event.itl_ms, event.step_id)
        self.texts.append(event.text)
        self._note_cache(event, event.context_tokens)

    def _end(self, t_ns: int, reason: FinishReason) -> None:
        self.end_s = max(self.last_s, self.seconds(t_ns))
        self.finish_reason = reason

    def _start_cache(self, event: PrefillProgress) -> None:
        # At Send only the reused prefix is in the cache; blocks are taken with the first chunk.
        per_token = event.kv_bytes_used / event.tokens_done if event.tokens_done else 0.0
        cached = event.cached_tokens
        self.kv.append(0.0, per_token * cached, event.kv_bytes_allocated, cached)

    def _note_cache(
        self, event: PrefillProgress | PrefillDone | TokenEvent, context_tokens: int
    ) -> None:
        used, allocated = event.kv_bytes_used, event.kv_bytes_allocated
        self.kv.append(self.seconds(event.t_ns), used, allocated, context_tokens)

    def _prefill_seconds(self) -> float | None:
        if self.prefill_ms is not None:
            return self.prefill_ms / 1e3
        if self._progress_s is None:
            return None
        return self._progress_s - self.prefill_start_s
