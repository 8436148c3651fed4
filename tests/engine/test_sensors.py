"""Sensors give what the machine has and None for the rest."""

from __future__ import annotations

import logging
import sys
from types import ModuleType, SimpleNamespace

import psutil
import pytest

from engine.sensors import Sensors

UUID = "8f3c2d1a-0000-1111-2222-333344445555"


class NVMLError(Exception):
    """Stands for pynvml's base error."""


class FakeNvml(ModuleType):
    """A pynvml with one GPU whose index differs from CUDA's; calls in `failing` raise."""

    NVMLError = NVMLError

    def __init__(self, failing: tuple[str, ...] = ()) -> None:
        super().__init__("pynvml")
        self.failing = failing
        self.calls: list[str] = []

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.failing:
            raise NVMLError(f"{name}: Not Supported")

    def nvmlInit(self) -> None:
        self._call("nvmlInit")

    def nvmlShutdown(self) -> None:
        self._call("nvmlShutdown")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self._call("nvmlDeviceGetHandleByUUID")
        if uuid != f"GPU-{UUID}":
            raise NVMLError("Not Found")
        return "handle"

    def nvmlDeviceGetIndex(self, handle: str) -> int:
        self._call("nvmlDeviceGetIndex")
        return 3

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        self._call("nvmlDeviceGetUtilizationRates")
        return SimpleNamespace(gpu=87, memory=40)

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        self._call("nvmlDeviceGetMemoryInfo")
        return SimpleNamespace(used=5_000_000_000, total=8_000_000_000)

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        self._call("nvmlDeviceGetPowerUsage")
        return 215_500


def answers(uuid: str) -> bool:
    """Stands for the probe, which a fake in this process cannot reach."""
    return True


def install(monkeypatch: pytest.MonkeyPatch, *failing: str) -> FakeNvml:
    """Put a fake pynvml in the place of the real one."""
    fake = FakeNvml(failing)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


@pytest.mark.parametrize("uuid", [UUID, f"GPU-{UUID}"])
def test_gpu_is_found_by_uuid_and_read_in_the_stated_units(
    monkeypatch: pytest.MonkeyPatch, uuid: str
) -> None:
    """The UUID as torch writes it or as NVML writes it leads to the same device; power is watts."""
    install(monkeypatch)
    sensors = Sensors(uuid, clock=lambda: 42, probe=answers)
    sample = sensors.read()
    sensors.close()
    assert sample.t_ns == 42
    assert sample.device_index == 3
    assert sample.gpu_util_pct == 87.0
    assert sample.gpu_mem_used_bytes == 5_000_000_000
    assert sample.gpu_power_w == pytest.approx(215.5)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("nvmlDeviceGetUtilizationRates", "gpu_util_pct"),
        ("nvmlDeviceGetMemoryInfo", "gpu_mem_used_bytes"),
        ("nvmlDeviceGetPowerUsage", "gpu_power_w"),
        ("nvmlDeviceGetIndex", "device_index"),
    ],
)
def test_one_unsupported_call_blanks_its_own_field_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str, field: str
) -> None:
    """On WSL utilization raises NotSupported while memory works: only that field is None."""
    install(monkeypatch, call)
    caplog.set_level(logging.INFO, "engine.sensors")
    sensors = Sensors(UUID, probe=answers)
    for _ in range(3):
        sample = sensors.read()
    sensors.close()
    values = {
        name: getattr(sample, name)
        for name in ("gpu_util_pct", "gpu_mem_used_bytes", "gpu_power_w", "device_index")
    }
    assert values.pop(field) is None
    assert None not in values.values()
    assert len([r for r in caplog.records if field in r.getMessage()]) == 1


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetHandleByUUID"])
def test_nvml_that_cannot_start_leaves_the_process_values(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """No driver or no such device: GPU fields are None, CPU and memory are still read."""
    install(monkeypatch, call)
    sensors = Sensors(UUID, probe=answers)
    sample = sensors.read()
    sensors.close()
    assert (sample.gpu_util_pct, sample.gpu_mem_used_bytes, sample.gpu_power_w) == (None,) * 3
    assert sample.process_rss_bytes is not None
    assert sample.process_rss_bytes > 1_000_000


def test_missing_pynvml_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the pynvml module the sensors still read, and say so a single time."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    caplog.set_level(logging.INFO, "engine.sensors")
    sensors = Sensors(UUID, probe=answers)
    sensors.read()
    assert sensors.read().gpu_util_pct is None
    sensors.close()
    assert len(caplog.records) == 1


def test_without_a_gpu_nvml_is_never_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """device_uuid None must not wake any GPU: no NVML call is made."""
    fake = install(monkeypatch)
    sensors = Sensors(None)
    sensors.read()
    sensors.close()
    assert fake.calls == []


def test_nvml_starts_once_and_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three reads initialise NVML once; close shuts it down and later reads stay blank."""
    fake = install(monkeypatch)
    sensors = Sensors(UUID, probe=answers)
    for _ in range(3):
        sensors.read()
    sensors.close()
    sensors.close()
    assert fake.calls.count("nvmlInit") == 1
    assert fake.calls.count("nvmlShutdown") == 1
    assert sensors.read().gpu_util_pct is None


def test_process_cpu_is_a_share_of_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """psutil's percent of one core becomes a percentage of the machine, never above 100."""
    raw = iter([0.0, 300.0, 1000.0])
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    monkeypatch.setattr(psutil.Process, "cpu_percent", lambda self, interval: next(raw))
    sensors = Sensors(None)
    assert sensors.read().cpu_util_pct == pytest.approx(75.0)
    assert sensors.read().cpu_util_pct == 100.0


def test_psutil_failure_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hardened machine may refuse /proc: the fields are None and nothing is raised."""

    def refuse(self: psutil.Process) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil.Process, "memory_info", refuse)
    assert Sensors(None).read().process_rss_bytes is None


def test_nvml_that_failed_its_probe_is_never_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """What crashed or hung in the probe is not tried again in this process."""
    fake = install(monkeypatch)
    asked: list[str] = []
    sensors = Sensors(UUID, probe=lambda uuid: bool(asked.append(uuid)))
    for _ in range(3):
        assert sensors.read().gpu_util_pct is None
    sensors.close()
    assert fake.calls == []
    assert asked == [UUID], "once is enough"
