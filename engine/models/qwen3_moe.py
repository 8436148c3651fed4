"""Qwen3-MoE (arXiv 2505.09388): Qwen3 with a mixture of experts in most or all layers."""

from __future__ import annotations

from dataclasses import replace

from engine.loading.gguf_config import GgufConfig
from engine.loading.hf_config import HfConfig
from engine.loading.model_config import MAX_LAYERS, LayerConfig, ModelConfig
from engine.models.architecture import Architecture, with_experts, with_windows


def from_hf(config: HfConfig) -> ModelConfig:
    """Every `decoder_sparse_step`-th layer has experts, but for those in `mlp_only_layers`."""
    step = config.integer("decoder_sparse_step", MAX_LAYERS)
    dense = config.whole_numbers("mlp_only_layers") or ()
    model = with_windows(config.decoder("qwen3_moe"), config.windows(lambda _: True))

    def with_mlp(index: int, layer: LayerConfig) -> LayerConfig:
        return replace(layer, is_sparse=index not in dense and (index + 1) % step == 0)

    return replace(
        model,
        qk_norm="head",
        layers=tuple(with_mlp(index, layer) for index, layer in enumerate(model.layers)),
        experts=config.experts(
            # transformers 5 writes the name that its other families have.
            "num_local_experts" if "num_local_experts" in config else "num_experts",
            "moe_intermediate_size",
            config.flag("norm_topk_prob", False),
        ),
    )


def from_gguf(config: GgufConfig) -> ModelConfig:
    """Every layer has experts. Raises CheckpointError when the file names none."""
    experts = config.experts("expert_feed_forward_length")
    if experts is None:
        raise config.error("expert_count", "is missing")
    return with_experts(replace(config.decoder("qwen3_moe"), qk_norm="head"), experts)


QWEN3_MOE = Architecture(
    name="qwen3_moe",
    hf_names=("qwen3_moe",),
    from_hf=from_hf,
    hf_defaults={
        "num_key_value_heads": 4,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "decoder_sparse_step": 1,
        "use_sliding_window": False,
        "sliding_window": 4096,
    },
    gguf_name="qwen3moe",
    from_gguf=from_gguf,
)
