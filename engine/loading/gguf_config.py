"""GGUF metadata to ModelConfig, vocabulary and end tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.loading import model_config as limits
from engine.loading.files import CheckpointError, Fields, bad_file, unsupported
from engine.loading.generation_defaults import token_ids
from engine.loading.gguf_tokenizer import GgufVocabulary
from engine.loading.model_config import (
    ExpertsConfig,
    LayerConfig,
    ModelConfig,
    Rope,
    RopeScaling,
    divided_head_dim,
)
from engine.loading.tensors import TensorInfo

_EOS_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


@dataclass(frozen=True, slots=True)
class RopeFactors:
    """What divides RoPE's inverse frequencies: `rope_freqs`, `rope_factors_short` and `_long`."""

    plain: tuple[float, ...] | None = None
    short: tuple[float, ...] | None = None
    long: tuple[float, ...] | None = None


def gguf_architecture(metadata: Mapping[str, Any], path: Path) -> str:
    """The architecture's name. Raises CheckpointError, also for a part of a split model."""
    architecture = Fields(metadata, path).text("general.architecture")
    if Fields(metadata, path).raw("split.count") not in (None, 0, 1):
        raise unsupported(
            path.name,
            "It is one part of a model split into several GGUF files.",
            "Merge the parts with llama.cpp's gguf-split, or choose a single file.",
        )
    return architecture


