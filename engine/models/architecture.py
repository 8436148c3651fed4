"""How a family of models is described: what its files call things, and where it differs from Llama.

Each family is a module here with one `Architecture`; engine/models/decoder.py computes them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.loading.gguf_config import GgufConfig
from engine.loading.hf_config import HfConfig
from engine.loading.model_config import ExpertsConfig, ModelConfig


@dataclass(frozen=True, slots=True)
class Architecture:
    """One family.

    `hf_names` are the `model_type`s of Hugging Face, `hf_defaults` what its config class in
    transformers takes for absent fields, `hf_tensors` parts of tensor names that are spelled
    otherwise than here, in the order in which they are replaced. `gguf_name` is GGUF's
    `general.architecture`, `gguf_tensors` the layer's tensors beside those that all share,
    `gguf_interleaves_rope` whether the converter orders the rows of q and k so that
    RoPE turns neighbours.
    """

    name: str
    hf_names: tuple[str, ...]
    from_hf: Callable[[HfConfig], ModelConfig]
    hf_defaults: Mapping[str, Any] = field(default_factory=dict)
    hf_tensors: Mapping[str, str] = field(default_factory=dict)
    gguf_name: str | None = None
    from_gguf: Callable[[GgufConfig], ModelConfig] | None = None
    gguf_tensors: Mapping[str, str] = field(default_factory=dict)
    gguf_interleaves_rope: bool = False


def with_windows(config: ModelConfig, windows: Sequence[int | None]) -> ModelConfig:
    """The model with these windows, one a layer."""
    layers = zip(config.layers, windows, strict=True)
    return replace(config, layers=tuple(replace(layer, window=w) for layer, w in layers))


def with_experts(config: ModelConfig, experts: ExpertsConfig) -> ModelConfig:
    """The model with a mixture of experts in every layer."""
    layers = tuple(replace(layer, is_sparse=True) for layer in config.layers)
    return replace(config, layers=layers, experts=experts)
