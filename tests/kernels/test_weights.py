"""Weight formats: quantize, lay out, take apart again."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.weights import (
    DenseWeight,
    concat_outputs,
    dequantize,
    pack_groups,
    quantize_int4,
    quantize_int8,
    select_outputs,
)


@given(
    num_out=st.integers(1, 9), groups=st.integers(1, 4), half=st.integers(1, 5), seed=st.integers()
)
@settings(max_examples=60, deadline=None)
def test_packed_codes_come_back_in_place(num_out: int, groups: int, half: int, seed: int) -> None:
    """Whatever the shape, value [n, k] after packing is code * scale + minimum of its group."""
    rng = torch.Generator().manual_seed(seed % 2**31)
    size = 2 * half
    for bits, low, high in ((4, 0, 16), (8, -127, 128)):
        codes = torch.randint(low, high, (num_out, groups * size), generator=rng)
        scale = torch.rand(num_out, groups, generator=rng).half()
        minimum = torch.randn(num_out, groups, generator=rng).half() if bits == 4 else None
        kind = torch.uint8 if bits == 4 else torch.int8
        weight = pack_groups(bits, codes.to(kind), scale, minimum)
        expected = codes.float() * scale.float().repeat_interleave(size, 1)
        if minimum is not None:
            expected = expected + minimum.float().repeat_interleave(size, 1)
        assert weight.shape == (num_out, groups * size)
        assert weight.group_size == size
        torch.testing.assert_close(dequantize(weight), expected, rtol=0, atol=0)


@pytest.mark.parametrize("group_size", [None, 32, 64])
def test_int8_error_is_at_most_half_a_step(group_size: int | None) -> None:
    """Round to nearest with a symmetric scale, by channel or by group."""
    weight = torch.randn(48, 192, generator=torch.Generator().manual_seed(1))
    quantized = quantize_int8(weight, group_size)
    steps = quantized.scale.t().float().repeat_interleave(quantized.group_size, 1)
    # Rounding the scale to FP16 may push the largest code just past 127, where it is clamped.
    assert ((dequantize(quantized) - weight).abs() <= 0.5 * steps * 1.13 + 1e-6).all()


def test_int4_error_is_at_most_half_a_step_and_a_rounding_of_the_minimum() -> None:
    """Asymmetric 4-bit groups cover the group's own range."""
    weight = torch.randn(40, 128, generator=torch.Generator().manual_seed(2)) + 3.0
    quantized = quantize_int4(weight)
    steps = quantized.scale.t().float().repeat_interleave(32, 1)
    error = (dequantize(quantized) - weight).abs()
    assert (error <= 0.5 * steps + 15 * steps * 2**-10 + 3 * 2**-10).all()
    assert quantized.num_bytes * 8 / weight.numel() == 5.0


def test_equal_groups_survive() -> None:
    """A group of one value has no range: it must not divide by zero."""
    weight = torch.full((4, 64), 0.5)
    torch.testing.assert_close(dequantize(quantize_int4(weight)), weight, rtol=0, atol=0)
    zeros = torch.zeros(4, 64)
    torch.testing.assert_close(dequantize(quantize_int8(zeros)), zeros, rtol=0, atol=0)


def test_a_group_size_that_does_not_divide_is_refused() -> None:
    """Padding silently would change the model."""
    with pytest.raises(ValueError, match="do not divide"):
        quantize_int4(torch.zeros(4, 48))


def test_select_and_concat_work_on_outputs() -> None:
    """Row selection and merging commute with dequantizing, in every format."""
    dense = torch.randn(12, 64, generator=torch.Generator().manual_seed(3))
    rows = torch.tensor([5, 0, 7])
    for weight in (DenseWeight(dense.bfloat16()), quantize_int8(dense, 32), quantize_int4(dense)):
        full = dequantize(weight)
        torch.testing.assert_close(dequantize(select_outputs(weight, rows)), full[rows])
        merged = concat_outputs([weight, select_outputs(weight, rows)])
        assert merged is not None
        torch.testing.assert_close(dequantize(merged), torch.cat((full, full[rows])))


def test_different_formats_stay_apart() -> None:
    """One product cannot run over two formats."""
    dense = torch.zeros(4, 64)
    assert concat_outputs([quantize_int8(dense), quantize_int4(dense)]) is None
    assert concat_outputs([DenseWeight(dense), DenseWeight(dense.bfloat16())]) is None
    assert concat_outputs([DenseWeight(dense), quantize_int4(dense)]) is None
