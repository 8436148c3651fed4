"""The device's figures: measured once, kept only if nobody else was measured along."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine import device_peaks
from engine.device_peaks import measure_peaks, stored_peaks
from engine.peaks import DevicePeaks

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Small products and sets, in a cache folder of the test's own."""
    monkeypatch.setattr(device_peaks, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(device_peaks, "_MATMUL_SHAPES", {"cpu": (64, 64, 64)})
    monkeypatch.setattr(device_peaks, "_WORKING_SETS", {"cpu": (1 << 16, 1 << 17)})
    monkeypatch.setattr(device_peaks, "_LEAST_S", 0.0)


def measured() -> DevicePeaks:
    *shares, peaks = measure_peaks(CPU, 1)
    assert shares == [0.25, 0.5, 0.75, 1.0]
    assert isinstance(peaks, DevicePeaks)
    return peaks


def test_figures_are_kept_for_the_next_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same figures come back, for the same number of threads only."""
    monkeypatch.setattr(device_peaks._Company, "share", lambda _: 0.05)
    peaks = measured()
    assert peaks.is_quiet
    assert stored_peaks(CPU, 1) == peaks
    assert stored_peaks(CPU, 2) is None


def test_figures_measured_in_company_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that compiled something meanwhile would look slow, and MBU too good, for ever."""
    monkeypatch.setattr(device_peaks._Company, "share", lambda _: 0.5)
    peaks = measured()
    assert peaks.matmul_flops["fp32"] > 0
    assert not peaks.is_quiet
    assert stored_peaks(CPU, 1) is None


def test_an_emulated_dtype_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a few rows tell that it is hopeless, the whole product is never computed."""
    rows_of: dict[torch.dtype, set[int]] = {torch.float32: set(), torch.bfloat16: set()}

    def best_seconds(operation: Callable[[], torch.Tensor], _device: torch.device) -> float:
        result = operation()
        if result.dim() < 2:
            return 1e-3  # a read
        rows_of[result.dtype].add(len(result))
        return 1e-6 * len(result) * (200 if result.dtype is torch.bfloat16 else 1)

    monkeypatch.setattr(device_peaks, "_best_seconds", best_seconds)
    peaks = measured()
    assert rows_of == {torch.float32: {1, 64}, torch.bfloat16: {1}}
    assert peaks.matmul_flops["fp32"] / peaks.matmul_flops["bf16"] == pytest.approx(200)


def test_our_own_work_is_no_company(monkeypatch: pytest.MonkeyPatch) -> None:
    """Busy time less our own, as a share of all cores; never below none."""
    times = iter([(100.0, 10.0, 5.0), (104.0, 13.0, 7.0), (108.0, 13.0, 8.0)])
    monkeypatch.setattr(device_peaks._Company, "_times", lambda _: next(times))
    company = device_peaks._Company()
    assert company.share() == pytest.approx(0.25)
    assert company.share() == 0.0


def test_the_clocks_of_all_cores_and_ours_fit_together() -> None:
    """What is busy is part of what passed, and we have been part of what was busy."""
    passed, busy, own = device_peaks._Company()._times()
    assert passed > busy > 0
    assert busy > own > 0
