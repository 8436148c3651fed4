"""One GPU as NVML reports it; what it cannot give is None and logged once, never an exception."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from engine.gpm import GpmCounters

_log = logging.getLogger("engine.sensors")
_T = TypeVar("_T")


# Numbers of nvml.h, which pynvml has had under changing names.
_SM_CLOCK, _MEM_CLOCK, _GPU_SENSOR = 1, 2, 0
SLOWDOWNS = {
    0x02: "clocks set",
    0x04: "power limit",
    0x08: "hardware slowdown",
    0x20: "heat",
    0x40: "heat (hardware)",
    0x80: "power brake",
}


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What NVML says of a GPU; `slowed_by` is empty when nothing holds its clocks back.

    `process_mem_bytes` is this process' part. `sm_active_pct` and `dram_active_pct` are means
    since the reading before, where the card has GPM counters.
    """

    util_pct: float | None
    mem_used_bytes: int | None
    power_w: float | None
    process_mem_bytes: int | None
    sm_clock_mhz: int | None
    mem_clock_mhz: int | None
    temperature_c: int | None
    slowed_by: tuple[str, ...] | None
    sm_active_pct: float | None
    dram_active_pct: float | None


class NvmlGpu:
    """The GPU with this UUID (with or without NVML's "GPU-" in front). Used from one thread.

    CUDA's device numbers are not NVML's, hence the UUID. NVML starts with the first `open`.
    """

    def __init__(self, uuid: str) -> None:
        self._name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        self._nvml: ModuleType | None = None
        self._handle: Any = None
        self._gpm: GpmCounters | None = None
        self._reported: set[str] = set()

    def open(self) -> bool:
        """Start NVML and find the GPU; whether it can be read now."""
        try:
            nvml = importlib.import_module("pynvml")
        except (ImportError, OSError) as error:
            self._report("NVML", error)
            return False

        def start() -> bool:
            nvml.nvmlInit()
            return True

        if not self._value(nvml, "NVML", start):
            return False
        self._nvml = nvml
        self._handle = self._value(
            nvml, "device", lambda: nvml.nvmlDeviceGetHandleByUUID(self._name)
        )
        return self._handle is not None

    def close(self) -> None:
        """Let NVML go. A later reading gives no value."""
        nvml, self._nvml, self._handle = self._nvml, None, None
        gpm, self._gpm = self._gpm, None
        if nvml is not None:
            if gpm is not None:
                self._value(nvml, "shutdown", gpm.close)
            self._value(nvml, "shutdown", nvml.nvmlShutdown)

    def index(self) -> int | None:
        """NVML's number of the device."""
        return self._read("device_index", lambda nvml, gpu: int(nvml.nvmlDeviceGetIndex(gpu)))

    def read(self) -> GpuReading:
        """Everything now; each field for itself may be None."""
        activity = self._read("gpu_sm_active_pct", self._activity_pct) or (None, None)
        return GpuReading(
            self._read("gpu_util_pct", _utilization_pct),
            self._read("gpu_mem_used_bytes", _memory_used_bytes),
            self._read("gpu_power_w", _power_w),
            self._read("gpu_process_mem_bytes", _process_memory_bytes),
            self._read("gpu_sm_clock_mhz", lambda nvml, gpu: _clock_mhz(nvml, gpu, _SM_CLOCK)),
            self._read("gpu_mem_clock_mhz", lambda nvml, gpu: _clock_mhz(nvml, gpu, _MEM_CLOCK)),
            self._read("gpu_temperature_c", _temperature_c),
            self._read("gpu_slowed_by", _slowed_by),
            *activity,
        )

    def _activity_pct(self, nvml: ModuleType, handle: Any) -> tuple[float, float] | None:
        if self._gpm is None:
            self._gpm = GpmCounters(nvml, handle)
        return self._gpm.activity_pct()

    def _read(self, field: str, read: Callable[[ModuleType, Any], _T]) -> _T | None:
        nvml, handle = self._nvml, self._handle
        if nvml is None or handle is None:
            return None
        return self._value(nvml, field, lambda: read(nvml, handle))

    def _value(self, nvml: ModuleType, field: str, read: Callable[[], _T]) -> _T | None:
        try:
            return read()
        # AttributeError: a pynvml older than the call; OSError: a driver library that went away.
        except (nvml.NVMLError, OSError, AttributeError) as error:
            self._report(field, error)
            return None

    def _report(self, field: str, error: Exception) -> None:
        if field not in self._reported:
            self._reported.add(field)
            _log.info("no value for %s: %s", field, error)


def _utilization_pct(nvml: ModuleType, handle: Any) -> float:
    return float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)


def _memory_used_bytes(nvml: ModuleType, handle: Any) -> int:
    return int(nvml.nvmlDeviceGetMemoryInfo(handle).used)


def _power_w(nvml: ModuleType, handle: Any) -> float:
    return float(nvml.nvmlDeviceGetPowerUsage(handle)) / 1000.0  # NVML says milliwatts


def _process_memory_bytes(nvml: ModuleType, handle: Any) -> int | None:
    # In a container the numbers may be another namespace's; Windows' own driver gives no bytes.
    for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
        if process.pid == os.getpid() and process.usedGpuMemory is not None:
            return int(process.usedGpuMemory)
    return None


def _clock_mhz(nvml: ModuleType, handle: Any, clock: int) -> int:
    return int(nvml.nvmlDeviceGetClockInfo(handle, clock))


def _temperature_c(nvml: ModuleType, handle: Any) -> int:
    return int(nvml.nvmlDeviceGetTemperature(handle, _GPU_SENSOR))


def _slowed_by(nvml: ModuleType, handle: Any) -> tuple[str, ...]:
    # The name that old and new drivers know.
    bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return tuple(words for bit, words in SLOWDOWNS.items() if bits & bit)
