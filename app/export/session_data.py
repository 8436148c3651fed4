"""A session as plain values and arrays, copied, so that a thread can write it while others run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from app.telemetry.request_trace import RequestTrace
from app.telemetry.series import Array
from app.telemetry.step_line import StepLine
from app.telemetry.step_points import StepPoints
from app.telemetry.telemetry_model import TelemetryModel
from engine.events import FinishReason, ModelLoaded, RequestMetrics


@dataclass(frozen=True, slots=True)
class RequestWords:
    """What was said in a request and of it; empty where there is nothing or it is not wanted."""

    prompt: str = ""
    answer: str = ""
    verdict: str = ""
    verdict_details: str = ""


@dataclass(frozen=True, slots=True)
class RequestData:
    """One ended request. Times are seconds from its Send; `start_s` is that from the first Send.

    `token_s` [n], `itl_ms` [n - 1]. `kv_s`, `kv_used`, `kv_allocated` [m], bytes. `device_s` and
    `device_pct` are the corners of a step curve.
    """

    request_id: str
    start_s: float
    end_s: float
    finish_reason: FinishReason
    metrics: RequestMetrics | None
    prompt_tokens: int
    cached_tokens: int
    queue_s: float
    token_s: Array
    itl_ms: Array
    kv_s: Array
    kv_used: Array
    kv_allocated: Array
    steps: StepLine
    device_s: Array
    device_pct: Array
    on_gpu: bool
    words: RequestWords

    @property
    def ttft_s(self) -> float | None:
        """First token - Send."""
        return float(self.token_s[0]) if len(self.token_s) else None

    @property
    def latency_s(self) -> float | None:
        """Last token - Send (E2EL)."""
        return float(self.token_s[-1]) if len(self.token_s) else None


@dataclass(frozen=True, slots=True)
class SessionData:
    """The ended requests of a session, the steps under the roofs, and the model loaded last."""

    requests: tuple[RequestData, ...]
    points: StepPoints
    loaded: ModelLoaded | None


def session_data(
    model: TelemetryModel, words_of: Callable[[str], RequestWords] = lambda _: RequestWords()
) -> SessionData:
    """Copy what `model` has of every request that is over; `words_of` is asked by request id."""
    over = [trace for trace in model.requests if trace.end_s is not None]
    first_ns = min((trace.t_send_ns for trace in over), default=0)
    requests = (_request(model, t, first_ns, words_of(t.request_id)) for t in over)
    return SessionData(tuple(requests), model.step_points(), model.loaded)


def _request(
    model: TelemetryModel, trace: RequestTrace, first_ns: int, words: RequestWords
) -> RequestData:
    itl_ms = trace.tokens["itl_ms"][1:]
    device_s, device_pct = model.device_steps(trace)
    assert trace.end_s is not None
    assert trace.finish_reason is not None
    return RequestData(
        request_id=trace.request_id,
        start_s=(trace.t_send_ns - first_ns) / 1e9,
        end_s=trace.end_s,
        finish_reason=trace.finish_reason,
        metrics=trace.metrics,
        prompt_tokens=trace.tokens_total or 0,
        cached_tokens=trace.cached_tokens,
        queue_s=trace.prefill_start_s,
        token_s=trace.tokens["t_s"].copy(),
        itl_ms=itl_ms[~np.isnan(itl_ms)],
        kv_s=trace.kv["t_s"].copy(),
        kv_used=trace.kv["used"].copy(),
        kv_allocated=trace.kv["allocated"].copy(),
        steps=model.steps_of(trace),
        device_s=device_s,
        device_pct=device_pct,
        on_gpu=trace.on_gpu,
        words=words,
    )
