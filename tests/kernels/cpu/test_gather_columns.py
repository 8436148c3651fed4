"""Gathering of columns, alone and within a recorded step."""

import pytest
import torch

from kernels import reference
from kernels.cpu.kernel_set import cpu_kernels
from kernels.cpu.library import open_level, runnable_levels
from kernels.cpu.tape import Tape
from kernels.recording import CancelCell
from kernels.select import KernelSet

pytestmark = pytest.mark.skipif(not runnable_levels(), reason="no native kernels are compiled")


@pytest.fixture(params=runnable_levels())
def kernels(request: pytest.FixtureRequest) -> KernelSet:
    """The operations of one level."""
    library = open_level(request.param)
    assert library is not None
    return cpu_kernels(library, 2, torch.float32)


@pytest.mark.parametrize("rows", [1, 3, 9])
@pytest.mark.parametrize("width", [1, 7, 64, 4099])
def test_gathered_as_the_reference_does(kernels: KernelSet, rows: int, width: int) -> None:
    """Rows together and rows that lie apart, few and enough to share among threads."""
    wide = torch.randn(rows, width + 5)
    order = torch.randperm(width).int()
    for x in (wide[:, :width].contiguous(), wide[:, :width], wide[:, 3 : width + 3]):
        out = kernels.gather_columns(x, order)
        assert torch.equal(out, reference.gather_columns(x, order))
        assert torch.equal(out, x[:, order.long()])


def test_a_replay_gathers_what_lies_there_then(kernels: KernelSet) -> None:
    """The operation is on the tape, not done once."""
    x, order = torch.zeros(2, 48), torch.randperm(48).int()
    (out,), recording = kernels.record(lambda: (kernels.gather_columns(x, order),))
    assert isinstance(recording, Tape)
    x.copy_(torch.randn(2, 48))
    assert recording.replay(CancelCell())
    assert torch.equal(out, x[:, order.long()])
