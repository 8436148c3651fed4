"""Reads every GPU through NVML. Runs in the reader's process only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from engine.nvml.gpm import GpmCounters
from engine.nvml.readings import SLOWDOWNS, GpuReading

_T = TypeVar("_T")

# Numbers of nvml.h, which pynvml has had under changing names.
_SM_CLOCK, _MEM_CLOCK, _GPU_SENSOR = 1, 2, 0
# What a driver that went away still answers.
_NOT_MEASURED = {"index", "name"}


class GpusLost(Exception):
    """No GPU gives any value any more: the driver is gone, or all of them fell off the bus."""


class Gpus:
    """All GPUs of this machine. Raises NVMLError where NVML does not start.

    `uuid` names the one to watch, with or without NVML's "GPU-" in front ("MIG-" is a part of a
    GPU); CUDA's device numbers are not NVML's. `pid` is the process whose memory is told.
    """

    def __init__(self, nvml: Any, uuid: str, pid: int) -> None:
        nvml.nvmlInit()
        self._nvml = nvml
        self._pid = pid
        self.missing: dict[str, str] = {}
        handles = {}
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = self._value("device", _handle_reader(nvml, index))
            if handle is not None:
                handles[self._uuid(handle) or f"unnamed {index}"] = handle
        watched = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        if uuid and watched not in handles:
            part = self._value("device_index", lambda: nvml.nvmlDeviceGetHandleByUUID(watched))
            if part is not None:
                handles[watched] = part
        self._watched = handles.pop(watched, None)
        self._others = list(handles.values())
        self._gpm: dict[int, GpmCounters] = {}

    def read(self) -> tuple[GpuReading | None, tuple[GpuReading, ...]]:
        """The watched one and the others, now; each field for itself may be None.

        `missing` then has the fields without a value and why, all since the beginning. Raises
        GpusLost.
        """
        watched = None if self._watched is None else self._reading(0, self._watched)
        others = tuple(self._reading(i, each) for i, each in enumerate(self._others, start=1))
        present = [each for each in (watched, *others) if each is not None]
        if not any(_is_measured(each) for each in present):
            raise GpusLost("; ".join(sorted(set(self.missing.values()))) or "there is no GPU")
        return watched, others

    def _reading(self, key: int, handle: Any) -> GpuReading:
        nvml, read = self._nvml, self._value
        activity = read("gpu_sm_active_pct", lambda: self._activity_pct(key, handle))
        sm_active, dram_active = activity or (None, None)
        return GpuReading(
            index=read("device_index", lambda: int(nvml.nvmlDeviceGetIndex(handle))),
            name=read("gpu_name", lambda: _text(nvml.nvmlDeviceGetName(handle))),
            util_pct=read(
                "gpu_util_pct", lambda: float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
            ),
            mem_used_bytes=read(
                "gpu_mem_used_bytes", lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
            ),
            power_w=read(  # NVML says milliwatts
                "gpu_power_w", lambda: float(nvml.nvmlDeviceGetPowerUsage(handle)) / 1000.0
            ),
            process_mem_bytes=read("gpu_process_mem_bytes", lambda: self._process_bytes(handle)),
            sm_clock_mhz=read("gpu_sm_clock_mhz", lambda: self._clock_mhz(handle, _SM_CLOCK)),
            mem_clock_mhz=read("gpu_mem_clock_mhz", lambda: self._clock_mhz(handle, _MEM_CLOCK)),
            temperature_c=read(
                "gpu_temperature_c",
                lambda: int(nvml.nvmlDeviceGetTemperature(handle, _GPU_SENSOR)),
            ),
            slowed_by=read("gpu_slowed_by", lambda: self._slowed_by(handle)),
            sm_active_pct=sm_active,
            dram_active_pct=dram_active,
        )

    def _process_bytes(self, handle: Any) -> int | None:
        # In a container the numbers may be another namespace's; Windows' own driver gives no bytes.
        for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle):
            if process.pid == self._pid and process.usedGpuMemory is not None:
                return int(process.usedGpuMemory)
        return None

    def _clock_mhz(self, handle: Any, clock: int) -> int:
        return int(self._nvml.nvmlDeviceGetClockInfo(handle, clock))

    def _slowed_by(self, handle: Any) -> tuple[str, ...]:
        # The name that old and new drivers know.
        bits = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        return tuple(words for bit, words in SLOWDOWNS.items() if bits & bit)

    def _activity_pct(self, key: int, handle: Any) -> tuple[float, float] | None:
        if key not in self._gpm:
            self._gpm[key] = GpmCounters(self._nvml, handle)
        return self._gpm[key].activity_pct()

    def _uuid(self, handle: Any) -> str | None:
        return self._value("device", lambda: _text(self._nvml.nvmlDeviceGetUUID(handle)))

    def _value(self, field: str, read: Callable[[], _T]) -> _T | None:
        try:
            return read()
        # AttributeError: a pynvml older than the call; OSError: a driver library that went away.
        except (self._nvml.NVMLError, OSError, AttributeError) as error:
            self.missing.setdefault(field, str(error))
            return None


def _handle_reader(nvml: Any, index: int) -> Callable[[], Any]:
    return lambda: nvml.nvmlDeviceGetHandleByIndex(index)


def _is_measured(reading: GpuReading) -> bool:
    names = (field.name for field in fields(reading) if field.name not in _NOT_MEASURED)
    return any(getattr(reading, name) is not None for name in names)


def _text(value: str | bytes) -> str:
    """Older releases of pynvml give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
