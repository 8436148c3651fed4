"""Mistral (arXiv 2310.06825): Llama whose queries see a window of the latest keys."""

from __future__ import annotations

from engine.loading.hf_config import HfConfig
from engine.loading.model_config import ModelConfig
from engine.models.architecture import Architecture, with_windows


def from_hf(config: HfConfig) -> ModelConfig:
    """Every layer is windowed; later versions have no window at all."""
    return with_windows(config.decoder("mistral"), config.windows(lambda _: True))


MISTRAL = Architecture(
    name="mistral",
    hf_names=("mistral",),
    from_hf=from_hf,
    hf_defaults={"num_key_value_heads": 8, "sliding_window": 4096},
)
