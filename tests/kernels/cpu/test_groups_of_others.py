"""Layouts that only other tools' weights have: INT8 with minima, groups of any size."""

import pytest
import torch

from kernels.cpu.kernel_set import cpu_kernels
from kernels.cpu.library import open_level, runnable_levels
from kernels.cpu.tape import Tape
from kernels.select import KernelSet, torch_kernels
from kernels.weights import GroupedWeight, TiledWeight, dequantize, pack_groups

TOLERANCE = 1e-4  # activations are rounded to 16 bits beside INT8
NUM_OUT = 40
pytestmark = pytest.mark.skipif(not runnable_levels(), reason="no native kernels are compiled")


@pytest.fixture(params=runnable_levels())
def kernels(request: pytest.FixtureRequest) -> KernelSet:
    """The operations of one level."""
    library = open_level(request.param)
    assert library is not None
    return cpu_kernels(library, 2, torch.float32)


def grouped(bits: int, num_in: int, group_size: int, has_minimum: bool) -> GroupedWeight:
    """Random codes, the lowest and highest among them."""
    low, high = (0, 15) if bits == 4 else (-128, 127)
    codes = torch.randint(low, high + 1, (NUM_OUT, num_in)).to(torch.int8)
    codes[0] = low
    codes[1] = high
    scale = torch.rand(NUM_OUT, num_in // group_size).half() + 0.5
    minimum = torch.randn(scale.shape).half() * 8 if has_minimum else None
    return pack_groups(bits, codes, scale, minimum)


def relative_error(out: torch.Tensor, x: torch.Tensor, weight: GroupedWeight) -> float:
    """Against a product in float64."""
    expected = x.double() @ dequantize(weight).double().t()
    return float((out - expected).abs().max() / expected.abs().max())


def rounded(x: torch.Tensor) -> torch.Tensor:
    """Activations as INT4 products see them: in 127ths of the largest of each block of 32."""
    blocks = x.double().unflatten(-1, (-1, 32))
    step = blocks.abs().amax(-1, keepdim=True) / 127
    return ((blocks / step).round() * step).flatten(-2)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("has_minimum", [False, True])
@pytest.mark.parametrize(
    ("num_in", "group_size"), [(256, 32), (256, 64), (256, 128), (256, 256), (480, 96), (96, 96)]
)
@pytest.mark.parametrize("rows", [1, 3, 20])
def test_native_groups(
    kernels: KernelSet, bits: int, has_minimum: bool, num_in: int, group_size: int, rows: int
) -> None:
    """Whole blocks of 32 are multiplied natively, whatever the format of the bits."""
    weight, x = grouped(bits, num_in, group_size, has_minimum), torch.randn(rows, num_in)
    prepared = kernels.prepare(weight)
    assert isinstance(prepared, TiledWeight)
    seen = x if bits == 8 else rounded(x)
    assert relative_error(kernels.linear(x, prepared), seen, weight) < TOLERANCE
    ids = torch.tensor([0, 1, NUM_OUT - 1])
    rows_of = kernels.embedding(ids, prepared, torch.float32)
    torch.testing.assert_close(rows_of, dequantize(weight)[ids], rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("num_in", "group_size"), [(80, 16), (80, 40), (80, 80), (120, 24)])
@pytest.mark.parametrize("rows", [1, 3, 20])
def test_other_groups_go_to_the_reference(
    kernels: KernelSet, bits: int, num_in: int, group_size: int, rows: int
) -> None:
    """Right, and a step with them is computed anew instead of replayed."""
    weight, x = grouped(bits, num_in, group_size, has_minimum=True), torch.randn(rows, num_in)
    prepared = kernels.prepare(weight)
    assert isinstance(prepared, GroupedWeight)
    assert relative_error(kernels.linear(x, prepared), x, weight) < 1e-5
    _, recording = kernels.record(lambda: (kernels.linear(x, prepared),))
    assert not isinstance(recording, Tape)


@pytest.mark.parametrize("rows", [1, 20])
def test_reference_adds_the_minimum_of_one_group(rows: int) -> None:
    """One INT8 scale an output has a shortcut, which is for symmetric weights only."""
    weight, x = grouped(8, 64, 64, has_minimum=True), torch.randn(rows, 64)
    linear = torch_kernels(torch.float32, torch.float32).linear
    assert relative_error(linear(x, weight), x, weight) < 1e-5
