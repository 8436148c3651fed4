"""Every GPU is read, in the stated units; what a card refuses is None and its reason is kept."""

from __future__ import annotations

import os

import pytest

from engine.nvml.gpus import Gpus, GpusLost
from engine.nvml.readings import GpuReading
from tests.engine.nvml.fake import load_fake_nvml

CALLS = {
    "nvmlDeviceGetUtilizationRates": {"util_pct"},
    "nvmlDeviceGetMemoryInfo": {"mem_used_bytes"},
    "nvmlDeviceGetPowerUsage": {"power_w"},
    "nvmlDeviceGetIndex": {"index"},
    "nvmlDeviceGetComputeRunningProcesses": {"process_mem_bytes"},
    "nvmlDeviceGetClockInfo": {"sm_clock_mhz", "mem_clock_mhz"},
    "nvmlDeviceGetTemperature": {"temperature_c"},
    "nvmlDeviceGetCurrentClocksThrottleReasons": {"slowed_by"},
    "nvmlGpmQueryDeviceSupport": {"sm_active_pct", "dram_active_pct"},
    "nvmlGpmSampleGet": {"sm_active_pct", "dram_active_pct"},
    "no gpm": {"sm_active_pct", "dram_active_pct"},
    "no metric": {"sm_active_pct", "dram_active_pct"},
}


@pytest.mark.parametrize("uuid", ["bbbb", "GPU-bbbb"])
def test_all_are_read_and_the_watched_one_is_found_by_uuid(
    monkeypatch: pytest.MonkeyPatch, uuid: str
) -> None:
    """As torch or as NVML writes its UUID; percent, bytes, watts, MHz, degrees, words."""
    gpus = Gpus(load_fake_nvml(monkeypatch), uuid, os.getppid())
    gpus.read()
    watched, others = gpus.read()
    assert watched == GpuReading(
        index=1,
        name="Fake GPU",
        util_pct=86.0,
        mem_used_bytes=5_000_000_001,
        power_w=215.5,
        process_mem_bytes=4_000_000_000,
        sm_clock_mhz=1980,
        mem_clock_mhz=3201,
        temperature_c=61,
        slowed_by=("power limit", "heat (hardware)"),
        sm_active_pct=12.5,
        dram_active_pct=91.0,
    )
    assert [(gpu.index, gpu.util_pct, gpu.slowed_by) for gpu in others] == [(0, 87.0, ())]
    assert gpus.missing == {}


@pytest.mark.parametrize(("call", "fields"), CALLS.items())
def test_what_one_card_refuses_is_blank_there_only(
    monkeypatch: pytest.MonkeyPatch, call: str, fields: set[str]
) -> None:
    """Two cards of different kinds: the call that one lacks costs its own fields and no others."""
    mode = call if call.startswith("no ") else f"{call} 0"
    gpus = Gpus(load_fake_nvml(monkeypatch, mode), "bbbb", os.getppid())
    gpus.read()
    watched, (other,) = gpus.read()
    assert watched is not None
    blank = {name for name in GpuReading.__dataclass_fields__ if getattr(other, name) is None}
    assert blank == fields
    if mode == f"{call} 0":
        assert set(gpus.missing.values()) == {"Not Supported"}
        assert None not in {getattr(watched, name) for name in fields}


def test_activity_begins_with_the_second_reading_and_frees_its_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing to compare with at first; at most one sample a GPU stays."""
    nvml = load_fake_nvml(monkeypatch)
    gpus = Gpus(nvml, "bbbb", 1)
    first, _ = gpus.read()
    assert first is not None
    assert first.sm_active_pct is None
    for _ in range(5):
        gpus.read()
    assert (nvml.num_samples, nvml.num_freed) == (12, 10)


def test_an_unknown_uuid_watches_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that NVML does not have leaves the others, and says why."""
    gpus = Gpus(load_fake_nvml(monkeypatch), "cccc", 1)
    watched, others = gpus.read()
    assert watched is None
    assert len(others) == 2
    assert gpus.missing["device_index"] == "Not Found"


def test_a_driver_that_goes_away_is_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    """When no card has any value the reader must start anew: this library never comes back."""
    gone = os.path.join(tmp_path, "gone")
    monkeypatch.setenv("FAKE_NVML_GONE", gone)
    gpus = Gpus(load_fake_nvml(monkeypatch, "gone"), "bbbb", 1)
    gpus.read()
    with open(gone, "w", encoding="utf-8"):
        pass
    with pytest.raises(GpusLost, match="Driver Not Loaded"):
        gpus.read()
