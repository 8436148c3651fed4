"""What the machine itself reports: NVML for one GPU, psutil for this process.

A reading that a machine cannot give is None, logged once, never an exception: WSL and some
laptops answer NotSupported, CPU-only machines have no NVML at all.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import psutil

from engine.nvml import NvmlGpu
from engine.power_state import read_power_state
from engine.sensor_probe import nvml_answers

_log = logging.getLogger("engine.sensors")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SensorSample:
    """One reading of all sensors; None means that this machine gives no value.

    `t_ns` is `time.perf_counter_ns`. `gpu_util_pct` is NVML's figure: the share of its last
    sample period (1/6 to 1 s) in which some kernel ran. `cpu_util_pct` is this process' time
    since the previous reading, as a percentage of all cores (0 to 100). The fields from
    `gpu_process_mem_bytes` on are those of `GpuReading` and `PowerState`.
    """

    t_ns: int
    device_index: int | None
    gpu_util_pct: float | None
    gpu_mem_used_bytes: int | None
    gpu_power_w: float | None
    cpu_util_pct: float | None
    process_rss_bytes: int | None
    gpu_process_mem_bytes: int | None = None
    gpu_sm_clock_mhz: int | None = None
    gpu_mem_clock_mhz: int | None = None
    gpu_temperature_c: int | None = None
    gpu_slowed_by: tuple[str, ...] | None = None
    gpu_sm_active_pct: float | None = None
    gpu_dram_active_pct: float | None = None
    on_battery: bool | None = None
    power_saving: bool | None = None


class Sensors:
    """Reads one GPU, found by its UUID, and this process. Used from one thread.

    `device_uuid` None: there is no GPU to watch and NVML is never touched, so that polling
    cannot keep a sleeping GPU awake. `probe` says whether NVML may be touched at all.
    """

    def __init__(
        self,
        device_uuid: str | None,
        clock: Callable[[], int] = time.perf_counter_ns,
        probe: Callable[[str], bool] = nvml_answers,
    ) -> None:
        self._uuid = device_uuid
        self._clock = clock
        self._probe = probe
        self._gpu: NvmlGpu | None = None
        self._device_index: int | None = None
        self._gpu_searched = False
        self._reported: set[str] = set()
        self._cores = psutil.cpu_count() or 1
        self._process = psutil.Process()
        # The first call only starts psutil's interval; its own result means nothing.
        self._process.cpu_percent(None)

    def read(self) -> SensorSample:
        """Read everything now: about a millisecond. The first time NVML is probed and started,
        which may take seconds."""
        if self._uuid is not None and not self._gpu_searched:
            self._find_gpu(self._uuid)
        gpu = self._gpu.read() if self._gpu else None
        power = read_power_state()
        return SensorSample(
            t_ns=self._clock(),
            device_index=self._device_index,
            gpu_util_pct=gpu.util_pct if gpu else None,
            gpu_mem_used_bytes=gpu.mem_used_bytes if gpu else None,
            gpu_power_w=gpu.power_w if gpu else None,
            cpu_util_pct=self._process_value("cpu_util_pct", self._cpu_util_pct),
            process_rss_bytes=self._process_value(
                "process_rss_bytes", lambda: int(self._process.memory_info().rss)
            ),
            gpu_process_mem_bytes=gpu.process_mem_bytes if gpu else None,
            gpu_sm_clock_mhz=gpu.sm_clock_mhz if gpu else None,
            gpu_mem_clock_mhz=gpu.mem_clock_mhz if gpu else None,
            gpu_temperature_c=gpu.temperature_c if gpu else None,
            gpu_slowed_by=gpu.slowed_by if gpu else None,
            gpu_sm_active_pct=gpu.sm_active_pct if gpu else None,
            gpu_dram_active_pct=gpu.dram_active_pct if gpu else None,
            on_battery=power.on_battery,
            power_saving=power.is_saving,
        )

    def close(self) -> None:
        """Let NVML go. A later `read` gives no GPU values."""
        gpu, self._gpu, self._device_index = self._gpu, None, None
        self._gpu_searched = True
        if gpu is not None:
            gpu.close()

    def _find_gpu(self, uuid: str) -> None:
        self._gpu_searched = True
        if not self._probe(uuid):
            return
        self._gpu = NvmlGpu(uuid)
        if self._gpu.open():
            self._device_index = self._gpu.index()

    def _process_value(self, field: str, read: Callable[[], _T]) -> _T | None:
        try:
            return read()
        except (psutil.Error, OSError) as error:
            if field not in self._reported:
                self._reported.add(field)
                _log.info("no value for %s: %s", field, error)
            return None

    def _cpu_util_pct(self) -> float:
        return min(100.0, max(0.0, float(self._process.cpu_percent(None)) / self._cores))
