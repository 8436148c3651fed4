"""What the machine itself reports: NVML for one GPU, psutil for this process.

A reading that a machine cannot give is None, logged once, never an exception: WSL and some
laptops answer NotSupported, CPU-only machines have no NVML at all.
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

import psutil

_log = logging.getLogger("engine.sensors")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SensorSample:
    """One reading of all sensors; None means that this machine gives no value.

    `t_ns` is `time.perf_counter_ns`. `gpu_util_pct` is NVML's figure: the share of its last
    sample period (1/6 to 1 s) in which some kernel ran. `cpu_util_pct` is this process' time
    since the previous reading, as a percentage of all cores (0 to 100).
    """

    t_ns: int
    device_index: int | None
    gpu_util_pct: float | None
    gpu_mem_used_bytes: int | None
    gpu_power_w: float | None
    cpu_util_pct: float | None
    process_rss_bytes: int | None


class Sensors:
    """Reads one GPU, found by its UUID, and this process. Used from one thread.

    `device_uuid` None: there is no GPU to watch and NVML is never touched, so that polling
    cannot keep a sleeping GPU awake. CUDA's device numbers are not NVML's, hence the UUID; it
    is accepted with or without NVML's "GPU-" in front.
    """

    def __init__(
        self, device_uuid: str | None, clock: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        self._uuid = device_uuid
        self._clock = clock
        self._nvml: ModuleType | None = None
        self._handle: Any = None
        self._device_index: int | None = None
        self._gpu_searched = False
        self._reported: set[str] = set()
        self._cores = psutil.cpu_count() or 1
        self._process = psutil.Process()
        # The first call only starts psutil's interval; its own result means nothing.
        self._process.cpu_percent(None)

    def read(self) -> SensorSample:
        """Read everything now. Takes about a millisecond, the first time longer (NVML starts)."""
        if self._uuid is not None and not self._gpu_searched:
            self._find_gpu(self._uuid)
        return SensorSample(
            t_ns=self._clock(),
            device_index=self._device_index,
            gpu_util_pct=self._gpu_value("gpu_util_pct", _utilization_pct),
            gpu_mem_used_bytes=self._gpu_value("gpu_mem_used_bytes", _memory_used_bytes),
            gpu_power_w=self._gpu_value("gpu_power_w", _power_w),
            cpu_util_pct=self._process_value("cpu_util_pct", self._cpu_util_pct),
            process_rss_bytes=self._process_value(
                "process_rss_bytes", lambda: int(self._process.memory_info().rss)
            ),
        )

    def close(self) -> None:
        """Let NVML go. A later `read` gives no GPU values."""
        nvml, self._nvml, self._handle, self._device_index = self._nvml, None, None, None
        self._gpu_searched = True
        if nvml is not None:
            self._nvml_value(nvml, "shutdown", nvml.nvmlShutdown)

    def _find_gpu(self, uuid: str) -> None:
        self._gpu_searched = True
        try:
            nvml = importlib.import_module("pynvml")
        except (ImportError, OSError) as error:
            self._report("NVML", error)
            return

        def start() -> bool:
            nvml.nvmlInit()
            return True

        if not self._nvml_value(nvml, "NVML", start):
            return
        self._nvml = nvml
        name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        self._handle = self._nvml_value(
            nvml, "device", lambda: nvml.nvmlDeviceGetHandleByUUID(name)
        )
        if self._handle is not None:
            self._device_index = self._nvml_value(
                nvml, "device_index", lambda: int(nvml.nvmlDeviceGetIndex(self._handle))
            )

    def _gpu_value(self, field: str, read: Callable[[ModuleType, Any], _T]) -> _T | None:
        nvml, handle = self._nvml, self._handle
        if nvml is None or handle is None:
            return None
        return self._nvml_value(nvml, field, lambda: read(nvml, handle))

    def _nvml_value(self, nvml: ModuleType, field: str, read: Callable[[], _T]) -> _T | None:
        try:
            return read()
        # AttributeError: a pynvml older than the call; OSError: a driver library that went away.
        except (nvml.NVMLError, OSError, AttributeError) as error:
            self._report(field, error)
            return None

    def _process_value(self, field: str, read: Callable[[], _T]) -> _T | None:
        try:
            return read()
        except (psutil.Error, OSError) as error:
            self._report(field, error)
            return None

    def _cpu_util_pct(self) -> float:
        return min(100.0, max(0.0, float(self._process.cpu_percent(None)) / self._cores))

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
