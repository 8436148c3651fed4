"""Everything the panels know of one moment of an answer, looked up without drawing anything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.telemetry.request_trace import RequestTrace
from app.telemetry.series import Series


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment of a request; None is "no value", or "not of this moment".

    `t_s` is in seconds from Send: a token's own time once the answer has begun. `token` counts
    from 1. `context_tokens` and `kv_bytes` are those the request had by then. `device_pct`,
    `mfu_pct` and `mbu_pct` are of the sensor reading and the step that the moment lies in.
    """

    t_s: float
    token: int | None
    text: str
    itl_ms: float | None
    context_tokens: int | None
    kv_bytes: float | None
    device_pct: float | None
    mfu_pct: float | None
    mbu_pct: float | None


def instant_at(
    trace: RequestTrace, t_s: float, steps: Series, samples: Series, origin_s: float
) -> Instant:
    """What is known of the moment `t_s` after the request's Send, at `origin_s` of the others.

    From the first token on it is the moment of the nearest token.
    """
    row = _token_near(trace, t_s)
    if row is not None:
        t_s = float(trace.tokens["t_s"][row])
    cache = int(np.searchsorted(trace.kv["t_s"], t_s, side="right")) - 1
    context = trace.kv.value("context", cache)
    step = _step_at(trace, row, t_s, steps, origin_s)
    sample = int(np.searchsorted(samples["t_s"], origin_s + t_s))
    return Instant(
        t_s=t_s,
        token=None if row is None else row + 1,
        text="" if row is None else trace.texts[row],
        itl_ms=None if row is None else trace.tokens.value("itl_ms", row),
        context_tokens=None if context is None else int(context),
        kv_bytes=trace.kv.value("used", cache),
        device_pct=samples.value("gpu_pct" if trace.on_gpu else "cpu_pct", sample),
        mfu_pct=steps.value("mfu", step),
        mbu_pct=steps.value("mbu", step),
    )


def _token_near(trace: RequestTrace, t_s: float) -> int | None:
    """The row of the token nearest in time, None before the first."""
    times = trace.tokens["t_s"]
    after = int(np.searchsorted(times, t_s))
    if after == 0:
        return 0 if len(times) and times[0] == t_s else None
    if after == len(times):
        return after - 1
    return after if times[after] - t_s < t_s - times[after - 1] else after - 1


def _step_at(
    trace: RequestTrace, token: int | None, t_s: float, steps: Series, origin_s: float
) -> int:
    """The row of the step that made the token, else of the one that ran at `t_s`; -1 for none."""
    ends = steps["t_s"]
    row = int(np.searchsorted(ends, origin_s + t_s))
    if token is None:
        started = row < len(ends) and ends[row] - steps["step_s"][row] <= origin_s + t_s
        return row if started else -1
    # A step is stamped just after its token. Ids begin anew with a model: look nearby only.
    nearby = steps["step_id"][row : row + 4]
    found = np.flatnonzero(nearby == trace.tokens["step_id"][token])
    return row + int(found[0]) if len(found) else -1
