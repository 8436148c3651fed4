"""Every kernel compiled and run on the GPU at hand; `tests.benchmarks.gpu_check` does more."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.gpu.cases import CASES
from tests.kernels.gpu.test_interpreted import run_worker


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_equals_the_reference_on_the_gpu() -> None:
    """The interpreter's cases again, where programs run at once and BF16 rounds as it should."""
    results = run_worker(list(CASES), "cuda", interpret=False)
    failures = {name: text for name, text in results.items() if text is not None}
    assert not failures, "\n".join(f"{name}: {text}" for name, text in failures.items())
