"""What a checkpoint says about its architecture, in one vocabulary for both file formats."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.loading.files import CheckpointError, bad_file, unsupported

# Hugging Face's `model_type` and GGUF's `general.architecture`, which agree on these.
KNOWN_ARCHITECTURES = ("llama",)

# Bounds beyond which a header is taken for broken; about 16 times what exists today.
MAX_HIDDEN_SIZE = 2**20
MAX_INTERMEDIATE_SIZE = 2**22
MAX_VOCAB_SIZE = 2**24
MAX_LAYERS = 4096
MAX_HEADS = 4096
MAX_HEAD_DIM = 4096
MAX_CONTEXT_LENGTH = 2**28

RopeType = Literal["linear", "llama3", "yarn"]


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How RoPE is stretched beyond the context that the model was trained on.

    `frequency_factors` [head_dim / 2], where a file brings them (GGUF's `rope_freqs`), divide the
    inverse frequencies and take the place of the other llama3 fields. `attention_factor`,
    `mscale` and `mscale_all_dim` are YaRN's (arXiv 2309.00071) and None when the file is silent.
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


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The architecture of a model. `attention_bias` is that of q, k and v."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    context_length: int
    tie_word_embeddings: bool
    attention_bias: bool = False
    attention_output_bias: bool = False
    mlp_bias: bool = False
    hidden_act: str = "silu"
    sliding_window: int | None = None


def require_known(architecture: str) -> None:
    """Raise CheckpointError, naming the known ones, for an architecture there is no code for."""
    if architecture not in KNOWN_ARCHITECTURES:
        raise unsupported(
            f"The architecture {architecture[:60]!r}",
            f"Known architectures: {', '.join(KNOWN_ARCHITECTURES)}.",
            "Choose a model of a known architecture.",
        )


def require_consistent(config: ModelConfig, path: Path) -> None:
    """Raise CheckpointError when fields contradict each other."""
    if config.num_heads % config.num_kv_heads:
        raise bad_file(
            path,
            f"{config.num_heads} attention heads cannot share {config.num_kv_heads} key and "
            "value heads evenly.",
        )
    if config.head_dim % 2:
        raise bad_file(path, f"The head size {config.head_dim} is odd; RoPE needs pairs.")


def divided_head_dim(hidden_size: int, num_heads: int, path: Path) -> int:
    """The head size where no field states it. Raises CheckpointError when it is not whole."""
    if hidden_size % num_heads:
        raise bad_file(
            path, f"The hidden size {hidden_size} is not a multiple of {num_heads} heads."
        )
    return hidden_size // num_heads


def expected_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor the architecture uses, by Hugging Face name: shape in torch order."""
    hidden, vocab = config.hidden_size, config.vocab_size
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden)}
    for layer in range(config.num_layers):
        for name, shape in _layer_tensors(config).items():
            shapes[f"model.layers.{layer}.{name}"] = shape
    shapes["model.norm.weight"] = (hidden,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (vocab, hidden)
    return shapes


def _layer_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_heads * config.head_dim
    keys = config.num_kv_heads * config.head_dim
    matrices = (
        ("self_attn.q_proj", queries, hidden, config.attention_bias),
        ("self_attn.k_proj", keys, hidden, config.attention_bias),
        ("self_attn.v_proj", keys, hidden, config.attention_bias),
        ("self_attn.o_proj", hidden, queries, config.attention_output_bias),
        ("mlp.gate_proj", inner, hidden, config.mlp_bias),
        ("mlp.up_proj", inner, hidden, config.mlp_bias),
        ("mlp.down_proj", hidden, inner, config.mlp_bias),
    )
    shapes: dict[str, tuple[int, ...]] = {"input_layernorm.weight": (hidden,)}
    for name, num_out, num_in, has_bias in matrices:
        shapes[f"{name}.weight"] = (num_out, num_in)
        if has_bias:
            shapes[f"{name}.bias"] = (num_out,)
    shapes["post_attention_layernorm.weight"] = (hidden,)
    return shapes


def missing_tensors_error(path: Path, missing: list[str]) -> CheckpointError:
    """The error for a checkpoint without all of its weights."""
    more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
    hint = "A file of the model is incomplete or belongs to another one. Download it again."
    if missing == ["lm_head.weight"]:
        hint = "If the model shares embedding and head, its config must say tie_word_embeddings."
    return bad_file(path, f"The tensor {missing[0]}{more} is missing.", hint)
