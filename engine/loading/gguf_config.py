"""GGUF metadata to ModelConfig, vocabulary and end tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.loading import model_config as limits
from engine.loading.files import CheckpointError, Fields, bad_file, unsupported
from engine.loading.generation_defaults import token_ids
from engine.loading.gguf_tokenizer import GgufVocabulary
from engine.loading.model_config import (
    ModelConfig,
    RopeScaling,
    divided_head_dim,
    require_consistent,
    require_known,
)
from engine.loading.tensors import TensorInfo

_EOS_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


def gguf_architecture(metadata: Mapping[str, Any], path: Path) -> str:
    """The architecture's name, one this program knows. Raises CheckpointError."""
    architecture = Fields(metadata, path).text("general.architecture")
    require_known(architecture)
    if Fields(metadata, path).raw("split.count") not in (None, 0, 1):
        raise unsupported(
            path.name,
            "It is one part of a model split into several GGUF files.",
            "Merge the parts with llama.cpp's gguf-split, or choose a single file.",
        )
    return architecture


def gguf_model_config(
    metadata: Mapping[str, Any],
    tensors: Mapping[str, TensorInfo],
    frequency_factors: tuple[float, ...] | None,
    path: Path,
) -> ModelConfig:
    """The architecture of a GGUF file. `tensors` are by canonical name. Raises CheckpointError."""
    architecture = gguf_architecture(metadata, path)
    fields = Fields(metadata, path, prefix=f"{architecture}.")
    if fields.raw("expert_count"):
        raise unsupported("A mixture of experts", "The model is one.", "Choose a dense model.")
    hidden_size = fields.integer("embedding_length", limits.MAX_HIDDEN_SIZE)
    num_heads = fields.integer("attention.head_count", limits.MAX_HEADS)
    config = ModelConfig(
        architecture=architecture,
        vocab_size=_vocab_size(tensors, path),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("feed_forward_length", limits.MAX_INTERMEDIATE_SIZE),
        num_layers=fields.integer("block_count", limits.MAX_LAYERS),
        num_heads=num_heads,
        num_kv_heads=fields.integer("attention.head_count_kv", limits.MAX_HEADS, default=num_heads),
        head_dim=_head_dim(fields, hidden_size, num_heads, path),
        rms_norm_eps=fields.number("attention.layer_norm_rms_epsilon", 0.0, 0.1),
        rope_theta=fields.number("rope.freq_base", 1.0, 1e12, default=10_000.0),
        rope_scaling=_rope_scaling(fields, frequency_factors),
        context_length=fields.integer("context_length", limits.MAX_CONTEXT_LENGTH),
        tie_word_embeddings="lm_head.weight" not in tensors,
        attention_bias="model.layers.0.self_attn.q_proj.bias" in tensors,
        attention_output_bias="model.layers.0.self_attn.o_proj.bias" in tensors,
        mlp_bias="model.layers.0.mlp.up_proj.bias" in tensors,
    )
    require_consistent(config, path)
    if frequency_factors is not None and len(frequency_factors) * 2 != config.head_dim:
        raise bad_file(path, f"Its {len(frequency_factors)} RoPE factors do not fit its heads.")
    return config


def gguf_vocabulary(metadata: Mapping[str, Any], path: Path) -> GgufVocabulary:
    """The tokenizer's tables. Raises CheckpointError when they are missing or disagree."""
    fields = Fields(metadata, path, prefix="tokenizer.ggml.")
    tokens = _list_of(fields, "tokens", str)
    if not tokens:
        raise fields.error("tokens", "is missing")
    types = _list_of(fields, "token_type", int) or [1] * len(tokens)
    scores = _list_of(fields, "scores", float) or [0.0] * len(tokens)
    if not len(tokens) == len(types) == len(scores):
        raise bad_file(path, "Its lists of tokens, token types and scores differ in length.")

    def token_id(name: str) -> int | None:
        value = fields.raw(name)
        valid = isinstance(value, int) and not isinstance(value, bool)
        return value if valid and 0 <= value < len(tokens) else None

    def optional_flag(name: str) -> bool | None:
        return fields.flag(name, False) if name in fields else None

    return GgufVocabulary(
        model=fields.text("model"),
        pre_tokenizer=fields.text("pre", default="default"),
        tokens=tuple(tokens),
        token_types=tuple(types),
        scores=tuple(scores),
        merges=tuple(_list_of(fields, "merges", str)),
        bos_token_id=token_id("bos_token_id"),
        eos_token_id=token_id("eos_token_id"),
        unknown_token_id=token_id("unknown_token_id"),
        add_bos=optional_flag("add_bos_token"),
        add_eos=fields.flag("add_eos_token", False),
        add_space_prefix=fields.flag("add_space_prefix", True),
    )


