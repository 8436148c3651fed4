"""Clocks, temperature, slowdowns, a process' memory and GPM activity from a fake pynvml."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from engine.nvml import NvmlGpu
from tests.engine.test_sensors import FakeNvml


class RichNvml(FakeNvml):
    """A card that has everything. GPM: 10 % SM and 20 % DRAM a unit between two samples."""

    NVML_GPM_METRICS_GET_VERSION = 1
    NVML_GPM_METRIC_SM_UTIL = 2
    NVML_GPM_METRIC_DRAM_BW_UTIL = 10
    bits = 0
    supported = 1
    status = 0
    num_samples = 0
    num_freed = 0

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return "handle"

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int) -> int:
        return {1: 1_980, 2: 3_201}[clock]

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 61

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return self.bits

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(pid=os.getpid() + 1, usedGpuMemory=5),
            SimpleNamespace(pid=os.getpid(), usedGpuMemory=7),
        ]

    def nvmlGpmQueryDeviceSupport(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(isSupportedDevice=self.supported)

    def nvmlGpmSampleAlloc(self) -> SimpleNamespace:
        return SimpleNamespace(number=0)

    def nvmlGpmSampleGet(self, handle: str, sample: SimpleNamespace) -> None:
        self._call("nvmlGpmSampleGet")
        self.num_samples += 1
        sample.number = self.num_samples

    def nvmlGpmSampleFree(self, sample: SimpleNamespace) -> None:
        self.num_freed += 1

    def c_nvmlGpmMetricsGet_t(self) -> SimpleNamespace:
        return SimpleNamespace(metrics=[SimpleNamespace(), SimpleNamespace()])

    def nvmlGpmMetricsGet(self, wanted: SimpleNamespace) -> None:
        units = wanted.sample2.number - wanted.sample1.number
        for metric in wanted.metrics[: wanted.numMetrics]:
            metric.value = {2: 10.0, 10: 20.0}[metric.metricId] * units
            metric.nvmlReturn = self.status


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> RichNvml:
    """In the place of the real one."""
    fake = RichNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_extras_are_read_in_the_stated_units(nvml: RichNvml) -> None:
    """MHz, degrees, and of the processes on the card this one's bytes."""
    gpu = NvmlGpu("x")
    assert gpu.open()
    reading = gpu.read()
    assert (reading.sm_clock_mhz, reading.mem_clock_mhz, reading.temperature_c) == (1980, 3201, 61)
    assert reading.process_mem_bytes == 7


@pytest.mark.parametrize(
    ("bits", "words"),
    [(0, ()), (0x1, ()), (0x4, ("power limit",)), (0x60, ("heat", "heat (hardware)"))],
)
def test_slowdowns_are_said_in_words(nvml: RichNvml, bits: int, words: tuple[str, ...]) -> None:
    """An idle GPU (bit 0) is not slowed by anything."""
    nvml.bits = bits
    gpu = NvmlGpu("x")
    assert gpu.open()
    assert gpu.read().slowed_by == words


def test_activity_is_between_two_readings(nvml: RichNvml) -> None:
    """None at first, then what lies between; every sample's memory is given back."""
    gpu = NvmlGpu("x")
    assert gpu.open()
    first, second = gpu.read(), gpu.read()
    gpu.close()
    assert (first.sm_active_pct, first.dram_active_pct) == (None, None)
    assert (second.sm_active_pct, second.dram_active_pct) == (10.0, 20.0)
    assert nvml.num_freed == nvml.num_samples == 2


@pytest.mark.parametrize("lack", ["support", "metric", "sample"])
def test_card_without_gpm_has_the_rest(nvml: RichNvml, lack: str) -> None:
    """Consumer cards have no GPM: its two fields are None, no sample's memory is lost."""
    nvml.supported = int(lack != "support")
    nvml.status = 3 if lack == "metric" else 0
    nvml.failing = ("nvmlGpmSampleGet",) if lack == "sample" else ()
    gpu = NvmlGpu("x")
    assert gpu.open()
    readings = [gpu.read(), gpu.read()]
    gpu.close()
    assert {r.sm_active_pct for r in readings} == {None}
    assert readings[1].temperature_c == 61
    assert nvml.num_freed == (0 if lack == "support" else 2)
