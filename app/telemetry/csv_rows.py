"""Facts as rows of the CSV tables, in the order of their columns."""

from __future__ import annotations

from collections.abc import Sequence

from app.telemetry.csv_tables import COLUMNS, REQUESTS, SCHEMA_VERSION, Value
from app.telemetry.request_trace import RunPhase
from engine.events import ModelLoaded, RequestMetrics, StepStats, TokenEvent
from engine.sensors import SensorSample


class RowWriter:
    """Makes the rows of one session. `start_ns` is zero of its `t_session_ms`."""

    def __init__(self, session_id: str, start_ns: int) -> None:
        self._session_id = session_id
        self._start_ns = start_ns

    def finished(self, metrics: RequestMetrics) -> list[Value]:
        """A row of requests.csv, as the engine measured the request."""
        known: dict[str, Value] = {
            "schema_version": SCHEMA_VERSION,
            "session_id": self._session_id,
            "use_cache": int(metrics.use_cache),
        }
        return [known[c] if c in known else getattr(metrics, c) for c in COLUMNS[REQUESTS]]

    def failed(self, request_id: str, num_tokens: int, loaded: ModelLoaded | None) -> list[Value]:
        """A row of requests.csv for a request without metrics: what is known of it."""
        known: dict[str, Value] = {
            "schema_version": SCHEMA_VERSION,
            "session_id": self._session_id,
            "request_id": request_id,
            "finish_reason": "failed",
            "completion_tokens": num_tokens,
        }
        if loaded is not None:
            known |= {
                "model": loaded.model.name,
                "device": loaded.device_name,
                "weight_format": loaded.config.weight_format,
                "kv_format": loaded.config.kv_format,
                "context_length": loaded.config.context_length,
                "kernels": loaded.kernels,
                "weight_bytes": loaded.weight_bytes,
                "kv_bytes_reserved": loaded.kv_bytes_reserved,
                "threads": loaded.threads,
                "warmup_s": loaded.warmup_s,
            }
        return [known.get(c) for c in COLUMNS[REQUESTS]]

    def tokens(self, tokens: Sequence[TokenEvent], painted_ns: Sequence[int]) -> list[list[Value]]:
        """Rows of tokens.csv; `painted_ns` may be shorter than `tokens`."""
        rows: list[list[Value]] = []
        for i, token in enumerate(tokens):
            paint_ms = max(0.0, _ms(painted_ns[i], token.t_ns)) if i < len(painted_ns) else None
            rows.append(
                [
                    token.request_id,
                    token.index,
                    "decode" if token.index else "prefill",
                    _ms(token.t_ns, token.t_send_ns),
                    token.itl_ms,
                    token.token_id,
                    token.context_tokens,
                    token.kv_bytes_used,
                    paint_ms,
                    self._session_id,
                    _ms(token.t_ns, self._start_ns),
                    token.step_id,
                ]
            )
        return rows

    def sample(
        self,
        sample: SensorSample,
        request_id: str | None,
        t_send_ns: int | None,
        phase: RunPhase,
        kv_bytes_used: int | None,
    ) -> list[Value]:
        """A row of samples.csv; `request_id` and `t_send_ns` are None when idle."""
        return [
            None if t_send_ns is None else _ms(sample.t_ns, t_send_ns),
            request_id,
            phase,
            sample.gpu_util_pct,
            sample.gpu_mem_used_bytes,
            sample.gpu_power_w,
            sample.cpu_util_pct,
            sample.process_rss_bytes,
            kv_bytes_used,
            self._session_id,
            _ms(sample.t_ns, self._start_ns),
            sample.device_index,
            sample.gpu_process_mem_bytes,
            sample.gpu_sm_clock_mhz,
            sample.gpu_mem_clock_mhz,
            sample.gpu_temperature_c,
            _words(sample.gpu_slowed_by),
            sample.gpu_sm_active_pct,
            sample.gpu_dram_active_pct,
            _flag(sample.on_battery),
            _flag(sample.power_saving),
        ]

    def step(self, step: StepStats) -> list[Value]:
        """A row of steps.csv."""
        return [
            self._session_id,
            step.step_id,
            _ms(step.t_ns, self._start_ns),
            step.phase,
            step.num_seqs,
            step.num_tokens,
            step.step_ms,
            step.flops,
            step.bytes,
            step.mfu_pct,
            step.mbu_pct,
        ]


def _ms(t_ns: int, from_ns: int) -> float:
    return (t_ns - from_ns) / 1e6


def _words(reasons: tuple[str, ...] | None) -> str | None:
    return None if reasons is None else "; ".join(reasons) or "nothing"


def _flag(value: bool | None) -> int | None:
    return None if value is None else int(value)
