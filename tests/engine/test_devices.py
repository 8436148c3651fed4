"""How many threads a load takes by itself, and what is said of a GPU that is left unused."""

import psutil
import pytest
import torch

from engine.devices import default_threads, unusable_gpu_notice
from tests.engine.nvml.fake import use_fake_nvml


@pytest.mark.parametrize(
    ("cores", "spare_core", "threads"),
    [(1, True, 1), (4, True, 4), (5, True, 4), (16, True, 15), (16, False, 16), (None, True, 1)],
)
def test_a_window_keeps_one_of_more_than_four_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int | None, spare_core: bool, threads: int
) -> None:
    """The physical cores, one fewer beside a window; one where the system does not tell."""
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: cores)
    assert default_threads(spare_core) == threads


def test_a_gpu_that_torch_cannot_use_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The notice has NVML's name of it, and a driver library that crashes costs the notice only."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for mode, begins in (("", "Fake GPU is present"), ("segfault", "None")):
        use_fake_nvml(monkeypatch, mode)
        unusable_gpu_notice.cache_clear()
        assert str(unusable_gpu_notice()).startswith(begins)
    unusable_gpu_notice.cache_clear()
