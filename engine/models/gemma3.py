"""Gemma 3's text model (arXiv 2503.19786): five windowed layers for one that sees everything.

Windowed layers have a RoPE base of their own; queries and keys are normed head by head.
"""

from __future__ import annotations

from dataclasses import replace

from engine.loading.gguf_config import GgufConfig
from engine.loading.hf_config import HfConfig
from engine.loading.model_config import MAX_LAYERS, ModelConfig, Rope
from engine.models.architecture import Architecture, with_windows
from engine.models.gemma2 import GGUF_NORMS, as_gemma, gguf_attention_scale

_PERIOD = 6
_LOCAL_THETA = 10_000.0
_LAYERS_OF_27B = 62


def from_hf(config: HfConfig) -> ModelConfig:
    """The sixth, the twelfth ... layer sees everything, unless `layer_types` says otherwise."""
    period = config.integer("sliding_window_pattern", MAX_LAYERS, default=_PERIOD)
    model = config.decoder("gemma3")
    model = with_windows(model, config.windows(lambda index: (index + 1) % period != 0))
    return replace(
        as_gemma(_with_local_rope(model, _local_rope(config))),
        norm_offset=1.0,
        qk_norm="head",
        hidden_act=config.hidden_act("hidden_activation"),
        attention_scale=config.number("query_pre_attn_scalar", 1e-6, 1e9) ** -0.5,
        attention_softcap=config.optional_number("attn_logit_softcapping", 1e-6, 1e9) or 0.0,
        logits_softcap=config.optional_number("final_logit_softcapping", 1e-6, 1e9) or 0.0,
    )


def from_gguf(config: GgufConfig) -> ModelConfig:
    """The file lacks the attention's scale and, in older ones, the local base."""
    model = config.decoder("gemma3")
    model = with_windows(model, config.windows(lambda index: (index + 1) % _PERIOD != 0))
    local = config.number("rope.freq_base_swa", 1.0, 1e12, default=_LOCAL_THETA)
    return replace(
        as_gemma(_with_local_rope(model, Rope(local))),
        qk_norm="head",
        attention_scale=gguf_attention_scale(model, _LAYERS_OF_27B),
        logits_softcap=config.optional_number("final_logit_softcapping", 1e-6, 1e9) or 0.0,
    )


def _local_rope(config: HfConfig) -> Rope:
    """Of windowed layers: by layer type in new configs, a base alone in old ones."""
    if "rope_parameters" in config:
        return config.rope("sliding_attention")
    return Rope(config.number("rope_local_base_freq", 1.0, 1e12, default=_LOCAL_THETA))


def _with_local_rope(model: ModelConfig, local: Rope) -> ModelConfig:
    layers = tuple(
        layer if layer.window is None else replace(layer, rope=local) for layer in model.layers
    )
    return replace(model, layers=layers)


GEMMA3 = Architecture(
    name="gemma3",
    hf_names=("gemma3_text", "gemma3"),
    from_hf=from_hf,
    hf_defaults={
        "vocab_size": 262_208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": 131_072,
        "tie_word_embeddings": True,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "rope_theta": 1e6,
    },
    gguf_name="gemma3",
    from_gguf=from_gguf,
    gguf_tensors=GGUF_NORMS,
)
