"""config.json of a Hugging Face folder to ModelConfig."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.loading import model_config as limits
from engine.loading.files import Fields, bad_file, unsupported
from engine.loading.model_config import (
    ModelConfig,
    RopeScaling,
    divided_head_dim,
    require_consistent,
    require_known,
)


def hf_model_config(config: Mapping[str, Any], path: Path) -> ModelConfig:
    """The architecture of a config.json found at `path`. Raises CheckpointError by field."""
    fields = Fields(config, path)
    architecture = fields.text("model_type")
    require_known(architecture)
    _refuse_quantized(fields)
    hidden_size = fields.integer("hidden_size", limits.MAX_HIDDEN_SIZE)
    num_heads = fields.integer("num_attention_heads", limits.MAX_HEADS)
    context_length = fields.integer("max_position_embeddings", limits.MAX_CONTEXT_LENGTH)
    rope = _rope_fields(fields, path)
    attention_bias = fields.flag("attention_bias", False)
    result = ModelConfig(
        architecture=architecture,
        vocab_size=fields.integer("vocab_size", limits.MAX_VOCAB_SIZE),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size", limits.MAX_INTERMEDIATE_SIZE),
        num_layers=fields.integer("num_hidden_layers", limits.MAX_LAYERS),
        num_heads=num_heads,
        num_kv_heads=fields.integer("num_key_value_heads", limits.MAX_HEADS, default=num_heads),
        head_dim=_head_dim(fields, hidden_size, num_heads, path),
        rms_norm_eps=fields.number("rms_norm_eps", 0.0, 0.1, default=1e-6),
        rope_theta=_rope_theta(fields, rope),
        rope_scaling=_rope_scaling(rope, context_length),
        context_length=context_length,
        tie_word_embeddings=fields.flag("tie_word_embeddings", False),
        attention_bias=attention_bias,
        attention_output_bias=attention_bias,
        mlp_bias=fields.flag("mlp_bias", False),
        hidden_act=_hidden_act(fields),
    )
    require_consistent(result, path)
    return result


def _refuse_quantized(fields: Fields) -> None:
    quantization = fields.raw("quantization_config")
    if quantization is None:
        return
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    raise unsupported(
        f"Quantization {str(method)[:40]!r}",
        "Its weights are packed in a way this program cannot read yet.",
        "Choose the unquantized model or a GGUF file of it.",
    )


def _head_dim(fields: Fields, hidden_size: int, num_heads: int, path: Path) -> int:
    if "head_dim" in fields:
        return fields.integer("head_dim", limits.MAX_HEAD_DIM)
    return divided_head_dim(hidden_size, num_heads, path)


def _hidden_act(fields: Fields) -> str:
    activation = fields.text("hidden_act", default="silu")
    if activation not in ("silu", "swish"):  # two names of one function
        raise unsupported(
            f"The activation {activation[:40]!r}",
            "Known activation: silu.",
            "Choose a plain model of a known architecture.",
        )
    return "silu"


def _rope_fields(fields: Fields, path: Path) -> Fields:
    """The RoPE object, under its new name (`rope_parameters`) or its old one (`rope_scaling`)."""
    name = "rope_parameters" if "rope_parameters" in fields else "rope_scaling"
    value = fields.raw(name)
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise fields.error(name, "is not an object")
    rope = Fields(value, path)
    for holder in (fields, rope):
        if holder.number("partial_rotary_factor", 0.0, 1.0, default=1.0) != 1.0:
            raise unsupported(
                "RoPE on a part of each head",
                "Its partial_rotary_factor is not 1.",
                "Choose a plain model of a known architecture.",
            )
    return rope


def _rope_theta(fields: Fields, rope: Fields) -> float:
    holder = rope if "rope_theta" in rope else fields
    return holder.number("rope_theta", 1.0, 1e12, default=10_000.0)


def _rope_scaling(rope: Fields, context_length: int) -> RopeScaling | None:
    kind = rope.text("rope_type", default=rope.text("type", default="default"))
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling(type="linear", factor=rope.number("factor", 0.0, 1e6))
    if kind == "llama3":
        return _llama3(rope)
    if kind == "yarn":
        return _yarn(rope, context_length)
    raise unsupported(
        f"RoPE scaling {kind[:40]!r}",
        "Known kinds: linear, llama3, yarn.",
        "Choose another version of the model.",
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
