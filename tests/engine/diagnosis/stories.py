"""Answers of a made-up model on a made-up machine: each kind of slowness, one field off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.config import EngineConfig, KVGroupSize
from engine.diagnosis.facts import AnswerFacts, PhaseSteps
from engine.events import RequestMetrics
from engine.footprint import Footprint, Workspace
from engine.planner.plan import Machine, PlannedModel, Planning, WeightLevel
from engine.prediction import DeviceSpeed, MatrixGroup, ModelWork, decode_s, prefill_s

LAYERS, HEAD = 950_000_000, 50_000_000
BITS = {"fp32": 32.0, "bf16": 16.0, "fp16": 16.0, "int8": 8.5, "int4": 5.0}
KV_TOKEN = {"fp32": 262_144, "bf16": 131_072, "int8": 69_632, "k8v4": 53_248, "int4": 43_008}


def _bytes(parameters: int, weights: str) -> int:
    return round(parameters * BITS[weights] / 8)


def planning(
    threads: int = 2,
    bandwidth: float = 30e9,
    flops: float = 200e9,
    device: str = "cpu",
    available: int = 20_000_000_000,
    *,
    is_measured: bool = True,
) -> Planning:
    """One billion parameters; the speeds are the same for each format."""
    sizes = {name: _bytes(LAYERS + HEAD, name) for name in BITS}
    work = {
        name: ModelWork(
            MatrixGroup(name, LAYERS, _bytes(LAYERS, name)),
            MatrixGroup(name, HEAD, _bytes(HEAD, name)),
            16 * 2_048,
            0,
        )
        for name in BITS
    }
    groups = {name: (KVGroupSize(size),) for name, size in KV_TOKEN.items()}
    levels = tuple(WeightLevel(n, n.upper(), BITS[n], s, s) for n, s in sizes.items())
    model = PlannedModel(
        name="Model",
        source="model.gguf",
        is_built_in=False,
        can_run=True,
        parameters=LAYERS + HEAD,
        footprint=Footprint(32_768, sizes, groups, Workspace()),
        levels=levels,
        work=work,
        default_weights="bf16",
    )
    speed = DeviceSpeed(device, flops, lambda _: bandwidth)
    speeds = dict.fromkeys(BITS, speed) if is_measured else {}
    return Planning(model, Machine(device, threads, available, 0, speeds))


def answer(
    weights: str = "bf16",
    prompt: int = 200,
    cached: int = 0,
    tokens: int = 100,
    *,
    start_factor: float = 1.0,
    stream_factor: float = 1.0,
    queue_ms: float = 0.0,
    plan: Planning | None = None,
    **changes: Any,
) -> AnswerFacts:
    """An answer that takes as long as predicted, times the factors. `changes` replace facts."""
    plan = plan or planning()
    wanted = EngineConfig("model.gguf", weight_format=weights, threads=plan.machine.threads)
    facts = AnswerFacts(_metrics(weights, prompt, cached, tokens), wanted, planning=plan)
    work, device = facts.work(), plan.machine.speeds.get(weights)
    assert work is not None
    device = device or planning().machine.speeds[weights]
    prefill_ms = 1e3 * start_factor * prefill_s(work, device, prompt - cached, cached)
    itl_ms = 1e3 * stream_factor * decode_s(work, device, facts.mean_context)
    steps = max(1, -(-(prompt - cached) // 512))
    a_token = work.layers.num_bytes + work.head.num_bytes
    a_token += work.kv_bytes_per_token * facts.mean_context
    itls = max(0, tokens - 1)
    metrics = replace(
        facts.metrics,
        threads=plan.machine.threads,
        queue_ms=queue_ms,
        prefill_ms=prefill_ms,
        ttft_ms=queue_ms + prefill_ms,
        prefill_tok_s=1e3 * (prompt - cached) / prefill_ms,
        decode_tok_s=1e3 / itl_ms if itls else None,
        tpot_ms=itl_ms if itls else None,
        e2el_ms=queue_ms + prefill_ms + itls * itl_ms,
        kv_bytes_used=work.kv_bytes_per_token * (prompt + tokens),
    )
    facts = replace(
        facts,
        metrics=metrics,
        prefill=PhaseSteps(
            steps, prefill_ms / 1e3, prompt - cached, steps * a_token, prefill_ms / 1e3, 0, 80, 20
        ),
        decode=PhaseSteps(
            itls, itls * itl_ms / 1e3, itls, itls * a_token, 0.95 * itls * itl_ms / 1e3, 0, 5, 85
        ),
        itl_ms=(itl_ms,) * itls,
    )
    return replace(facts, **changes)


def _metrics(weights: str, prompt: int, cached: int, tokens: int) -> RequestMetrics:
    return RequestMetrics(
        request_id="r",
        started_at="2026-01-15T09:30:00Z",
        t_send_ns=0,
        model="Model",
        device="CPU",
        weight_format=weights,
        kv_format="bf16",
        context_length=8_192,
        kernels="native",
        prompt_tokens=prompt,
        cached_tokens=cached,
        completion_tokens=tokens,
        finish_reason="stop",
        queue_ms=None,
        ttft_ms=None,
        prefill_ms=None,
        prefill_tok_s=None,
        decode_tok_s=None,
        tpot_ms=None,
        itl_p50_ms=None,
        itl_p90_ms=None,
        itl_p95_ms=None,
        itl_p99_ms=None,
        e2el_ms=None,
        kv_bytes_used=0,
        kv_bytes_allocated=0,
        weight_bytes=0,
        peak_memory_bytes=0,
        temperature=0.0,
        top_p=1.0,
        top_k=0,
        seed=0,
        kv_bytes_reserved=0,
        threads=2,
        warmup_s=0.4,
    )
