"""Qwen2 and 2.5 (arXiv 2407.10671): Llama with biases on q, k and v."""

from __future__ import annotations

from dataclasses import replace

from engine.loading.gguf_config import GgufConfig
from engine.loading.hf_config import HfConfig
from engine.loading.model_config import MAX_LAYERS, ModelConfig
from engine.models.architecture import Architecture, with_windows


def from_hf(config: HfConfig) -> ModelConfig:
    """Layers from `max_window_layers` on are windowed, where windows are in use at all."""
    first = config.integer("max_window_layers", MAX_LAYERS)
    model = with_windows(config.decoder("qwen2"), config.windows(lambda index: index >= first))
    return replace(model, attention_bias=True, attention_output_bias=False)


def from_gguf(config: GgufConfig) -> ModelConfig:
    """Biases show in the file's tensors; windows are not in use in any GGUF file."""
    return config.decoder("qwen2")


QWEN2 = Architecture(
    name="qwen2",
    hf_names=("qwen2",),
    from_hf=from_hf,
    hf_defaults={"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28},
    gguf_name="qwen2",
    from_gguf=from_gguf,
)
