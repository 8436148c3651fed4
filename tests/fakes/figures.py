"""Plausible figures for the fake session: SmolLM2-135M on a two-core laptop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from engine.config import (
    EngineConfig,
    GenerationRequest,
    KVGroupSize,
    MemoryEstimate,
    ModelInfo,
    SamplingParams,
    WeightFormatInfo,
    kv_group_size,
    kv_pool_bytes,
)
from engine.events import Capabilities, FinishReason, ModelLoaded, RequestMetrics
from engine.footprint import Footprint, Workspace, resolve_kv_format
from engine.kv_formats import KV_FORMATS
from engine.peaks import DevicePeaks, Roofs
from engine.planner.plan import Machine, PlannedModel, Planning, WeightLevel, nominal_bytes
from engine.prediction import DeviceSpeed, MatrixGroup, ModelWork

# Under which the fake session's usual rates are its usual shares of MFU and MBU.
PEAKS = DevicePeaks({"fp32": 2.5e11, "bf16": 7.66e11}, ((1 << 20, 4e10), (1 << 27, 2.11e10)))
MODEL_NAME = "SmolLM2-135M-Instruct"
PARAMETERS = 134_515_008
KV_BYTES_PER_TOKEN = 23_040  # 2 x 30 layers x 3 KV heads x 64 x 2 bytes (BF16)
WEIGHT_BYTES = {
    "as-stored": 96_200_000,
    "fp32": 538_060_032,
    "bf16": 269_030_016,
    "fp16": 269_030_016,
    "int8": 142_900_000,
    "int4": 96_200_000,
}

ANSWER = (
    "Because the two phases do different work. **Prefill** reads your whole prompt at once, a "
    "large matrix product that keeps the processor busy; it ends with the first token. "
    "**Decode** then makes one token a step, and each step must read every weight and the whole "
    "cache for very little arithmetic.\n\n"
    "```python\n"
    "for step in range(max_tokens):\n"
    "    logits = model(token, cache)      # reads all weights once\n"
    "    token  = sample(logits[-1])\n"
    "    cache.append(token)               # grows by one entry a layer\n"
    "    yield token\n"
    "```\n\n"
    "| phase | bound by | felt as |\n"
    "|---|---|---|\n"
    "| prefill | compute | the wait before the first token |\n"
    "| decode | memory bandwidth | the pace of the stream |\n\n"
    "At 4,096 tokens the cache of this model takes 94 MB, about two thirds of the weights.\n"
)


def model_info(path: str) -> ModelInfo:
    """SmolLM2-135M-Instruct, as its headers say it."""
    labels = {
        "as-stored": ("As stored (Q4_1, head Q8_0)", 4.0, 5.4),
        "fp32": ("FP32", 32.0, 32.0),
        "bf16": ("BF16", 16.0, 16.0),
        "fp16": ("FP16", 16.0, 16.0),
        "int8": ("INT8", 8.0, 8.5),
        "int4": ("INT4", 4.0, 5.0),
    }
    return ModelInfo(
        path=path,
        name=MODEL_NAME if "SmolLM2" in path or not path else Path(path).stem,
        architecture="llama",
        source="gguf",
        parameters=PARAMETERS,
        file_bytes=98_362_432,
        context_length=8192,
        vocab_size=49_152,
        num_layers=30,
        hidden_size=576,
        intermediate_size=1536,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        stored_format="Q4_1, head Q8_0",
        weight_formats=tuple(
            WeightFormatInfo(name, label, WEIGHT_BYTES[name], nominal, bits)
            for name, (label, nominal, bits) in labels.items()
        ),
        kv_formats=KV_FORMATS,
        has_chat_template=True,
        default_sampling=SamplingParams(temperature=0.7, top_p=0.9),
    )


def resolve(config: EngineConfig) -> EngineConfig:
    kv = config.kv_format
    if kv == "auto":
        kv = "fp32" if config.weight_format == "fp32" else "bf16"
    return replace(
        config,
        kv_format=kv,
        context_length=config.context_length or 4096,
        device="cpu" if config.device == "auto" else config.device,
        threads=config.threads or 2,
    )


def estimate(
    config: EngineConfig, info: ModelInfo, available: int, loaded: ModelLoaded | None
) -> MemoryEstimate:
    group = _kv_group(config)
    per_token = group.bytes_per_token
    context = config.context_length or 4096
    weights = WEIGHT_BYTES[config.weight_format]
    workspace = 60_000_000
    freed = loaded.weight_bytes + loaded.kv_bytes_reserved if loaded else 0
    budget = available + freed - weights - workspace
    return MemoryEstimate(
        weights,
        kv_pool_bytes((group,), config, context),
        workspace,
        freed,
        available,
        context,
        per_token,
        tuple(
            c
            for c in (8192, 4096, 2048, 1024, 512)
            if c <= info.context_length and c * per_token <= budget
        ),
        tuple(n for n, b in WEIGHT_BYTES.items() if b + workspace <= available + freed),
    )


def _kv_group(config: EngineConfig) -> KVGroupSize:
    kv_format = resolve_kv_format(config.weight_format, config.kv_format)
    return kv_group_size(kv_format, 30, 3, 64, config.block_size)


def loaded_model(
    config: EngineConfig,
    info: ModelInfo,
    memory: MemoryEstimate,
    load_s: float,
    notices: tuple[str, ...],
    *,
    is_measured: bool = True,
) -> ModelLoaded:
    return ModelLoaded(
        model=info,
        config=config,
        capabilities=Capabilities(tuple(f.name for f in info.weight_formats), KV_FORMATS, ("cpu",)),
        memory=memory,
        load_s=load_s,
        warmup_s=0.1,
        weight_bytes=memory.weight_bytes,
        kv_bytes_reserved=memory.kv_bytes,
        kv_groups=(_kv_group(config),),
        kernels="native AVX512-VNNI",
        device_name="CPU",
        threads=config.threads or 2,
        notices=notices,
        roofs=Roofs(PEAKS, "bf16") if is_measured else None,
    )


def request_metrics(
    loaded: ModelLoaded,
    request: GenerationRequest,
    reason: FinishReason,
    prompt_tokens: int,
    cached_tokens: int,
    t_send_ns: int,
    first_scheduled_ns: int | None,
    prefill_end_ns: int | None,
    token_times_ns: Sequence[int],
    kv_bytes: tuple[int, int],
) -> RequestMetrics:
    """The request's figures by the definitions of docs/metrics.md."""
    itl = np.diff(np.array(token_times_ns, dtype=np.float64)) / 1e6
    prefill_ms = None
    if first_scheduled_ns is not None and prefill_end_ns is not None:
        prefill_ms = (prefill_end_ns - first_scheduled_ns) / 1e6
    first = (token_times_ns[0] - t_send_ns) / 1e6 if token_times_ns else None
    last = (token_times_ns[-1] - t_send_ns) / 1e6 if token_times_ns else None
    computed = prompt_tokens - cached_tokens

    def percentile(q: int) -> float | None:
        return float(np.percentile(itl, q)) if itl.size else None

    return RequestMetrics(
        request_id=request.request_id,
        started_at="2026-01-15T09:30:00Z",
        t_send_ns=t_send_ns,
        model=loaded.model.name,
        device=loaded.device_name,
        weight_format=loaded.config.weight_format,
        kv_format=loaded.config.kv_format,
        context_length=loaded.config.context_length or 0,
        kernels=loaded.kernels,
        prompt_tokens=prompt_tokens,
        cached_tokens=cached_tokens,
        completion_tokens=len(token_times_ns),
        finish_reason=reason,
        queue_ms=0.0 if first_scheduled_ns is not None else None,
        ttft_ms=first,
        prefill_ms=prefill_ms,
        prefill_tok_s=1e3 * computed / prefill_ms if prefill_ms else None,
        decode_tok_s=float(1e3 / itl.mean()) if itl.size else None,
        tpot_ms=float(itl.mean()) if itl.size else None,
        itl_p50_ms=percentile(50),
        itl_p90_ms=percentile(90),
        itl_p95_ms=percentile(95),
        itl_p99_ms=percentile(99),
        e2el_ms=last,
        kv_bytes_used=kv_bytes[0],
        kv_bytes_allocated=kv_bytes[1],
        weight_bytes=loaded.weight_bytes,
        peak_memory_bytes=612_000_000,
        temperature=request.sampling.temperature,
        top_p=request.sampling.top_p,
        top_k=request.sampling.top_k,
        seed=request.sampling.seed or 0,
        kv_bytes_reserved=loaded.kv_bytes_reserved,
        threads=loaded.threads,
        warmup_s=loaded.warmup_s,
        use_cache=request.use_cache,
    )


