"""One GPU as NVML reports it; what it cannot give is None and logged once, never an exception."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

_log = logging.getLogger("engine.sensors")
_T = TypeVar("_T")


class NvmlGpu:
    """The GPU with this UUID (with or without NVML's "GPU-" in front). Used from one thread.

    CUDA's device numbers are not NVML's, hence the UUID. NVML starts with the first `open`.
    """

    def __init__(self, uuid: str) -> None:
        self._name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        self._nvml: ModuleType | None = None
        self._handle: Any = None
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
        if nvml is not None:
            self._value(nvml, "shutdown", nvml.nvmlShutdown)

    def index(self) -> int | None:
        """NVML's number of the device."""
        return self._read("device_index", lambda nvml, gpu: int(nvml.nvmlDeviceGetIndex(gpu)))

    def utilization_pct(self) -> float | None:
        """The share of NVML's last sample period in which some kernel ran."""
        return self._read(
            "gpu_util_pct", lambda nvml, gpu: float(nvml.nvmlDeviceGetUtilizationRates(gpu).gpu)
        )

    def memory_used_bytes(self) -> int | None:
        """What all processes together have taken."""
        return self._read(
            "gpu_mem_used_bytes", lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).used)
        )

    def power_w(self) -> float | None:
        """Board power."""
        # NVML says milliwatts.
        return self._read(
            "gpu_power_w", lambda nvml, gpu: float(nvml.nvmlDeviceGetPowerUsage(gpu)) / 1000.0
        )

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
