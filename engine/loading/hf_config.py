"""The config.json of a Hugging Face folder, read in the words of ModelConfig.

What a field is when it is absent differs by family: `HfConfig` is made with the family's defaults,
which are those of its class in transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.loading import model_config as limits
from engine.loading.files import Fields, bad_file, unsupported
from engine.loading.model_config import (
    ExpertsConfig,
    HiddenAct,
    LayerConfig,
    ModelConfig,
    Rope,
    RopeScaling,
    divided_head_dim,
)

_ACTIVATIONS: dict[str, HiddenAct] = {
    "silu": "silu",
    "swish": "silu",  # two names of one function
    "gelu_pytorch_tanh": "gelu_tanh",
}
_SLIDING, _FULL = "sliding_attention", "full_attention"


class HfConfig(Fields):
    """The fields of one text model. Methods raise CheckpointError by field."""

    def __init__(self, values: Mapping[str, Any], defaults: Mapping[str, Any], path: Path) -> None:
        super().__init__({**defaults, **values}, path)
        self._path = path

    def decoder(self, architecture: str) -> ModelConfig:
        """The model as far as all families agree: Llama with this config's sizes."""
        hidden_size = self.integer("hidden_size", limits.MAX_HIDDEN_SIZE)
        num_heads = self.integer("num_attention_heads", limits.MAX_HEADS)
        head_dim = self._head_dim(hidden_size, num_heads)
        attention_bias = self.flag("attention_bias", False)
        return ModelConfig(
            architecture=architecture,
            vocab_size=self.integer("vocab_size", limits.MAX_VOCAB_SIZE),
            hidden_size=hidden_size,
            intermediate_size=self.integer("intermediate_size", limits.MAX_INTERMEDIATE_SIZE),
            num_heads=num_heads,
            num_kv_heads=self.integer("num_key_value_heads", limits.MAX_HEADS, default=num_heads),
            head_dim=head_dim,
            rms_norm_eps=self.number("rms_norm_eps", 0.0, 0.1, default=1e-6),
            layers=(LayerConfig(self.rope()),) * self.num_layers,
            context_length=self.context_length,
            tie_word_embeddings=self.flag("tie_word_embeddings", False),
            attention_bias=attention_bias,
            attention_output_bias=attention_bias,
            mlp_bias=self.flag("mlp_bias", False),
            hidden_act=self.hidden_act("hidden_act"),
            rotary_dim=self._rotary_dim(head_dim),
        )

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return self.integer("num_hidden_layers", limits.MAX_LAYERS)

    @property
    def context_length(self) -> int:
        """Tokens the model was made for."""
        return self.integer("max_position_embeddings", limits.MAX_CONTEXT_LENGTH)

    def hidden_act(self, name: str) -> HiddenAct:
        """The activation in field `name`."""
        activation = self.text(name, default="silu")
        if activation not in _ACTIVATIONS:
            raise unsupported(
                f"The activation {activation[:40]!r}",
                f"Known activations: {', '.join(sorted(_ACTIVATIONS))}.",
                "Choose a plain model of a known architecture.",
            )
        return _ACTIVATIONS[activation]

    def rope(self, layer_type: str | None = None) -> Rope:
        """The rotary embedding; where the config has one by layer type, that of `layer_type`.

        It lies under its new name (`rope_parameters`) or its old one (`rope_scaling`).
        """
        rope = self._rope_fields(layer_type)
        holder = rope if "rope_theta" in rope else self
        theta = holder.number("rope_theta", 1.0, 1e12, default=10_000.0)
        return Rope(theta, self._rope_scaling(rope))

    def sliding_window(self) -> int | None:
        """Keys a query of a windowed layer sees, None for a model without such layers."""
        if not self.flag("use_sliding_window", True) or "sliding_window" not in self:
            return None
        return self.integer("sliding_window", limits.MAX_CONTEXT_LENGTH)

    def windows(self, is_sliding: Callable[[int], bool]) -> tuple[int | None, ...]:
        """The window of each layer: as `layer_types` says, else where `is_sliding(index)`."""
        window, types = self.sliding_window(), self.raw("layer_types")
        if types is None:
            slides = [is_sliding(index) for index in range(self.num_layers)]
        else:
            slides = [kind == _SLIDING for kind in self._layer_types(types)]
        return tuple(window if slide else None for slide in slides)

    def experts(self, count_field: str, width_field: str, normalize: bool) -> ExpertsConfig:
        """The mixture of experts, its number and their width in these fields."""
        return ExpertsConfig(
            num_experts=self.integer(count_field, limits.MAX_EXPERTS),
            num_experts_per_token=self.integer("num_experts_per_tok", limits.MAX_EXPERTS),
            intermediate_size=self.integer(width_field, limits.MAX_INTERMEDIATE_SIZE),
            normalize=normalize,
        )

    def whole_numbers(self, name: str) -> tuple[int, ...] | None:
        """A list of whole numbers, None when absent."""
        values = self.raw(name)
        if values is None:
            return None
        whole = isinstance(values, list) and all(type(value) is int for value in values)
        if not whole:
            raise self.error(name, "is not a list of whole numbers")
        return tuple(values)

    def _layer_types(self, types: Any) -> list[str]:
        known = isinstance(types, list) and all(kind in (_SLIDING, _FULL) for kind in types)
        if not known or len(types) < self.num_layers:
            raise self.error("layer_types", f"does not say {_SLIDING} or {_FULL} of every layer")
        return list(types[: self.num_layers])

    def _head_dim(self, hidden_size: int, num_heads: int) -> int:
        if "head_dim" in self:
            return self.integer("head_dim", limits.MAX_HEAD_DIM)
        return divided_head_dim(hidden_size, num_heads, self._path)

    def _rotary_dim(self, head_dim: int) -> int | None:
        for holder in (self._rope_fields(None), self):
            share = holder.number("partial_rotary_factor", 0.0, 1.0, default=1.0)
            if share != 1.0:
                return int(head_dim * share)
        return None

    def _rope_fields(self, layer_type: str | None) -> Fields:
        name = "rope_parameters" if "rope_parameters" in self else "rope_scaling"
        value = self.raw(name)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.error(name, "is not an object")
        by_type = value.get(layer_type or _FULL)
        return Fields(by_type if isinstance(by_type, dict) else value, self._path)

    def _rope_scaling(self, rope: Fields) -> RopeScaling | None:
        kind = rope.text("rope_type", default=rope.text("type", default="default"))
        if kind == "default":
            return None
        if kind == "linear":
            return RopeScaling(type="linear", factor=rope.number("factor", 0.0, 1e6))
        if kind == "llama3":
            return _llama3(rope)
        if kind == "yarn":
            return _yarn(rope, self.context_length)
        if kind in ("longrope", "su"):
            return self._longrope(rope)
        raise unsupported(
            f"RoPE scaling {kind[:40]!r}",
            "Known kinds: linear, llama3, yarn, longrope.",
            "Choose another version of the model.",
        )

    def _longrope(self, rope: Fields) -> RopeScaling:
        name = "original_max_position_embeddings"
        holder = rope if name in rope else self
        original = holder.integer(name, limits.MAX_CONTEXT_LENGTH, default=self.context_length)
        return RopeScaling(
            type="longrope",
            factor=rope.number("factor", 0.0, 1e6, default=self.context_length / original),
            original_context_length=original,
            attention_factor=rope.optional_number("attention_factor", 0.0, 1e6),
            frequency_factors=_factors(rope, "short_factor"),
            long_frequency_factors=_factors(rope, "long_factor"),
        )


