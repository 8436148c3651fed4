"""SmolLM3: Llama whose every fourth layer has no RoPE (NoPE, arXiv 2501.18795)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.loading.gguf_config import GgufConfig
from engine.loading.hf_config import HfConfig
from engine.loading.model_config import MAX_LAYERS, ModelConfig
from engine.models.architecture import Architecture, with_windows

_INTERVAL = 4


def from_hf(config: HfConfig) -> ModelConfig:
    """`no_rope_layers` has a 0 for each layer without RoPE; these may be windowed."""
    interval = config.integer("no_rope_layer_interval", MAX_LAYERS, default=_INTERVAL)
    count = config.num_layers
    ropes = config.whole_numbers("no_rope_layers") or _every(interval, count)
    if len(ropes) < count:
        raise config.error("no_rope_layers", "does not name every layer")
    model = _without_rope(config.decoder("smollm3"), ropes[:count])
    return with_windows(model, config.windows(lambda index: not ropes[index]))


def from_gguf(config: GgufConfig) -> ModelConfig:
    """Every fourth layer, as llama.cpp has it: the file does not say."""
    return _without_rope(config.decoder("smollm3"), _every(_INTERVAL, config.num_layers))


def _every(interval: int, count: int) -> tuple[int, ...]:
    return tuple(int((index + 1) % interval != 0) for index in range(count))


def _without_rope(model: ModelConfig, ropes: Sequence[int]) -> ModelConfig:
    layers = zip(model.layers, ropes, strict=True)
    return replace(
        model,
        layers=tuple(layer if rope else replace(layer, rope=None) for layer, rope in layers),
    )


SMOLLM3 = Architecture(
    name="smollm3",
    hf_names=("smollm3",),
    from_hf=from_hf,
    hf_defaults={
        "num_key_value_heads": 4,
        "rope_theta": 2e6,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
    },
    gguf_name="smollm3",
    from_gguf=from_gguf,
    gguf_interleaves_rope=True,
)
