"""Phi-3 and Phi-4-mini (arXiv 2404.14219, 2503.01743): fused projections, LongRoPE."""

from __future__ import annotations

from dataclasses import replace

from engine.loading.gguf_config import GgufConfig
from engine.loading.hf_config import HfConfig
from engine.loading.model_config import ModelConfig
from engine.models.architecture import Architecture, with_windows


def from_hf(config: HfConfig) -> ModelConfig:
    """q, k, v and gate, up are one matrix each; where there is a window, all layers have it."""
    model = with_windows(config.decoder("phi3"), config.windows(lambda _: True))
    return replace(model, fused_projections=True)


def from_gguf(config: GgufConfig) -> ModelConfig:
    """See from_hf."""
    model = with_windows(config.decoder("phi3"), config.windows(lambda _: True))
    return replace(model, fused_projections=True)


PHI3 = Architecture(
    name="phi3",
    hf_names=("phi3",),
    from_hf=from_hf,
    hf_defaults={"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096},
    gguf_name="phi3",
    from_gguf=from_gguf,
    gguf_tensors={"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
)
