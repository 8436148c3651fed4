"""CUDA graphs of a pass: replay equals running it, with what its inputs hold then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernels.gpu.graph import CudaGraphRecording, GraphRecorder
from kernels.recording import CancelCell

ROOT = Path(__file__).parents[3]


class FakeGraph:
    """Counts its replays."""

    replays = 0

    def replay(self) -> None:
        """One more."""
        self.replays += 1


def test_a_cancelled_step_is_not_replayed() -> None:
    """And is once the cell is clear again."""
    graph, cancel = FakeGraph(), CancelCell()
    recording = CudaGraphRecording(graph)  # type: ignore[arg-type]
    cancel.set()
    assert recording.replay(cancel) is False
    assert graph.replays == 0
    cancel.clear()
    assert recording.replay(cancel) is True
    assert graph.replays == 1


def test_graphs_need_no_triton() -> None:
    """`graph` and `autotune` are imported where there is none."""
    code = (
        "import sys; sys.modules['triton'] = None; import kernels.gpu.graph, kernels.gpu.autotune"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_replay_reads_its_inputs_anew() -> None:
    """Two graphs of one pool, replayed in turn; the results are the same tensors each time."""
    record, cancel = GraphRecorder(), CancelCell()
    inputs = [torch.ones(rows, 4, device="cuda") for rows in (1, 2)]
    recorded = [record(lambda x=x: (x * 2 + 1) @ torch.ones(4, 4, device="cuda")) for x in inputs]
    for value in (3.0, 5.0):
        for x, (result, recording) in zip(inputs, recorded, strict=True):
            x.fill_(value)
            assert recording.replay(cancel)
            torch.testing.assert_close(result, torch.full_like(result, 4 * (2 * value + 1)))
