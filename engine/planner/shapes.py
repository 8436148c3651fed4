"""Shapes of well-known models, so that they can be planned for before anything is downloaded.

`Shape.config` are the fields of the published config.json that sizes follow from; they are read by
the same code as that of a model on disk. No torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    """A model of a family that the engine runs. `repository`: whose config.json it is."""

    name: str
    repository: str
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LatentShape:
    """A model with multi-head latent attention (MLA, arXiv 2405.04434): the engine cannot run it.

    A token keeps in each layer one latent vector of `kv_lora_rank` and one RoPE key, whatever the
    number of heads; `index_head_dim` is the key of the indexer of DeepSeek's sparse attention.
    `packed_layer_bytes`: what fp8_ds_mla takes for both, where the model has that format.
    """

    name: str
    repository: str
    parameters: int
    num_layers: int
    context_length: int = 163_840
    kv_lora_rank: int = 512
    qk_rope_head_dim: int = 64
    index_head_dim: int = 0
    packed_layer_bytes: int | None = None


def _fields(
    hidden_size: int,
    intermediate_size: int,
    layers: int,
    heads: int,
    kv_heads: int,
    vocab_size: int = 32_000,
    context: int = 4_096,
    **more: Any,
) -> dict[str, Any]:
    """The fields that all families share, under their names in config.json."""
    return {
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab_size,
        "max_position_embeddings": context,
        **more,
    }


_FP16: dict[str, Any] = {"torch_dtype": "float16"}
_LLAMA_3: dict[str, Any] = {"vocab_size": 128_256, "context": 131_072}
_MISTRAL: dict[str, Any] = {"context": 32_768, "model_type": "mistral"}
_QWEN_2: dict[str, Any] = {"model_type": "qwen2"}
_QWEN_3: dict[str, Any] = {
    "model_type": "qwen3",
    "head_dim": 128,
    "vocab_size": 151_936,
    "context": 40_960,
}
_GEMMA_2: dict[str, Any] = {
    "model_type": "gemma2",
    "vocab_size": 256_000,
    "context": 8_192,
    "sliding_window": 4_096,
    "tie_word_embeddings": True,
}
_GEMMA_3: dict[str, Any] = {
    "model_type": "gemma3_text",
    "vocab_size": 262_208,
    "context": 131_072,
    "sliding_window": 1_024,
    "sliding_window_pattern": 6,
    "tie_word_embeddings": True,
}
_GEMMA_3_1B = _GEMMA_3 | {"vocab_size": 262_144, "context": 32_768, "sliding_window": 512}
_TIED: dict[str, Any] = {"tie_word_embeddings": True}
# What a layer of DeepSeek-V3.2 keeps in fp8_ds_mla: 512 FP8 numbers, 4 FP32 scales and 64 BF16
# numbers of RoPE; the indexer's key in 128 FP8 numbers and one FP32 scale (vLLM's post of
# 2025-09-29).
_FP8_DS_MLA = (512 + 4 * 4 + 64 * 2) + (128 + 4)

SHAPES: tuple[Shape | LatentShape, ...] = (
    Shape("Llama-2-7B", "meta-llama/Llama-2-7b-hf", _fields(4096, 11008, 32, 32, 32, **_FP16)),
    Shape("Llama-2-13B", "meta-llama/Llama-2-13b-hf", _fields(5120, 13824, 40, 40, 40, **_FP16)),
    Shape("Llama-2-70B", "meta-llama/Llama-2-70b-hf", _fields(8192, 28672, 80, 64, 8, **_FP16)),
    Shape("Llama-3.1-8B", "meta-llama/Llama-3.1-8B", _fields(4096, 14336, 32, 32, 8, **_LLAMA_3)),
    Shape("Llama-3.1-70B", "meta-llama/Llama-3.1-70B", _fields(8192, 28672, 80, 64, 8, **_LLAMA_3)),
    Shape(
        "Llama-3.1-405B",
        "meta-llama/Llama-3.1-405B",
        _fields(16384, 53248, 126, 128, 8, **_LLAMA_3),
    ),
    Shape(
        "Mistral-7B-v0.1",
        "mistralai/Mistral-7B-v0.1",
        _fields(4096, 14336, 32, 32, 8, **_MISTRAL, sliding_window=4_096),
    ),
    Shape(
        "Mistral-7B-v0.3",
        "mistralai/Mistral-7B-v0.3",
        _fields(4096, 14336, 32, 32, 8, 32_768, **_MISTRAL, sliding_window=None),
    ),
    Shape(
        "Qwen2.5-7B",
        "Qwen/Qwen2.5-7B",
        _fields(3584, 18944, 28, 28, 4, 152_064, 131_072, **_QWEN_2),
    ),
    Shape(
        "Qwen2.5-0.5B",
        "Qwen/Qwen2.5-0.5B",
        _fields(896, 4864, 24, 14, 2, 151_936, 32_768, **_QWEN_2, **_TIED),
    ),
    Shape("Qwen3-0.6B", "Qwen/Qwen3-0.6B", _fields(1024, 3072, 28, 16, 8, **_QWEN_3, **_TIED)),
    Shape("Qwen3-8B", "Qwen/Qwen3-8B", _fields(4096, 12288, 36, 32, 8, **_QWEN_3)),
    Shape(
        "SmolLM2-135M",
        "HuggingFaceTB/SmolLM2-135M",
        _fields(576, 1536, 30, 9, 3, 49_152, 8_192, **_TIED),
    ),
    Shape(
        "Gemma-2-2B", "google/gemma-2-2b", _fields(2304, 9216, 26, 8, 4, **_GEMMA_2, head_dim=256)
    ),
    Shape(
        "Gemma-2-9B", "google/gemma-2-9b", _fields(3584, 14336, 42, 16, 8, **_GEMMA_2, head_dim=256)
    ),
    Shape(
        "Gemma-2-27B",
        "google/gemma-2-27b",
        _fields(4608, 36864, 46, 32, 16, **_GEMMA_2, head_dim=128),
    ),
    Shape(
        "Gemma-3-1B",
        "google/gemma-3-1b-pt",
        _fields(1152, 6912, 26, 4, 1, **_GEMMA_3_1B, head_dim=256),
    ),
    Shape(
        "Gemma-3-4B",
        "google/gemma-3-4b-pt",
        _fields(2560, 10240, 34, 8, 4, **_GEMMA_3, head_dim=256),
    ),
    Shape(
        "Gemma-3-12B",
        "google/gemma-3-12b-pt",
        _fields(3840, 15360, 48, 16, 8, **_GEMMA_3, head_dim=256),
    ),
    Shape(
        "Gemma-3-27B",
        "google/gemma-3-27b-pt",
        _fields(5376, 21504, 62, 32, 16, **_GEMMA_3, head_dim=128),
    ),
    LatentShape("DeepSeek-V2-Lite", "deepseek-ai/DeepSeek-V2-Lite", 15_706_484_224, num_layers=27),
    LatentShape("DeepSeek-V3", "deepseek-ai/DeepSeek-V3", 671_026_419_200, num_layers=61),
    LatentShape(
        "DeepSeek-V3.2",
        "deepseek-ai/DeepSeek-V3.2-Exp",
        671_877_944_064,
        num_layers=61,
        index_head_dim=128,
        packed_layer_bytes=_FP8_DS_MLA,
    ),
)


def find_shape(name: str) -> Shape | LatentShape | None:
    """The built-in shape of a name, in whatever case."""
    wanted = name.casefold()
    return next((shape for shape in SHAPES if shape.name.casefold() == wanted), None)
