"""Rotary position embedding tables, with the scalings that models use to reach longer contexts.

RoPE: arXiv 2104.09864. Position interpolation ("linear"): arXiv 2306.15595. YaRN: arXiv
2309.00071. "llama3": the frequency-dependent interpolation published with Llama 3.1. LongRoPE:
arXiv 2402.13753.
"""

from __future__ import annotations

import math

import torch

from engine.loading.model_config import Rope, RopeScaling


class RotaryTable:
    """cos and sin of every position up to the context length, FP32 [num_positions, R/2].

    Without a `rope` every angle is 0: queries and keys stay as they are.
    """

    def __init__(
        self, rotary_dim: int, rope: Rope | None, num_positions: int, device: torch.device
    ) -> None:
        frequencies, magnitude = rope_frequencies(rotary_dim, rope, num_positions)
        positions = torch.arange(num_positions, dtype=torch.float32)
        angles = positions[:, None] * frequencies
        self.cos = (angles.cos() * magnitude).to(device)
        self.sin = (angles.sin() * magnitude).to(device)


def rope_frequencies(
    rotary_dim: int, rope: Rope | None, num_positions: int
) -> tuple[torch.Tensor, float]:
    """Inverse frequencies FP32 [R/2] and the factor on cos and sin (YaRN's, LongRoPE's, else 1)."""
    if rope is None:
        return torch.zeros(rotary_dim // 2), 1.0
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.int64).float() / rotary_dim
    frequencies = 1.0 / rope.theta**exponents
    scaling = rope.scaling
    if scaling is None:
        return frequencies, 1.0
    if scaling.type == "longrope":
        return _longrope(frequencies, scaling, num_positions)
    if scaling.frequency_factors is not None:
        return frequencies / torch.tensor(scaling.frequency_factors, dtype=torch.float32), 1.0
    if scaling.type == "linear":
        return frequencies / scaling.factor, 1.0
    if scaling.type == "llama3":
        return _llama3(frequencies, scaling), 1.0
    return _yarn(frequencies, rotary_dim, rope.theta, scaling)


def _llama3(frequencies: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Long wavelengths divided by the factor, short ones kept, a linear blend between."""
    turns = scaling.original_context_length * frequencies / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return frequencies * (kept + (1.0 - kept) / scaling.factor)


def _longrope(
    frequencies: torch.Tensor, scaling: RopeScaling, num_positions: int
) -> tuple[torch.Tensor, float]:
    """The long factors where the context may pass the original one, whatever is in it by now.

    transformers changes over when a text passes that length; keys that are in the cache already
    would keep the other rotation.
    """
    long = num_positions > scaling.original_context_length
    factors = scaling.long_frequency_factors if long else scaling.frequency_factors
    scaled = frequencies / torch.tensor(factors, dtype=torch.float32)
    if scaling.attention_factor is not None:
        return scaled, scaling.attention_factor
    if scaling.factor <= 1.0:
        return scaled, 1.0
    spread = math.log(scaling.factor) / math.log(scaling.original_context_length)
    return scaled, math.sqrt(1.0 + spread)


def _yarn(
    frequencies: torch.Tensor, rotary_dim: int, theta: float, scaling: RopeScaling
) -> tuple[torch.Tensor, float]:
    """Interpolate slow dimensions, keep fast ones, and raise the attention temperature."""

    def dimension_of(turns: float) -> float:
        span = scaling.original_context_length / (turns * 2 * math.pi)
        return rotary_dim * math.log(span) / (2 * math.log(theta))

    low, high = dimension_of(scaling.beta_fast), dimension_of(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotary_dim - 1)
    if low == high:
        high += 0.001
    dims = torch.arange(rotary_dim // 2, dtype=torch.float32)
    interpolated = ((dims - low) / (high - low)).clamp(0.0, 1.0)
    scaled = frequencies * (1 - interpolated + interpolated / scaling.factor)
    return scaled, _yarn_magnitude(scaling)


def _yarn_magnitude(scaling: RopeScaling) -> float:
    def temperature(mscale: float) -> float:
        return 0.1 * mscale * math.log(scaling.factor) + 1.0 if scaling.factor > 1 else 1.0

    if scaling.attention_factor is not None:
        return scaling.attention_factor
    if scaling.mscale and scaling.mscale_all_dim:
        return temperature(scaling.mscale) / temperature(scaling.mscale_all_dim)
    return temperature(1.0)
