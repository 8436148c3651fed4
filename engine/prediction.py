"""How fast a model would run on this device, from sizes and measured peaks alone. No torch.

The formula and its limits stand in docs/metrics.md, "Predicted".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.config import EngineConfig, MemoryEstimate, ModelInfo

PROMPT_TOKENS = 1_000
# Between two recorded steps: schedule, sample, detokenize. docs/measurements.md: 0.35 to 0.45 ms of
# Python and 0.1 of greedy sampling.
STEP_OVERHEAD_S = 0.0005


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Shares of the device's measured peaks that our kernels reach with a weight format.

    `decode`: of the read bandwidth, while one row is multiplied. `prefill`: of the matrix-product
    rate in the dtype that dense products use; above 1 where a format's own product beats torch's.
    """

    decode: float
    prefill: float


# One row a format, by device type, from `python -m tests.benchmarks.prediction` on a quiet machine
# (docs/measurements.md, 2026-12-02, two AVX512 cores). GPU: not measured yet.
EFFICIENCY: dict[str, dict[str, Efficiency]] = {
    "cpu": {
        "fp32": Efficiency(decode=1.0, prefill=0.95),
        "bf16": Efficiency(decode=0.90, prefill=0.75),
        "fp16": Efficiency(decode=0.90, prefill=0.65),
        "int8": Efficiency(decode=0.82, prefill=0.68),
        "int4": Efficiency(decode=0.88, prefill=0.88),
    },
    "cuda": {
        "fp32": Efficiency(decode=0.8, prefill=0.6),
        "bf16": Efficiency(decode=0.8, prefill=0.6),
        "fp16": Efficiency(decode=0.8, prefill=0.6),
        "int8": Efficiency(decode=0.8, prefill=0.6),
        "int4": Efficiency(decode=0.8, prefill=0.6),
    },
}
# Attention reads the cache at this share of the read bandwidth, by device type: the same entry of
# docs/measurements.md has 1 to 1.9 ms where the bytes take 0.7.
KV_EFFICIENCY = {"cpu": 0.5, "cuda": 0.6}


@dataclass(frozen=True, slots=True)
class MatrixGroup:
    """Matrices that are kept in one format: all layers' together, or the output head."""

    kernel_format: str  # a key of EFFICIENCY
    parameters: int
    num_bytes: int  # scales included


@dataclass(frozen=True, slots=True)
class ModelWork:
    """What a token costs: as engine.costs.ModelCosts, before anything is loaded."""

    layers: MatrixGroup
    head: MatrixGroup
    attention_size: int  # layers x heads x head_dim
    kv_bytes_per_token: int


@dataclass(frozen=True, slots=True)
class DeviceSpeed:
    """The measured peaks that matter: FLOP/s of matrix products, bytes/s by working set."""

    device_type: str  # "cpu" or "cuda"
    matmul_flops: float
    bandwidth_at: Callable[[int], float]


@dataclass(frozen=True, slots=True)
class SpeedPrediction:
    """For a prompt of PROMPT_TOKENS: the wait before the first token, then tokens a second."""

    ttft_ms: float
    decode_tok_s: float


@dataclass(frozen=True, slots=True)
class ModelSurvey:
    """All that is known of a model before it is loaded as some config.

    `device` and `threads` are what the config resolves to, named as in ModelLoaded. `speed` is
    None until the device's peaks have been measured, which the first load does.
    """

    info: ModelInfo
    config: EngineConfig
    memory: MemoryEstimate
    device: str
    threads: int
    speed: SpeedPrediction | None


def predict(work: ModelWork, device: DeviceSpeed) -> SpeedPrediction:
    """Prefill is bound by matrix products, decode by reading: see docs/metrics.md."""
    return SpeedPrediction(
        ttft_ms=1e3 * prefill_s(work, device, PROMPT_TOKENS),
        decode_tok_s=1 / decode_s(work, device, PROMPT_TOKENS),
    )


def prefill_s(work: ModelWork, device: DeviceSpeed, tokens: int, cached: int = 0) -> float:
    """Seconds from the first chunk to the first token, `tokens` computed after `cached` ones."""
    shares = EFFICIENCY[device.device_type]
    layers = shares[work.layers.kernel_format].prefill * device.matmul_flops
    # A query attends to itself and all before it: tokens (tokens + 1) / 2 pairs, and the cached.
    attention_flops = 4 * work.attention_size * tokens * (cached + (tokens + 1) / 2)
    flops_s = (2 * work.layers.parameters * tokens + attention_flops) / layers
    bandwidth = device.bandwidth_at(work.head.num_bytes)
    head_s = work.head.num_bytes / (bandwidth * shares[work.head.kernel_format].decode)
    return flops_s + head_s + STEP_OVERHEAD_S


def decode_bytes(work: ModelWork, context: int) -> int:
    """Bytes that a token reads: the weights and the cache of `context` tokens."""
    return work.layers.num_bytes + work.head.num_bytes + context * work.kv_bytes_per_token


def decode_s(work: ModelWork, device: DeviceSpeed, context: int) -> float:
    """Seconds of one token after `context` others."""
    shares = EFFICIENCY[device.device_type]
    kv_bytes = context * work.kv_bytes_per_token
    bandwidth = device.bandwidth_at(decode_bytes(work, context))
    reads = [
        (group.num_bytes, shares[group.kernel_format].decode) for group in (work.layers, work.head)
    ]
    reads.append((kv_bytes, KV_EFFICIENCY[device.device_type]))
    return sum(size / (bandwidth * share) for size, share in reads) + STEP_OVERHEAD_S
