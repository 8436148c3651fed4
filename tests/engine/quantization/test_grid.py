"""Grids and rounding to nearest: bounds, and values that are on the grid already."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.quantization.grid import QuantizedMatrix, rtn
from engine.quantization.plan import GridSpec, QuantizePlan

OUT = Path("out")
SPECS = [GridSpec(bits, size) for bits in (4, 8) for size in (32, 64, 128)]


@pytest.mark.parametrize("spec", SPECS, ids=str)
@given(seed=st.integers(0, 2**31), shift=st.floats(-3, 3), spread=st.floats(1e-3, 10))
@settings(max_examples=25, deadline=None)
def test_no_value_is_further_away_than_a_step(
    spec: GridSpec, seed: int, shift: float, spread: float
) -> None:
    """Also where all values of a group have one sign; a zero point is never 0.

    It is half a step within the range; at its ends a rounded zero point costs up to another half,
    and a scale rounded to FP16 2^-11 of the largest value.
    """
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(5, 256, generator=generator) * spread + shift
    result = rtn(weight, spec)
    error = (result.dequantize() - weight).abs().view(5, -1, spec.group_size)
    step = result.scale.float()[..., None]
    slack = weight.abs().max() * 2**-10
    assert bool((error <= step + slack).all())
    assert int(result.zero.min()) >= 1
    assert int(result.codes.max()) <= spec.max_code


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_values_on_the_grid_stay(spec: GridSpec) -> None:
    """What was quantized once is quantized to the very same codes."""
    generator = torch.Generator().manual_seed(1)
    codes = torch.randint(0, spec.max_code + 1, (6, 256), generator=generator)
    groups = codes.view(6, -1, spec.group_size)
    groups[..., 0], groups[..., 1] = 0, spec.max_code  # the range is used to both ends
    if spec.symmetric:
        groups[..., 0] = 1
    scale = torch.full((6, 256 // spec.group_size), 2.0**-5).half()
    zero = torch.full_like(scale, 128 if spec.symmetric else 7, dtype=torch.uint8)
    exact = QuantizedMatrix(spec, codes.to(torch.uint8).clamp(min=int(spec.symmetric)), scale, zero)
    again = rtn(exact.dequantize(), spec)
    torch.testing.assert_close(again.dequantize(), exact.dequantize(), rtol=0, atol=0)
    assert torch.equal(again.codes, exact.codes)


def test_zeros_stay_zero() -> None:
    """A group without a range has a scale all the same."""
    for spec in SPECS:
        assert not bool(rtn(torch.zeros(2, 128), spec).dequantize().any())


def test_groups_that_do_not_divide_are_refused() -> None:
    """By both figures."""
    with pytest.raises(ValueError, match="groups of 64 do not divide 48 inputs"):
        rtn(torch.zeros(2, 48), GridSpec(4, 64))


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: GridSpec(3, 64), "bits"),
        (lambda: GridSpec(4, 48), "group_size"),
        (lambda: QuantizePlan("m", OUT, "hqq"), "method"),
        (lambda: QuantizePlan("m", OUT, "awq", GridSpec(8, 64)), "bits"),
        (lambda: QuantizePlan("m", OUT, sample_tokens=1), "calibration"),
    ],
)
def test_a_plan_that_cannot_be_names_its_field(make: Callable[[], object], field: str) -> None:
    """Before anything is read."""
    with pytest.raises(ValueError, match=f"^{field}:"):
        make()