@dataclass(frozen=True, slots=True)
class _PlannedShape:
    """A model of the fake planner: layers by window, and enough to have a speed."""

    name: str
    parameters: int
    context_length: int
    layers: dict[int | None, int]
    num_kv_heads: int
    head_dim: int
    attention_size: int
    workspace: Workspace


_PLANNED = {
    "Llama-3.1-8B": _PlannedShape(
        "Llama-3.1-8B",
        8_030_261_248,
        131_072,
        {None: 32},
        *(8, 128, 32 * 4_096),
        Workspace(469_762_048, 294_912, 66_048, 3_591_168),
    ),
    "Gemma-3-12B": _PlannedShape(
        "Gemma-3-12B",
        11_766_034_176,
        131_072,
        {1_024: 40, None: 8},
        *(8, 256, 48 * 4_096),
        Workspace(471_859_200, 307_200, 66_560, 7_341_824),
    ),
}
_STARTER = _PlannedShape(
    MODEL_NAME, PARAMETERS, 8_192, {None: 30}, 3, 64, 30 * 576, Workspace(7_077_888, 33_792, 9_472)
)
SPEED = DeviceSpeed("cpu", 250e9, lambda _: 20e9)
_BITS = {"as-stored": 16.0, "fp32": 32.0, "bf16": 16.0, "fp16": 16.0, "int8": 8.0, "int4": 4.0}
LATENT = "DeepSeek-V3.2"


