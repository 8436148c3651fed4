"""GPTQ against the optimal brain quantizer in float64, and against rounding to nearest."""

from __future__ import annotations

import pytest
import torch

from engine.quantization.gptq import gptq, inverse_factor
from engine.quantization.grid import QuantizedMatrix, find_grid, rtn, split_groups
from engine.quantization.plan import GridSpec
from engine.session import EngineError


def problem(
    num_out: int, num_in: int, seed: int = 0, tokens: int = 600
) -> tuple[torch.Tensor, torch.Tensor]:
    """A weight and the second moment of strongly correlated inputs."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(num_in, num_in, generator=generator) / num_in**0.5
    inputs = torch.randn(tokens, num_in, generator=generator) @ mixing
    return torch.randn(num_out, num_in, generator=generator), inputs.T @ inputs / tokens


def output_error(weight: torch.Tensor, result: QuantizedMatrix, moment: torch.Tensor) -> float:
    """E |W x - Q x|^2 in float64."""
    change = result.dequantize().double() - weight.double()
    return float(((change @ moment.double()) * change).sum())


def brain_quantizer(
    weight: torch.Tensor, moment: torch.Tensor, spec: GridSpec, order: list[int]
) -> torch.Tensor:
    """Optimal Brain Quantization (arXiv 2208.11580) in a fixed order, one group, float64.

    After each column the inverse of H without it is found by elimination, not by a Cholesky factor.
    """
    scale, zero = (part[:, 0].double() for part in find_grid(split_groups(weight, 32), spec))
    work = weight.double().clone()
    hessian = moment.double() + 0.01 * moment.double().diagonal().mean() * torch.eye(len(moment))
    inverse = torch.linalg.inv(hessian)
    codes = torch.zeros_like(work)
    for column in order:
        codes[:, column] = (work[:, column] / scale + zero).round().clamp(0, spec.max_code)
        error = work[:, column] - (codes[:, column] - zero) * scale
        work -= error[:, None] * inverse[column] / inverse[column, column]
        inverse = (
            inverse - torch.outer(inverse[:, column], inverse[column]) / inverse[column, column]
        )
    return codes


@pytest.mark.parametrize("act_order", [False, True])
def test_it_is_the_optimal_brain_quantizer(act_order: bool) -> None:
    """The same codes as the column by column definition gives, in both orders of columns."""
    spec = GridSpec(4, 32)
    weight, moment = problem(16, 32)
    order = moment.diagonal().argsort(descending=True).tolist() if act_order else list(range(32))
    expected = brain_quantizer(weight, moment, spec, order)
    got = gptq(weight, moment, spec, act_order)
    assert float((got.codes != expected).float().mean()) <= 0.005  # ties within FP32


@pytest.mark.parametrize("act_order", [False, True])
@pytest.mark.parametrize(("bits", "size"), [(4, 32), (4, 64), (4, 128), (8, 64)])
def test_outputs_are_closer_than_after_rounding_to_nearest(
    bits: int, size: int, act_order: bool
) -> None:
    """Over several blocks of columns, the last one short."""
    spec = GridSpec(bits, size)
    weight, moment = problem(24, 384 if size == 128 else 320)
    nearest = output_error(weight, rtn(weight, spec), moment)
    assert output_error(weight, gptq(weight, moment, spec, act_order), moment) < 0.7 * nearest


def test_weights_on_the_grid_are_kept() -> None:
    """Nothing is lost, so nothing is moved."""
    spec = GridSpec(4, 32)
    weight, moment = problem(8, 64)
    weight = weight.clamp(-2, 2)
    exact = rtn(rtn(weight, spec).dequantize(), spec)
    on_grid = exact.dequantize()
    assert torch.equal(rtn(on_grid, spec).dequantize(), on_grid)
    assert torch.equal(gptq(on_grid, moment, spec).dequantize(), on_grid)


def test_independent_inputs_leave_nothing_to_make_up_for() -> None:
    """A diagonal second moment gives round-to-nearest."""
    weight, _ = problem(8, 64)
    spec = GridSpec(4, 32)
    result = gptq(weight, torch.diag(torch.rand(64) + 0.1), spec)
    assert torch.equal(result.codes, rtn(weight, spec).codes)


def test_inputs_that_are_always_zero_are_rounded_to_nearest() -> None:
    """They neither break the factor nor take errors over."""
    weight, moment = problem(8, 64)
    moment[[3, 40]] = 0
    moment[:, [3, 40]] = 0
    spec = GridSpec(4, 64)
    result = gptq(weight, moment, spec)
    scale, zero = result.scale.float()[:, :1], result.zero.float()[:, :1]
    expected = ((weight[:, [3, 40]] / scale) + zero).round().clamp(0, 15)
    assert torch.equal(result.codes[:, [3, 40]].float(), expected)
    assert torch.isfinite(inverse_factor(torch.zeros(4, 4))).all()


def test_the_factor_is_that_of_the_damped_inverse() -> None:
    """U^T U times the damped moment is the identity."""
    _, moment = problem(1, 48)
    upper = inverse_factor(moment).double()
    damped = moment.double() + 0.01 * moment.double().diagonal().mean() * torch.eye(48)
    torch.testing.assert_close(
        upper.T @ upper @ damped, torch.eye(48, dtype=torch.float64), rtol=0, atol=1e-3
    )
    assert not bool(upper.tril(-1).any())


def test_damping_grows_until_the_moment_can_be_inverted() -> None:
    """A moment that 0.01 of its mean does not make positive definite."""
    moment = torch.eye(4)
    moment[0, 1] = moment[1, 0] = 1.1  # smallest eigenvalue -0.1
    upper = inverse_factor(moment)
    assert torch.isfinite(upper).all()


def test_inputs_that_are_no_numbers_are_told() -> None:
    """In three sentences rather than as garbage in a file."""
    with pytest.raises(EngineError, match="not finite"):
        gptq(torch.zeros(2, 32), torch.full((32, 32), torch.nan), GridSpec(4, 32))
