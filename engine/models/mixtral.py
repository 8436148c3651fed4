"""Mixtral (arXiv 2401.04088): Mistral with a mixture of experts in every layer."""

from __future__ import annotations

from engine.loading.hf_config import HfConfig
from engine.loading.model_config import ModelConfig
from engine.models.architecture import Architecture, with_experts, with_windows


def from_hf(config: HfConfig) -> ModelConfig:
    """The chosen experts' weights are a softmax over their own logits: they add up to 1."""
    model = with_windows(config.decoder("mixtral"), config.windows(lambda _: True))
    experts = config.experts("num_local_experts", "intermediate_size", normalize=True)
    return with_experts(model, experts)


MIXTRAL = Architecture(
    name="mixtral",
    hf_names=("mixtral",),
    from_hf=from_hf,
    hf_defaults={
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    hf_tensors={
        "block_sparse_moe.": "mlp.",
        ".w1.": ".gate_proj.",
        ".w3.": ".up_proj.",
        ".w2.": ".down_proj.",
    },
)
