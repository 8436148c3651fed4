"""`tests.benchmarks.gpu_check` runs, as far as it can without a GPU."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "tests.benchmarks.gpu_check"]


@pytest.mark.skipif(
    find_spec("triton") is None, reason="Triton is not installed; it exists for Linux only"
)
def test_an_interpreted_model_equals_torch() -> None:
    """Prefill and steps of small models, one over quantized keys and values, by engine code."""
    done = subprocess.run(
        [*COMMAND, "--interpret", "--quick"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["check", "kernels", "model", "model"]
    assert all(" ok, " in line for line in lines[1:])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_says_so() -> None:
    """In one sentence, and fails."""
    done = subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.count("\n") == 1
    assert "needs an NVIDIA GPU" in done.stdout
