"""What the machine itself reports: NVML for its GPUs, psutil for this process.

A reading that a machine cannot give is None, logged once, never an exception: WSL and some
laptops answer NotSupported, CPU-only machines have no NVML at all.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import psutil

from engine.cpu_state import OthersLoad, read_cpu_clock
from engine.nvml.link import NvmlLink
from engine.nvml.readings import GpuReading, NvmlAnswer
from engine.power_state import read_power_state

_log = logging.getLogger("engine.sensors")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SensorSample:
    """One reading of all sensors; None means that this machine gives no value.

    `t_ns` is `time.perf_counter_ns`. The GPU of the fields is the one that the model runs on;
    `other_gpus` are the rest. `gpu_util_pct` is NVML's figure: the share of its last sample period
    (1/6 to 1 s) in which some kernel ran. `cpu_util_pct` is this process' time since the previous
    reading, as a percentage of all cores (0 to 100), `others_cpu_pct` all other processes'. The
    fields from `gpu_process_mem_bytes` on are those of `GpuReading`, `PowerState` and `CpuClock`.
    `cost_ms` is the processor time that the reading took, with what the process that reads NVML
    took since the reading before. `gpu_problem` is `NvmlAnswer.problem`.
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
    others_cpu_pct: float | None = None
    cpu_clock_mhz: float | None = None
    cpu_base_mhz: float | None = None
    other_gpus: tuple[GpuReading, ...] = ()
    cost_ms: float | None = None
    gpu_problem: str = ""

    @property
    def gpu(self) -> GpuReading:
        """The watched GPU; its name is `ModelLoaded.device_name`."""
        return GpuReading(
            index=self.device_index,
            util_pct=self.gpu_util_pct,
            mem_used_bytes=self.gpu_mem_used_bytes,
            power_w=self.gpu_power_w,
            process_mem_bytes=self.gpu_process_mem_bytes,
            sm_clock_mhz=self.gpu_sm_clock_mhz,
            mem_clock_mhz=self.gpu_mem_clock_mhz,
            temperature_c=self.gpu_temperature_c,
            slowed_by=self.gpu_slowed_by,
            sm_active_pct=self.gpu_sm_active_pct,
            dram_active_pct=self.gpu_dram_active_pct,
        )


class GpuSource(Protocol):
    """Where the GPUs' values come from: an `NvmlLink`, or a fake one."""

    def read(self) -> NvmlAnswer:
        """All GPUs now; never raises."""
        ...

    def close(self) -> None:
        """A later reading gives no value."""
        ...


class Sensors:
    """Reads all GPUs, one of which is watched, and this process. Used from one thread.

    `device_uuid` None: there is no GPU to watch and NVML is never touched, so that polling
    cannot keep a sleeping GPU awake. `link` makes what reads NVML.
    """

    def __init__(
        self,
        device_uuid: str | None,
        clock: Callable[[], int] = time.perf_counter_ns,
        link: Callable[[str], GpuSource] = NvmlLink,
    ) -> None:
        self._clock = clock
        self._gpus = link(device_uuid) if device_uuid is not None else None
        self._gpus_cpu_s = 0.0
        self._reported: set[str] = set()
        self._cores = psutil.cpu_count() or 1
        self._process = psutil.Process()
        # The first call only starts psutil's interval; its own result means nothing.
        self._process.cpu_percent(None)
        self._others = OthersLoad()

    def read(self) -> SensorSample:
        """Read everything now: about a millisecond. The first time NVML is started, which may
        take seconds."""
        began_ns = time.thread_time_ns()
        answer = self._gpus.read() if self._gpus else NvmlAnswer()
        gpu = answer.watched or GpuReading()
        power, cpu_clock = read_power_state(), read_cpu_clock()
        cpu_util_pct = self._process_value("cpu_util_pct", self._cpu_util_pct)
        rss_bytes = self._process_value(
            "process_rss_bytes", lambda: int(self._process.memory_info().rss)
        )
        return SensorSample(
            t_ns=self._clock(),
            device_index=gpu.index,
            gpu_util_pct=gpu.util_pct,
            gpu_mem_used_bytes=gpu.mem_used_bytes,
            gpu_power_w=gpu.power_w,
            cpu_util_pct=cpu_util_pct,
            process_rss_bytes=rss_bytes,
            gpu_process_mem_bytes=gpu.process_mem_bytes,
            gpu_sm_clock_mhz=gpu.sm_clock_mhz,
            gpu_mem_clock_mhz=gpu.mem_clock_mhz,
            gpu_temperature_c=gpu.temperature_c,
            gpu_slowed_by=gpu.slowed_by,
            gpu_sm_active_pct=gpu.sm_active_pct,
            gpu_dram_active_pct=gpu.dram_active_pct,
            on_battery=power.on_battery,
            power_saving=power.is_saving,
            others_cpu_pct=self._process_value("others_cpu_pct", self._others.read_pct),
            cpu_clock_mhz=cpu_clock.mhz,
            cpu_base_mhz=cpu_clock.base_mhz,
            other_gpus=answer.others,
            cost_ms=self._cost_ms(began_ns, answer),
            gpu_problem=answer.problem,
        )

    def close(self) -> None:
        """Let NVML go. A later `read` gives no GPU values."""
        if self._gpus is not None:
            self._gpus.close()

    def _cost_ms(self, began_ns: int, answer: NvmlAnswer) -> float:
        before_s, self._gpus_cpu_s = self._gpus_cpu_s, answer.cpu_s
        return (time.thread_time_ns() - began_ns) / 1e6 + 1e3 * (answer.cpu_s - before_s)

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
