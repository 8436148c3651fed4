"""How two runs of one prompt compare, and what bytes and FLOPs said beforehand. No Qt."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import EngineConfig
from engine.diagnosis.cures import MIN_PREFILL_TOKENS
from engine.events import RequestMetrics
from engine.footprint import resolve_kv_format
from engine.planner.plan import Planning
from engine.prediction import decode_s, prefill_s


@dataclass(frozen=True, slots=True)
class Speedup:
    """How many times faster the second run is, by phase. None: not known, or not comparable."""

    decode: float | None
    ttft: float | None


def measured_speedup(first: RequestMetrics, second: RequestMetrics) -> Speedup:
    """Decode as the ratio of tok/s, TTFT as the ratio of the waits.

    The waits are compared only where both computed the whole prompt: of what the cache had, the
    first run was spared a part.
    """
    decode = ttft = None
    if first.decode_tok_s and second.decode_tok_s:
        decode = second.decode_tok_s / first.decode_tok_s
    if first.ttft_ms and second.ttft_ms and not (first.cached_tokens or second.cached_tokens):
        ttft = first.ttft_ms / second.ttft_ms
    return Speedup(decode, ttft)


def predicted_speedup(
    first: tuple[Planning, EngineConfig], second: tuple[Planning, EngineConfig], run: RequestMetrics
) -> Speedup:
    """From bytes and FLOPs alone (docs/metrics.md, "Predicted"), for prompt and answer of `run`.

    Each config comes with the planning of its device and threads.
    """
    before, after = (_seconds(planning, config, run) for planning, config in (first, second))
    if before is None or after is None:
        return Speedup(None, None)
    # A short prompt reads the weights as a token does, which the formula of prompts leaves out.
    is_long = run.prompt_tokens >= MIN_PREFILL_TOKENS and not run.cached_tokens
    return Speedup(before[1] / after[1], before[0] / after[0] if is_long else None)


def _seconds(
    planning: Planning, config: EngineConfig, run: RequestMetrics
) -> tuple[float, float] | None:
    """Of the prompt, and of a token in the middle of the answer."""
    weights = config.weight_format
    kv = resolve_kv_format(weights, config.kv_format)
    device, model = planning.machine.speeds.get(weights), planning.model
    if device is None or weights not in model.work or kv not in model.footprint.kv_groups:
        return None
    work = model.token_work(weights, kv)
    context = run.prompt_tokens + run.completion_tokens // 2
    return prefill_s(work, device, max(1, run.prompt_tokens)), decode_s(work, device, context)
