"""Llama 2 and 3.x (arXiv 2307.09288, 2407.21783), and models of that shape: SmolLM2, TinyLlama."""

from __future__ import annotations

from dataclasses import replace

from engine.loading.gguf_config import GgufConfig
from engine.loading.hf_config import HfConfig
from engine.loading.model_config import ModelConfig
from engine.models.architecture import Architecture, with_experts, with_windows


def from_hf(config: HfConfig) -> ModelConfig:
    """What every other family is compared with."""
    return config.decoder("llama")


def from_gguf(config: GgufConfig) -> ModelConfig:
    """GGUF calls Mistral and Mixtral by this name too."""
    model = with_windows(config.decoder("llama"), config.windows(lambda _: True))
    experts = config.experts("feed_forward_length")
    if experts is None:
        return model
    return replace(with_experts(model, experts), architecture="mixtral")


LLAMA = Architecture(
    name="llama",
    hf_names=("llama",),
    from_hf=from_hf,
    gguf_name="llama",
    from_gguf=from_gguf,
    gguf_interleaves_rope=True,
)
