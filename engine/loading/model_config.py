"""What a checkpoint says about its architecture, in one vocabulary for both file formats.

Every field's default is what Llama does; the files in engine/models/ say where a family differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.loading.files import CheckpointError, bad_file

# Bounds beyond which a header is taken for broken; about 16 times what exists today.
MAX_HIDDEN_SIZE = 2**20
MAX_INTERMEDIATE_SIZE = 2**22
MAX_VOCAB_SIZE = 2**24
MAX_LAYERS = 4096
MAX_HEADS = 4096
MAX_HEAD_DIM = 4096
MAX_CONTEXT_LENGTH = 2**28
MAX_EXPERTS = 2**12
MAX_EXPERTS_OF_ALL_LAYERS = 2**18

RopeType = Literal["linear", "llama3", "yarn", "longrope"]
HiddenAct = Literal["silu", "gelu_tanh"]
NormPlacement = Literal["before", "after", "around"]
QkNorm = Literal["head", "all_heads"]


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How RoPE is stretched beyond the context that the model was trained on.

    `frequency_factors` [rotary_dim / 2] divide the inverse frequencies: GGUF's form of llama3, and
    longrope's factors (arXiv 2402.13753) for contexts up to the original one;
    `long_frequency_factors` are those for longer ones. `attention_factor`, `mscale` and
    `mscale_all_dim` are YaRN's (arXiv 2309.00071) and None when the file is silent.
    """

    type: RopeType
    factor: float = 1.0
    original_context_length: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    frequency_factors: tuple[float, ...] | None = None
    long_frequency_factors: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Rope:
    """A rotary embedding: `theta` is the base of its wavelengths."""

    theta: float
    scaling: RopeScaling | None = None


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """What may differ from layer to layer.

    `rope` None: the layer knows no positions (NoPE). `window`: keys that a query sees, its own
    included; None: all up to its own. `is_sparse`: a mixture of experts instead of one MLP.
    """

    rope: Rope | None
    window: int | None = None
    is_sparse: bool = False


@dataclass(frozen=True, slots=True)
class ExpertsConfig:
    """The mixture of experts of sparse layers.

    Each token goes to the `num_experts_per_token` experts of the largest router probability, which
    weigh the experts' outputs; `normalize` makes these weights add up to 1.
    """

    num_experts: int
    num_experts_per_token: int
    intermediate_size: int
    normalize: bool


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The architecture of a model.

    `attention_bias` is that of q, k and v. `rotary_dim` None: RoPE turns the whole head.
    `qk_norm`: RMSNorm of queries and keys, of each head or over all heads together.
    `fused_projections`: q, k and v are one matrix in the file, and so are gate and up.
    `norms`: where a layer's RMSNorms stand; `norm_offset` is added to their weights.
    `attention_scale` None: head_dim ** -0.5. A soft-cap c makes x to c * tanh(x / c); 0: none.
    `embedding_scale` multiplies embeddings, `logits_scale` logits.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    layers: tuple[LayerConfig, ...]
    context_length: int
    tie_word_embeddings: bool
    attention_bias: bool = False
    attention_output_bias: bool = False
    mlp_bias: bool = False
    hidden_act: HiddenAct = "silu"
    rotary_dim: int | None = None
    qk_norm: QkNorm | None = None
    fused_projections: bool = False
    norms: NormPlacement = "before"
    norm_offset: float = 0.0
    attention_scale: float | None = None
    attention_softcap: float = 0.0
    logits_softcap: float = 0.0
    embedding_scale: float = 1.0
    logits_scale: float = 1.0
    experts: ExpertsConfig | None = None

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return len(self.layers)

    @property
    def norm_names(self) -> tuple[str | None, str | None, str | None, str | None]:
        """A layer's norms: before and after its attention, before and after its MLP."""
        return _NORM_NAMES[self.norms]


