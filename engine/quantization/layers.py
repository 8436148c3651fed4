"""One decoder layer quantized: which matrices there are, what feeds what, method by method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from engine.loading.model_config import ModelConfig
from engine.quantization.awq import clip, search_scale
from engine.quantization.gptq import gptq
from engine.quantization.grid import QuantizedMatrix, rtn
from engine.quantization.observation import InputStatistics
from engine.quantization.plan import QuantizePlan
from engine.session import EngineError

Weights = dict[str, torch.Tensor]  # FP32, by the name within the layer, e.g. `mlp.up_proj.weight`

# Softmax makes products of queries and keys sensitive: AWQ does not clip them.
_UNCLIPPED = ("self_attn.q_proj", "self_attn.k_proj")


@dataclass(frozen=True, slots=True)
class Fold:
    """Inputs of `consumers` can be scaled by dividing what `producer` gives, a norm or product."""

    producer: str
    consumers: tuple[str, ...]


# Norms before their products, values before the output, and a gated feed-forward.
PRE_NORM_FOLDS = (
    Fold("input_layernorm", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
    Fold("self_attn.v_proj", ("self_attn.o_proj",)),
    Fold("post_attention_layernorm", ("mlp.gate_proj", "mlp.up_proj")),
    Fold("mlp.up_proj", ("mlp.down_proj",)),
)


def matrix_names(shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """The products of a layer, by name without `.weight`, of tensors by shape."""
    return [
        name.removesuffix(".weight")
        for name, shape in shapes.items()
        if len(shape) == 2 and name.endswith(".weight")
    ]


def require_foldable(config: ModelConfig) -> None:
    """Raise EngineError, by name, for a family in which AWQ has nothing to fold scales into."""
    plain = config.norms == "before" and not config.norm_offset and not config.fused_projections
    if not plain:
        raise EngineError(
            f"AWQ is not defined for the architecture {config.architecture!r}.",
            "Its scales are folded into what feeds a product: that takes plain norms before "
            "the products, and products that are stored apart.",
            "Take --method gptq or rtn.",
        )


def quantize_layer(
    weights: Weights,
    statistics: Mapping[str, InputStatistics],
    plan: QuantizePlan,
    stored: torch.dtype,
) -> Iterator[tuple[str, QuantizedMatrix]]:
    """Quantize a layer's products one by one, by name.

    `weights` become what the quantized layer computes with: matrices their dequantized values, and
    under AWQ norms and biases what scales were folded into, rounded to the dtype `stored`.
    `statistics` are of every product's inputs; RTN needs none. Raises EngineError for a product
    without them.
    """
    names = matrix_names({name: tuple(tensor.shape) for name, tensor in weights.items()})
    moments: dict[str, torch.Tensor] = {}
    if plan.method != "rtn":
        moments = {name: _statistics(statistics, name).moment for name in names}
    if plan.method == "awq":
        for fold in PRE_NORM_FOLDS:
            if can_fold(fold, weights):
                scale = _fold_scale(fold, weights, statistics, moments, plan)
                apply_fold(fold, weights, scale)
                for consumer in fold.consumers:
                    moments[consumer] = moments[consumer] / torch.outer(scale, scale)
        for name, tensor in weights.items():
            if tensor.ndim == 1:
                weights[name] = tensor.to(stored).float()
    for name in names:
        matrix = _quantize(weights[f"{name}.weight"], name, moments, plan)
        weights[f"{name}.weight"] = matrix.dequantize()
        yield name, matrix


def can_fold(fold: Fold, weights: Weights) -> bool:
    """Whether each output of the producer is one input of the consumers.

    Values are not where query heads share them.
    """
    producer = weights[f"{fold.producer}.weight"]
    return all(weights[f"{name}.weight"].shape[1] == len(producer) for name in fold.consumers)


def apply_fold(fold: Fold, weights: Weights, scale: torch.Tensor) -> None:
    """Divide the producer's outputs by `scale` FP32 [K] and multiply the consumers' inputs."""
    for part in ("weight", "bias"):
        name = f"{fold.producer}.{part}"
        if name in weights:
            shape = (-1,) + (1,) * (weights[name].ndim - 1)
            weights[name] = weights[name] / scale.view(shape)
    for consumer in fold.consumers:
        weights[f"{consumer}.weight"] = weights[f"{consumer}.weight"] * scale


def _fold_scale(
    fold: Fold,
    weights: Weights,
    statistics: Mapping[str, InputStatistics],
    moments: Mapping[str, torch.Tensor],
    plan: QuantizePlan,
) -> torch.Tensor:
    first = fold.consumers[0]
    consumers = [weights[f"{name}.weight"] for name in fold.consumers]
    magnitude = _statistics(statistics, first).magnitude
    return search_scale(consumers, magnitude, moments[first], plan.grid)


def _quantize(
    weight: torch.Tensor, name: str, moments: Mapping[str, torch.Tensor], plan: QuantizePlan
) -> QuantizedMatrix:
    if plan.method == "gptq":
        return gptq(weight, moments[name], plan.grid, plan.act_order)
    if plan.method == "awq" and name not in _UNCLIPPED:
        weight = clip(weight, moments[name], plan.grid)
    return rtn(weight, plan.grid)


def _statistics(statistics: Mapping[str, InputStatistics], name: str) -> InputStatistics:
    if name not in statistics or not statistics[name].num_tokens:
        raise EngineError(
            f"{name} cannot be calibrated.",
            "The model's layers do not run it as a product of its own, "
            "or no calibration token reached it.",
            "Take --method rtn, which needs no calibration.",
        )
    return statistics[name]
