"""A session as one JSON object with the names and units of vLLM's serving benchmark.

Follows `vllm bench serve --save-result --save-detailed` of vLLM at commit 009e6d4
(`vllm/benchmarks/serve.py`): lists are in seconds, an entry a request; `_ms` figures are over all
completed requests. docs/metrics.md says where a chat session differs from a benchmark.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np

from app.export.session_data import RequestData, SessionData
from app.telemetry.series import Array

PERCENTILES = (50, 90, 95, 99)
BACKEND = "phasescope"

Json = str | int | float | None | list[str] | list[int] | list[float] | list[list[float]]


def write_json(path: Path, session: SessionData, now: datetime) -> None:
    """Write the session, beside `path` first, so that no half file is left. Raises OSError."""
    text = json.dumps(vllm_result(session, now), allow_nan=False, ensure_ascii=False)
    beside = path.with_name(path.name + ".part")
    try:
        # What is half a character in an answer that was stopped must not stop the file.
        beside.write_text(text, encoding="utf-8", errors="replace")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def vllm_result(session: SessionData, now: datetime) -> dict[str, Json]:
    """Every field of a saved result, with None where a chat session has no value."""
    completed = [r for r in session.requests if len(r.token_s)]
    return {
        **_setting(session, now),
        **_totals(session.requests, completed),
        **_details(session.requests),
        **_statistics(completed),
    }


def _setting(session: SessionData, now: datetime) -> dict[str, Json]:
    names = dict.fromkeys(r.metrics.model for r in session.requests if r.metrics)
    model = ", ".join(names) or (session.loaded.model.name if session.loaded else None)
    return {
        "date": now.strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": BACKEND,
        "backend": BACKEND,
        "label": None,
        "model_id": model,
        "tokenizer_id": model,
        "num_prompts": len(session.requests),
        # A person sends when they like: there is neither a rate nor a limit to name.
        "request_rate": None,
        "burstiness": None,
        "max_concurrency": None,
    }


def _totals(requests: Sequence[RequestData], completed: Sequence[RequestData]) -> dict[str, Json]:
    seconds = max((r.start_s + r.end_s for r in requests), default=0.0)
    total_in = sum(r.prompt_tokens for r in completed)
    total_out = sum(len(r.token_s) for r in completed)
    return {
        "duration": seconds,
        "completed": len(completed),
        "failed": len(requests) - len(completed),
        "total_input_tokens": total_in,
        "total_output_tokens": total_out,
        "request_throughput": _rate(len(completed), seconds),
        "request_goodput": None,
        "output_throughput": _rate(total_out, seconds),
        "total_token_throughput": _rate(total_in + total_out, seconds),
        "max_output_tokens_per_s": _most_tokens_a_second(completed),
        "max_concurrent_requests": _most_at_once(completed),
        "rtfx": 0.0,
    }


def _details(requests: Sequence[RequestData]) -> dict[str, Json]:
    """The lists. Of a request without a token vLLM has 0 seconds, no ITL and an error."""
    return {
        "input_lens": [r.prompt_tokens for r in requests],
        "output_lens": [len(r.token_s) for r in requests],
        "ttfts": [r.ttft_s or 0.0 for r in requests],
        "itls": [(r.itl_ms / 1e3).tolist() for r in requests],
        "latencies": [r.latency_s or 0.0 for r in requests],
        "start_times": [r.start_s for r in requests],
        "queue_times": [0.0 for _ in requests],  # of the client: it sends at once
        "generated_texts": [r.words.answer for r in requests],
        "errors": ["" if len(r.token_s) else r.finish_reason for r in requests],
    }


def _statistics(completed: Sequence[RequestData]) -> dict[str, Json]:
    spans = [(r.token_s[-1] - r.token_s[0], len(r.token_s)) for r in completed]
    itls = [r.itl_ms for r in completed]
    of_metric = {
        "ttft": np.array([r.token_s[0] for r in completed]) * 1e3,
        "tpot": np.array([span / (n - 1) for span, n in spans if n > 1]) * 1e3,
        "itl": np.concatenate(itls) if itls else np.empty(0),
        "e2el": np.array([r.token_s[-1] for r in completed]) * 1e3,
    }
    result: dict[str, Json] = {}
    for metric, values in of_metric.items():
        result.update(_statistics_of(metric, values))
    return result


def _statistics_of(metric: str, values: Array) -> dict[str, Json]:
    """Mean, median, standard deviation (of the population, as vLLM's) and percentiles, ms."""
    there_are_some = len(values) > 0
    percentiles = np.percentile(values, PERCENTILES) if there_are_some else ()
    result: dict[str, Json] = {
        f"mean_{metric}_ms": float(np.mean(values)) if there_are_some else None,
        f"median_{metric}_ms": float(np.median(values)) if there_are_some else None,
        f"std_{metric}_ms": float(np.std(values)) if there_are_some else None,
    }
    for i, point in enumerate(PERCENTILES):
        result[f"p{point}_{metric}_ms"] = float(percentiles[i]) if there_are_some else None
    return result


def _most_tokens_a_second(completed: Sequence[RequestData]) -> float | None:
    """The fullest of the seconds counted from the first Send."""
    if not completed:
        return None
    first = min(r.start_s for r in completed)
    times = np.concatenate([r.start_s + r.token_s for r in completed]) - first
    _, counts = np.unique(times.astype(np.int64), return_counts=True)
    return float(counts.max())


def _most_at_once(completed: Sequence[RequestData]) -> int:
    """The most requests between Send and last token at any moment; ends come before starts."""
    moments = [(r.start_s, 1) for r in completed]
    moments += [(r.start_s + (r.latency_s or 0.0), -1) for r in completed]
    moments.sort()
    running = np.cumsum([change for _, change in moments])
    return int(running.max()) if len(running) else 0


def _rate(number: int, seconds: float) -> float | None:
    return number / seconds if seconds > 0 else None