_NORM_NAMES: dict[NormPlacement, tuple[str | None, str | None, str | None, str | None]] = {
    "before": ("input_layernorm", None, "post_attention_layernorm", None),
    "after": (None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
    "around": (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
}


def require_consistent(config: ModelConfig, path: Path) -> None:
    """Raise CheckpointError when fields contradict each other."""
    if config.num_heads % config.num_kv_heads:
        raise bad_file(
            path,
            f"{config.num_heads} attention heads cannot share {config.num_kv_heads} key and "
            "value heads evenly.",
        )
    rotary_dim = config.rotary_dim or config.head_dim
    if rotary_dim % 2 or rotary_dim > config.head_dim:
        raise bad_file(
            path,
            f"RoPE over {rotary_dim} of {config.head_dim} dimensions is not possible; it needs "
            "pairs.",
        )
    experts = config.experts
    if experts is not None and experts.num_experts_per_token > experts.num_experts:
        raise bad_file(
            path,
            f"A token cannot go to {experts.num_experts_per_token} of {experts.num_experts} "
            "experts.",
        )
    if experts is not None and experts.num_experts * config.num_layers > MAX_EXPERTS_OF_ALL_LAYERS:
        raise bad_file(
            path, f"{config.num_layers:,} layers of {experts.num_experts:,} experts are too many."
        )
    for layer in config.layers:
        _require_fitting_factors(layer.rope, rotary_dim, path)


def _require_fitting_factors(rope: Rope | None, rotary_dim: int, path: Path) -> None:
    scaling = rope.scaling if rope is not None else None
    if scaling is None:
        return
    for factors in (scaling.frequency_factors, scaling.long_frequency_factors):
        if factors is not None and 2 * len(factors) != rotary_dim:
            raise bad_file(
                path, f"Its {len(factors)} RoPE factors do not fit {rotary_dim} dimensions."
            )


def divided_head_dim(hidden_size: int, num_heads: int, path: Path) -> int:
    """The head size where no field states it. Raises CheckpointError when it is not whole."""
    if hidden_size % num_heads:
        raise bad_file(
            path, f"The hidden size {hidden_size} is not a multiple of {num_heads} heads."
        )
    return hidden_size // num_heads


def layers_by_window(config: ModelConfig) -> dict[int | None, list[int]]:
    """Which layers look equally far; a window of the whole context leaves nothing out: None."""
    layers: dict[int | None, list[int]] = {}
    for index, layer in enumerate(config.layers):
        window = layer.window
        if window is not None and window >= config.context_length:
            window = None
        layers.setdefault(window, []).append(index)
    return layers


def expected_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor the architecture uses, by Hugging Face name: shape in torch order."""
    hidden, vocab = config.hidden_size, config.vocab_size
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden)}
    for index, layer in enumerate(config.layers):
        parts = _attention_tensors(config) | _norm_tensors(config)
        parts |= _expert_tensors(config) if layer.is_sparse else _mlp_tensors(config)
        for name, shape in parts.items():
            shapes[f"model.layers.{index}.{name}"] = shape
    shapes["model.norm.weight"] = (hidden,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (vocab, hidden)
    return shapes


def _attention_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden = config.hidden_size
    queries = config.num_heads * config.head_dim
    keys = config.num_kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {}
    if config.fused_projections:
        shapes |= _matrix("self_attn.qkv_proj", queries + 2 * keys, hidden, config.attention_bias)
    else:
        for name, num_out in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
            shapes |= _matrix(f"self_attn.{name}", num_out, hidden, config.attention_bias)
    shapes |= _matrix("self_attn.o_proj", hidden, queries, config.attention_output_bias)
    if config.qk_norm is not None:
        whole = config.qk_norm == "all_heads"
        shapes["self_attn.q_norm.weight"] = (queries if whole else config.head_dim,)
        shapes["self_attn.k_norm.weight"] = (keys if whole else config.head_dim,)
    return shapes


def _norm_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (config.hidden_size,) for name in config.norm_names if name}


def _mlp_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    if config.fused_projections:
        shapes = _matrix("mlp.gate_up_proj", 2 * inner, hidden, config.mlp_bias)
    else:
        shapes = _matrix("mlp.gate_proj", inner, hidden, config.mlp_bias)
        shapes |= _matrix("mlp.up_proj", inner, hidden, config.mlp_bias)
    return shapes | _matrix("mlp.down_proj", hidden, inner, config.mlp_bias)


def _expert_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    assert config.experts is not None, "a sparse layer has experts"
    hidden, inner = config.hidden_size, config.experts.intermediate_size
    shapes = _matrix("mlp.gate", config.experts.num_experts, hidden, False)
    for expert in range(config.experts.num_experts):
        prefix = f"mlp.experts.{expert}."
        shapes |= _matrix(prefix + "gate_proj", inner, hidden, False)
        shapes |= _matrix(prefix + "up_proj", inner, hidden, False)
        shapes |= _matrix(prefix + "down_proj", hidden, inner, False)
    return shapes


def _matrix(name: str, num_out: int, num_in: int, has_bias: bool) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {f"{name}.weight": (num_out, num_in)}
    if has_bias:
        shapes[f"{name}.bias"] = (num_out,)
    return shapes


def missing_tensors_error(path: Path, missing: list[str]) -> CheckpointError:
    """The error for a checkpoint without all of its weights."""
    more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
    hint = "A file of the model is incomplete or belongs to another one. Download it again."
    if missing == ["lm_head.weight"]:
        hint = "If the model shares embedding and head, its config must say tie_word_embeddings."
    return bad_file(path, f"The tensor {missing[0]}{more} is missing.", hint)
