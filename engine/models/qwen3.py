"""Qwen3 (arXiv 2505.09388): Llama with a norm on each head's queries and keys."""

from __future__ import annotations

from dataclasses import replace

from engine.loading.gguf_config import GgufConfig
from engine.loading.hf_config import HfConfig
from engine.loading.model_config import MAX_LAYERS, ModelConfig
from engine.models.architecture import Architecture, with_windows


def from_hf(config: HfConfig) -> ModelConfig:
    """The head size is a field of its own, 128 in all sizes."""
    first = config.integer("max_window_layers", MAX_LAYERS)
    model = with_windows(config.decoder("qwen3"), config.windows(lambda index: index >= first))
    return replace(model, qk_norm="head")


def from_gguf(config: GgufConfig) -> ModelConfig:
    """See from_hf."""
    return replace(config.decoder("qwen3"), qk_norm="head")


QWEN3 = Architecture(
    name="qwen3",
    hf_names=("qwen3",),
    from_hf=from_hf,
    hf_defaults={
        "head_dim": 128,
        "use_sliding_window": False,
        "sliding_window": 4096,
        "max_window_layers": 28,
    },
    gguf_name="qwen3",
    from_gguf=from_gguf,
)
