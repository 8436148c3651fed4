"""Granite 3 (IBM, 2024): Llama with multipliers on embeddings, residuals, attention and logits."""

from __future__ import annotations

from dataclasses import replace

from engine.loading.gguf_config import GgufConfig
from engine.loading.hf_config import HfConfig
from engine.loading.model_config import ModelConfig
from engine.models.architecture import Architecture

_LEAST, _MOST = 1e-6, 1e6


def from_hf(config: HfConfig) -> ModelConfig:
    """All four multipliers are 1 unless the config names them."""
    return _with_multipliers(
        config.decoder("granite"),
        embedding=config.number("embedding_multiplier", _LEAST, _MOST, default=1.0),
        residual=config.number("residual_multiplier", _LEAST, _MOST, default=1.0),
        attention=config.number("attention_multiplier", _LEAST, _MOST, default=1.0),
        logits_divisor=config.number("logits_scaling", _LEAST, _MOST, default=1.0),
    )


def from_gguf(config: GgufConfig) -> ModelConfig:
    """The same figures; an absent attention scale is the usual one."""
    return _with_multipliers(
        config.decoder("granite"),
        embedding=config.number("embedding_scale", _LEAST, _MOST, default=1.0),
        residual=config.number("residual_scale", _LEAST, _MOST, default=1.0),
        attention=config.optional_number("attention.scale", _LEAST, _MOST),
        logits_divisor=config.number("logit_scale", _LEAST, _MOST, default=1.0),
    )


def _with_multipliers(
    model: ModelConfig,
    embedding: float,
    residual: float,
    attention: float | None,
    logits_divisor: float,
) -> ModelConfig:
    """Layers here add m * f(norm(h)) to the residual h, the layers of all others f(norm(h)).

    With h = m g that is g + f(norm(m g)), and RMSNorm(m g) is RMSNorm(g) with eps / m^2: the same
    numbers come out when the embeddings, which begin h, are divided by m once.
    """
    return replace(
        model,
        embedding_scale=embedding / residual,
        rms_norm_eps=model.rms_norm_eps / residual**2,
        attention_scale=attention,
        logits_scale=1.0 / logits_divisor,
    )


GRANITE = Architecture(
    name="granite",
    hf_names=("granite",),
    from_hf=from_hf,
    gguf_name="granite",
    from_gguf=from_gguf,
    gguf_interleaves_rope=True,
)
