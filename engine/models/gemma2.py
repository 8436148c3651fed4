"""Gemma 2 (arXiv 2408.00118): norms around attention and MLP, soft-caps, windows.

Norm weights are stored less 1 by Hugging Face and as they are by GGUF.
"""

from __future__ import annotations

import math
from dataclasses import replace

from engine.loading.gguf_config import GgufConfig
from engine.loading.hf_config import HfConfig
from engine.loading.model_config import ModelConfig
from engine.models.architecture import Architecture, with_windows

GGUF_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_LAYERS_OF_27B = 46


def from_hf(config: HfConfig) -> ModelConfig:
    """The first layer is windowed, the second is not, and so on."""
    model = with_windows(config.decoder("gemma2"), config.windows(lambda index: index % 2 == 0))
    return replace(
        as_gemma(model),
        norm_offset=1.0,
        hidden_act=config.hidden_act("hidden_activation"),
        attention_scale=config.number("query_pre_attn_scalar", 1e-6, 1e9) ** -0.5,
        attention_softcap=config.optional_number("attn_logit_softcapping", 1e-6, 1e9) or 0.0,
        logits_softcap=config.optional_number("final_logit_softcapping", 1e-6, 1e9) or 0.0,
    )


def from_gguf(config: GgufConfig) -> ModelConfig:
    """The file lacks the attention's scale, which is that of the head size but for 27B."""
    model = with_windows(config.decoder("gemma2"), config.windows(lambda index: index % 2 == 0))
    return replace(
        as_gemma(model),
        attention_scale=gguf_attention_scale(model, _LAYERS_OF_27B),
        attention_softcap=config.number("attn_logit_softcapping", 1e-6, 1e9, default=50.0),
        logits_softcap=config.number("final_logit_softcapping", 1e-6, 1e9, default=30.0),
    )


def as_gemma(model: ModelConfig) -> ModelConfig:
    """What Gemma 2 and 3 share."""
    return replace(
        model,
        norms="around",
        hidden_act="gelu_tanh",
        embedding_scale=math.sqrt(model.hidden_size),
    )


def gguf_attention_scale(model: ModelConfig, layers_of_27b: int) -> float:
    """As llama.cpp has it: the 27B models, known by their layers, scale by hidden size / heads."""
    if model.num_layers == layers_of_27b:
        return float((model.hidden_size // model.num_heads) ** -0.5)
    return float(model.head_dim**-0.5)


GEMMA2 = Architecture(
    name="gemma2",
    hf_names=("gemma2",),
    from_hf=from_hf,
    hf_defaults={
        "num_key_value_heads": 4,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
    gguf_name="gemma2",
    from_gguf=from_gguf,
    gguf_tensors=GGUF_NORMS,
)