class GgufConfig(Fields):
    """The metadata of one GGUF model. Methods raise CheckpointError by field.

    `tensors` are by canonical name: what the metadata leaves out follows from their shapes.
    """

    def __init__(
        self,
        metadata: Mapping[str, Any],
        tensors: Mapping[str, TensorInfo],
        factors: RopeFactors,
        path: Path,
    ) -> None:
        super().__init__(metadata, path, prefix=f"{gguf_architecture(metadata, path)}.")
        self._path = path
        self._factors = factors
        self.tensors = tensors

    def decoder(self, architecture: str) -> ModelConfig:
        """The model as far as all families agree: Llama with these sizes."""
        hidden_size = self.integer("embedding_length", limits.MAX_HIDDEN_SIZE)
        num_heads = self.integer("attention.head_count", limits.MAX_HEADS)
        head_dim = self._head_dim(hidden_size, num_heads)
        rotary_dim = self.integer("rope.dimension_count", limits.MAX_HEAD_DIM, default=head_dim)
        layer = "model.layers.0."
        return ModelConfig(
            architecture=architecture,
            vocab_size=_vocab_size(self.tensors, self._path),
            hidden_size=hidden_size,
            intermediate_size=self.integer("feed_forward_length", limits.MAX_INTERMEDIATE_SIZE),
            num_heads=num_heads,
            num_kv_heads=self.integer(
                "attention.head_count_kv", limits.MAX_HEADS, default=num_heads
            ),
            head_dim=head_dim,
            rms_norm_eps=self.number("attention.layer_norm_rms_epsilon", 0.0, 0.1),
            layers=(LayerConfig(self.rope()),) * self.num_layers,
            context_length=self.context_length,
            tie_word_embeddings="lm_head.weight" not in self.tensors,
            attention_bias=self._has_bias(layer + "self_attn.q_proj", layer + "self_attn.qkv_proj"),
            attention_output_bias=self._has_bias(layer + "self_attn.o_proj"),
            mlp_bias=self._has_bias(layer + "mlp.up_proj", layer + "mlp.gate_up_proj"),
            rotary_dim=None if rotary_dim == head_dim else rotary_dim,
        )

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return self.integer("block_count", limits.MAX_LAYERS)

    @property
    def context_length(self) -> int:
        """Tokens the model was made for."""
        return self.integer("context_length", limits.MAX_CONTEXT_LENGTH)

    def rope(self) -> Rope:
        """The rotary embedding of layers that see everything."""
        return Rope(self.number("rope.freq_base", 1.0, 1e12, default=10_000.0), self._scaling())

    def sliding_window(self) -> int | None:
        """Keys a query of a windowed layer sees; None where the file names none."""
        if self.raw("attention.sliding_window") in (None, 0):
            return None
        return self.integer("attention.sliding_window", limits.MAX_CONTEXT_LENGTH)

    def windows(self, is_sliding: Callable[[int], bool]) -> tuple[int | None, ...]:
        """The window of each layer: as the file's pattern says, else where `is_sliding(index)`."""
        window, pattern = self.sliding_window(), self.raw("attention.sliding_window_pattern")
        count = self.num_layers
        slides = [is_sliding(index) for index in range(count)]
        if isinstance(pattern, list):
            if len(pattern) != count:
                raise self.error("attention.sliding_window_pattern", "does not fit the layers")
            slides = [bool(slide) for slide in pattern]
        elif pattern is not None:  # every n-th layer sees everything
            period = self.integer("attention.sliding_window_pattern", limits.MAX_LAYERS)
            slides = [(index + 1) % period != 0 for index in range(count)]
        return tuple(window if slide else None for slide in slides)

    def experts(self, width_field: str) -> ExpertsConfig | None:
        """The mixture of experts, None for a dense model; llama.cpp always normalizes."""
        if self.raw("expert_count") in (None, 0):
            return None
        return ExpertsConfig(
            num_experts=self.integer("expert_count", limits.MAX_EXPERTS),
            num_experts_per_token=self.integer("expert_used_count", limits.MAX_EXPERTS),
            intermediate_size=self.integer(width_field, limits.MAX_INTERMEDIATE_SIZE),
            normalize=True,
        )

    def _has_bias(self, *names: str) -> bool:
        return any(f"{name}.bias" in self.tensors for name in names)

    def _head_dim(self, hidden_size: int, num_heads: int) -> int:
        if "attention.key_length" in self:
            head_dim = self.integer("attention.key_length", limits.MAX_HEAD_DIM)
        else:
            head_dim = divided_head_dim(hidden_size, num_heads, self._path)
        value_dim = self.integer("attention.value_length", limits.MAX_HEAD_DIM, default=head_dim)
        if value_dim != head_dim:
            raise unsupported(
                self._path.name,
                f"Its head sizes differ: keys {head_dim}, values {value_dim}.",
                "Choose a model with one head size.",
            )
        return head_dim

    def _scaling(self) -> RopeScaling | None:
        if self._factors.plain is not None:
            return RopeScaling(type="llama3", frequency_factors=self._factors.plain)
        if self._factors.long is not None:
            return self._longrope()
        kind = self.text("rope.scaling.type", default="none")
        if "rope.scale_linear" in self:  # the spelling before 2023-12
            factor = self.number("rope.scale_linear", 0.0, 1e6)
            return RopeScaling(type="linear", factor=factor) if factor != 1.0 else None
        if kind == "none":
            return None
        factor = self.number("rope.scaling.factor", 0.0, 1e6)
        if kind == "linear":
            return RopeScaling(type="linear", factor=factor)
        if kind == "yarn":
            return self._yarn(factor)
        raise unsupported(
            f"RoPE scaling {kind[:40]!r}",
            "Known kinds: linear, llama3, yarn, longrope.",
            "Choose another version of the model.",
        )

    def _yarn(self, factor: float) -> RopeScaling:
        return RopeScaling(
            type="yarn",
            factor=factor,
            original_context_length=self.integer(
                "rope.scaling.original_context_length", limits.MAX_CONTEXT_LENGTH
            ),
            beta_fast=self.number("rope.scaling.yarn_beta_fast", 0.0, 1e6, default=32.0),
            beta_slow=self.number("rope.scaling.yarn_beta_slow", 0.0, 1e6, default=1.0),
            attention_factor=self._yarn_attention_factor(factor),
        )

    def _yarn_attention_factor(self, factor: float) -> float:
        """llama.cpp multiplies the file's factor into YaRN's own, 0.1 ln(s) + 1."""
        multiplier = self.number("rope.scaling.attn_factor", 0.0, 1e6, default=1.0)
        return multiplier * (0.1 * math.log(max(factor, 1.0)) + 1.0)

    def _longrope(self) -> RopeScaling:
        if self._factors.short is None:
            raise bad_file(self._path, "It has long RoPE factors but no short ones.")
        return RopeScaling(
            type="longrope",
            original_context_length=self.integer(
                "rope.scaling.original_context_length", limits.MAX_CONTEXT_LENGTH
            ),
            attention_factor=self.number("rope.scaling.attn_factor", 0.0, 1e6, default=1.0),
            frequency_factors=self._factors.short,
            long_frequency_factors=self._factors.long,
        )


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
