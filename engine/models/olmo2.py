"""OLMo 2 (arXiv 2501.00656): norms after attention and MLP, and over all queries and keys."""

from __future__ import annotations

from dataclasses import replace

from engine.loading.gguf_config import GgufConfig
from engine.loading.hf_config import HfConfig
from engine.loading.model_config import ModelConfig
from engine.models.architecture import Architecture


def from_hf(config: HfConfig) -> ModelConfig:
    """Attention and MLP read the residual as it is; what they add is normed."""
    return replace(config.decoder("olmo2"), norms="after", qk_norm="all_heads")


def from_gguf(config: GgufConfig) -> ModelConfig:
    """See from_hf."""
    return replace(config.decoder("olmo2"), norms="after", qk_norm="all_heads")


OLMO2 = Architecture(
    name="olmo2",
    hf_names=("olmo2",),
    from_hf=from_hf,
    hf_defaults={"rms_norm_eps": 1e-5},
    gguf_name="olmo2",
    from_gguf=from_gguf,
    gguf_tensors={
        "post_attention_norm": "post_attention_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
)
