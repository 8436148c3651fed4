"""One layer quantized: folds change nothing before rounding, methods rank as they should."""

from __future__ import annotations

import pytest
import torch

from engine.loading.checkpoint import open_checkpoint
from engine.quantization.grid import QuantizedMatrix
from engine.quantization.layer_pass import LayerPass
from engine.quantization.layers import (
    PRE_NORM_FOLDS,
    apply_fold,
    can_fold,
    matrix_names,
    quantize_layer,
    require_foldable,
)
from engine.quantization.plan import GridSpec, Method, QuantizePlan
from engine.session import EngineError
from kernels.recording import CancelCell
from kernels.select import select_kernels
from tests.engine.quantization.test_layer_pass import layer_weights
from tests.engine.rig import CPU, GOLDEN

SAMPLES = [range(60), range(60, 128)]


def run_layer(weights: dict[str, torch.Tensor], case: str) -> torch.Tensor:
    """What layer 0 of a case makes of fixed states when it has these weights."""
    checkpoint = open_checkpoint(str(GOLDEN / "tiny" / case))
    hidden = states(checkpoint.config.hidden_size)
    layer = LayerPass(checkpoint.config, 0, weights, select_kernels(CPU), CancelCell())
    list(layer.advance(hidden, SAMPLES))
    return hidden


def states(hidden_size: int) -> torch.Tensor:
    """Hidden states [128, hidden] with a few large channels."""
    hidden = torch.randn(128, hidden_size, generator=torch.Generator().manual_seed(3))
    hidden[:, ::13] *= 8
    return hidden


def plan(method: Method, bits: int = 4) -> QuantizePlan:
    """A plan for a layer whose sizes are multiples of 32."""
    return QuantizePlan("model", GOLDEN, method, GridSpec(bits, 32))


def quantized(
    method: Method, case: str = "rope_llama3", bits: int = 4
) -> tuple[dict[str, torch.Tensor], dict[str, QuantizedMatrix]]:
    """The weights that layer 0 computes with afterwards, and its matrices."""
    checkpoint = open_checkpoint(str(GOLDEN / "tiny" / case))
    weights = layer_weights(checkpoint, 0)
    layer = LayerPass(checkpoint.config, 0, weights, select_kernels(CPU), CancelCell())
    list(layer.observe(states(checkpoint.config.hidden_size), SAMPLES))
    parts = quantize_layer(weights, layer.statistics, plan(method, bits), torch.float16)
    return weights, dict(parts)


@pytest.mark.parametrize("case", ["mha", "biases", "gqa", "head_dim"])
def test_folding_leaves_the_layer_as_it_was(case: str) -> None:
    """Every fold there is, with scales from 0.1 to 10; values only where heads are not shared."""
    checkpoint = open_checkpoint(str(GOLDEN / "tiny" / case))
    weights = layer_weights(checkpoint, 0)
    before = run_layer(dict(weights), case)
    generator = torch.Generator().manual_seed(1)
    folded = [fold.producer for fold in PRE_NORM_FOLDS if can_fold(fold, weights)]
    for fold in PRE_NORM_FOLDS:
        if can_fold(fold, weights):
            inputs = weights[f"{fold.consumers[0]}.weight"].shape[1]
            scale = 10 ** (2 * torch.rand(inputs, generator=generator) - 1)
            apply_fold(fold, weights, scale)
    assert ("self_attn.v_proj" in folded) == (case in ("mha", "biases"))
    assert len(folded) >= 3
    after = run_layer(weights, case)
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4 * float(before.abs().max()))


def test_methods_rank_as_published() -> None:
    """On the layer's outputs: GPTQ and AWQ beat rounding to nearest, 8 bits beat 4."""
    checkpoint = open_checkpoint(str(GOLDEN / "tiny" / "rope_llama3"))
    exact = run_layer(layer_weights(checkpoint, 0), "rope_llama3")

    def error(method: Method, bits: int = 4) -> float:
        weights, _ = quantized(method, bits=bits)
        return float((run_layer(weights, "rope_llama3") - exact).square().mean())

    nearest = error("rtn")
    assert error("gptq") < 0.8 * nearest
    assert error("awq") < 0.8 * nearest
    assert error("rtn", bits=8) < 0.01 * nearest


@pytest.mark.parametrize("method", ["rtn", "gptq", "awq"])
def test_the_layer_goes_on_with_what_is_stored(method: Method) -> None:
    """Matrices are the dequantized ones; what scales were folded into is rounded as stored."""
    weights, matrices = quantized(method)
    assert set(matrices) == set(matrix_names({n: tuple(t.shape) for n, t in weights.items()}))
    assert len(matrices) == 7
    for name, matrix in matrices.items():
        assert torch.equal(weights[f"{name}.weight"], matrix.dequantize())
    if method == "awq":
        norm = weights["input_layernorm.weight"]
        assert torch.equal(norm, norm.half().float())


def test_a_product_without_inputs_is_refused() -> None:
    """By name: it was never run by itself."""
    weights = layer_weights(open_checkpoint(str(GOLDEN / "tiny" / "tied")), 0)
    with pytest.raises(EngineError, match=r"self_attn\.\w_proj cannot be calibrated"):
        list(quantize_layer(weights, {}, plan("gptq"), torch.float16))


@pytest.mark.parametrize(
    ("family", "foldable"),
    [("qwen2", True), ("qwen3", True), ("gemma2", False), ("olmo2", False), ("phi3", False)],
)
def test_awq_is_refused_where_nothing_can_be_folded(family: str, foldable: bool) -> None:
    """By the family's name, with what else there is."""
    config = open_checkpoint(str(GOLDEN / "families" / family)).config
    if foldable:
        require_foldable(config)
        return
    with pytest.raises(EngineError, match=rf"'{family}'.*gptq or rtn"):
        require_foldable(config)