def planning(
    model: str,
    threads: int,
    available: int,
    freed: int,
    speed: DeviceSpeed = SPEED,
    *,
    is_measured: bool,
) -> Planning:
    """What the session would read of a model: of a path the starter, else one of three shapes."""
    speeds = dict.fromkeys(WEIGHT_BYTES, speed)
    machine = Machine("CPU", threads, available, freed, speeds if is_measured else {})
    if model == LATENT:
        return Planning(_latent(), machine)
    shape = _PLANNED.get(model, _STARTER)
    is_built_in = model in _PLANNED
    weights = WEIGHT_BYTES
    if is_built_in:
        weights = {n: round(shape.parameters * (b + (b < 16)) / 8) for n, b in _BITS.items()}
    levels = tuple(
        WeightLevel(
            name,
            ("As stored (BF16)" if is_built_in else "As stored (Q4_1, head Q8_0)")
            if name == "as-stored"
            else name.upper(),
            8 * size / shape.parameters if name == "as-stored" else _BITS[name],
            size if name == "as-stored" else nominal_bytes(shape.parameters, _BITS[name]),
            size,
        )
        for name, size in weights.items()
    )
    groups = {
        name: tuple(
            kv_group_size(name, count, shape.num_kv_heads, shape.head_dim, 16, window)
            for window, count in shape.layers.items()
        )
        for name in KV_FORMATS[1:]
    }
    work = {
        name: ModelWork(
            MatrixGroup("bf16" if name == "as-stored" else name, shape.parameters, size),
            MatrixGroup("int8", shape.parameters // 20, size // 20),
            shape.attention_size,
            0,
        )
        for name, size in weights.items()
    }
    return Planning(
        PlannedModel(
            name=shape.name,
            source=f"makers/{model}" if is_built_in else model,
            is_built_in=is_built_in,
            can_run=True,
            parameters=shape.parameters,
            footprint=Footprint(shape.context_length, weights, groups, shape.workspace),
            levels=levels,
            work=work,
        ),
        machine,
    )


def _latent() -> PlannedModel:
    """A model whose shape is all that is known."""
    parameters = 671_877_944_064
    sizes = {"fp32": 4 * parameters, "bf16": 2 * parameters, "fp16": 2 * parameters}
    per_token = {"fp32": 171_776, "bf16": 85_888, "fp8_ds_mla": 48_068}
    return PlannedModel(
        name=LATENT,
        source="deepseek-ai/DeepSeek-V3.2-Exp",
        is_built_in=True,
        can_run=False,
        parameters=parameters,
        footprint=Footprint(
            163_840, sizes, {name: (KVGroupSize(size),) for name, size in per_token.items()}, None
        ),
        levels=tuple(
            WeightLevel(n, n.upper(), _BITS[n], nominal_bytes(parameters, _BITS[n]), sizes.get(n))
            for n in ("fp32", "bf16", "fp16", "int8", "int4")
        ),
        work={},
        default_weights="bf16",
    )