def _llama3(rope: Fields) -> RopeScaling:
    low = rope.number("low_freq_factor", 0.0, 1e6)
    high = rope.number("high_freq_factor", 0.0, 1e6)
    if high <= low:
        raise rope.error("high_freq_factor", "is not above low_freq_factor")
    return RopeScaling(
        type="llama3",
        factor=rope.number("factor", 0.0, 1e6),
        original_context_length=rope.integer(
            "original_max_position_embeddings", limits.MAX_CONTEXT_LENGTH
        ),
        low_freq_factor=low,
        high_freq_factor=high,
    )


def _yarn(rope: Fields, context_length: int) -> RopeScaling:
    original = rope.integer(
        "original_max_position_embeddings", limits.MAX_CONTEXT_LENGTH, default=context_length
    )
    return RopeScaling(
        type="yarn",
        factor=rope.number("factor", 0.0, 1e6, default=context_length / original),
        original_context_length=original,
        beta_fast=rope.number("beta_fast", 0.0, 1e6, default=32.0),
        beta_slow=rope.number("beta_slow", 0.0, 1e6, default=1.0),
        attention_factor=rope.optional_number("attention_factor", 0.0, 1e6),
        mscale=rope.optional_number("mscale", 0.0, 1e6),
        mscale_all_dim=rope.optional_number("mscale_all_dim", 0.0, 1e6),
        truncate=rope.flag("truncate", True),
    )


def _factors(rope: Fields, name: str) -> tuple[float, ...]:
    values = rope.raw(name)
    numbers = isinstance(values, list) and all(
        isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e6
        for value in values
    )
    if not numbers:
        raise rope.error(name, "is not a list of positive numbers")
    return tuple(float(value) for value in values)


def require_config(folder: Path) -> Path:
    """Path of the folder's config.json. Raises CheckpointError when there is none."""
    path = folder / "config.json"
    if not path.exists():
        raise bad_file(
            folder,
            "It has no config.json, which says what the model is.",
            "Choose a folder downloaded as a whole, or a GGUF file.",
        )
    return path