def gguf_eos_token_ids(metadata: Mapping[str, Any]) -> frozenset[int]:
    """Every end token the metadata names: of the text, of the turn, of a message."""
    named = (token_ids(metadata.get(f"tokenizer.ggml.{key}")) for key in _EOS_KEYS)
    return frozenset().union(*named)


def _vocab_size(tensors: Mapping[str, TensorInfo], path: Path) -> int:
    """Rows of the embedding; the metadata often omits the figure."""
    embedding = tensors.get("model.embed_tokens.weight")
    if embedding is None:
        raise limits.missing_tensors_error(path, ["token_embd.weight"])
    if embedding.shape[0] > limits.MAX_VOCAB_SIZE:
        raise bad_file(path, f"Its embedding has {embedding.shape[0]:,} rows.")
    return embedding.shape[0]


def _head_dim(fields: Fields, hidden_size: int, num_heads: int, path: Path) -> int:
    if "attention.key_length" in fields:
        head_dim = fields.integer("attention.key_length", limits.MAX_HEAD_DIM)
    else:
        head_dim = divided_head_dim(hidden_size, num_heads, path)
    value_dim = fields.integer("attention.value_length", limits.MAX_HEAD_DIM, default=head_dim)
    rotary_dim = fields.integer("rope.dimension_count", limits.MAX_HEAD_DIM, default=head_dim)
    if value_dim != head_dim or rotary_dim != head_dim:
        raise unsupported(
            path.name,
            f"Its head sizes differ: keys {head_dim}, values {value_dim}, RoPE {rotary_dim}.",
            "Choose a model with one head size.",
        )
    return head_dim


def _rope_scaling(
    fields: Fields, frequency_factors: tuple[float, ...] | None
) -> RopeScaling | None:
    if frequency_factors is not None:
        return RopeScaling(type="llama3", frequency_factors=frequency_factors)
    scaling_type = fields.text("rope.scaling.type", default="none")
    if "rope.scale_linear" in fields:  # the spelling before 2023-12
        factor = fields.number("rope.scale_linear", 0.0, 1e6)
        return RopeScaling(type="linear", factor=factor) if factor != 1.0 else None
    if scaling_type == "none":
        return None
    factor = fields.number("rope.scaling.factor", 0.0, 1e6)
    if scaling_type == "linear":
        return RopeScaling(type="linear", factor=factor)
    if scaling_type != "yarn":
        raise unsupported(
            f"RoPE scaling {scaling_type[:40]!r}",
            "Known kinds: linear, llama3, yarn.",
            "Choose another version of the model.",
        )
    return RopeScaling(
        type="yarn",
        factor=factor,
        original_context_length=fields.integer(
            "rope.scaling.original_context_length", limits.MAX_CONTEXT_LENGTH
        ),
        beta_fast=fields.number("rope.scaling.yarn_beta_fast", 0.0, 1e6, default=32.0),
        beta_slow=fields.number("rope.scaling.yarn_beta_slow", 0.0, 1e6, default=1.0),
        attention_factor=_yarn_attention_factor(fields, factor),
    )


def _yarn_attention_factor(fields: Fields, factor: float) -> float:
    """llama.cpp multiplies the file's factor into YaRN's own, 0.1 ln(s) + 1."""
    multiplier = fields.number("rope.scaling.attn_factor", 0.0, 1e6, default=1.0)
    return multiplier * (0.1 * math.log(max(factor, 1.0)) + 1.0)


def _list_of(fields: Fields, name: str, item: type) -> list[Any]:
    """An array of one type, empty when absent. GGUF arrays hold a single type throughout."""
    values = fields.raw(name)
    if values is None:
        return []
    if not isinstance(values, list) or (values and type(values[0]) is not item):
        raise _not_a_list(fields, name, item)
    return values


def _not_a_list(fields: Fields, name: str, item: type) -> CheckpointError:
    return fields.error(name, f"is not a list of {item.__name__} values")
