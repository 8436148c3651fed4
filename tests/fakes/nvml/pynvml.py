"""A pynvml of two GPUs, found first through PYTHONPATH or put into `sys.modules`.

FAKE_NVML says how it misbehaves, in words between commas: "segfault", "hang" and "no driver" at the
start, "segfault later" and "hang later" from the second reading on, "prints" (what is no answer,
on stdout), "gone" (no call works while the file FAKE_NVML_GONE is there), "no gpm", "no metric", or
the name of a call that is not supported, "name 0" for the first GPU's only.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

NVML_GPM_METRICS_GET_VERSION = 1
NVML_GPM_METRIC_SM_UTIL, NVML_GPM_METRIC_DRAM_BW_UTIL = 2, 10
UUIDS = ("GPU-aaaa", "GPU-bbbb")
ASKING_BYTES = 4_000_000_000

num_samples = num_freed = num_readings = 0


class NVMLError(Exception):
    """Stands for pynvml's base error."""


def nvmlInit() -> None:
    _check("nvmlInit")
    if _is("segfault"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if _is("hang"):
        time.sleep(600)
    if _is("no driver"):
        raise NVMLError("Driver Not Loaded")


def nvmlDeviceGetCount() -> int:
    return len(UUIDS)


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetHandleByUUID(uuid: str) -> int:
    raise NVMLError("Not Found")


def nvmlDeviceGetUUID(handle: int) -> str:
    return UUIDS[handle]


def nvmlDeviceGetName(handle: int) -> bytes:
    return b"Fake GPU"


def nvmlDeviceGetIndex(handle: int) -> int:
    _check("nvmlDeviceGetIndex", handle)
    return handle


def nvmlDeviceGetUtilizationRates(handle: int) -> SimpleNamespace:
    global num_readings
    num_readings += handle == 1
    if _is("segfault later") and num_readings > 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if _is("hang later") and num_readings > 1:
        time.sleep(600)
    if _is("prints"):
        os.write(1, b"NVRM: something odd\n")
    _check("nvmlDeviceGetUtilizationRates", handle)
    return SimpleNamespace(gpu=87 - handle, memory=40)


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    _check("nvmlDeviceGetMemoryInfo", handle)
    return SimpleNamespace(used=5_000_000_000 + handle, total=8_000_000_000)


def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[SimpleNamespace]:
    _check("nvmlDeviceGetComputeRunningProcesses", handle)
    return [
        SimpleNamespace(pid=1, usedGpuMemory=1),
        SimpleNamespace(pid=os.getppid(), usedGpuMemory=ASKING_BYTES),
    ]


def nvmlDeviceGetPowerUsage(handle: int) -> int:
    _check("nvmlDeviceGetPowerUsage", handle)
    return 215_500


def nvmlDeviceGetClockInfo(handle: int, kind: int) -> int:
    _check("nvmlDeviceGetClockInfo", handle)
    return {1: 1_980, 2: 3_201}[kind]


def nvmlDeviceGetTemperature(handle: int, sensor: int) -> int:
    _check("nvmlDeviceGetTemperature", handle)
    return 61


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: int) -> int:
    _check("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return 0x4 | 0x40 if handle else 0x1  # the first one is idle


def nvmlGpmQueryDeviceSupport(handle: int) -> SimpleNamespace:
    _check("nvmlGpmQueryDeviceSupport", handle)
    return SimpleNamespace(isSupportedDevice=int(not _is("no gpm")))


def nvmlGpmSampleAlloc() -> SimpleNamespace:
    return SimpleNamespace(number=0)


def nvmlGpmSampleGet(handle: int, sample: SimpleNamespace) -> None:
    global num_samples
    num_samples += 1
    _check("nvmlGpmSampleGet", handle)
    sample.number = num_samples


def nvmlGpmSampleFree(sample: SimpleNamespace) -> None:
    global num_freed
    num_freed += 1


def c_nvmlGpmMetricsGet_t() -> SimpleNamespace:
    """The request for metrics, between two samples."""
    return SimpleNamespace(metrics=[SimpleNamespace(), SimpleNamespace()])


def nvmlGpmMetricsGet(wanted: SimpleNamespace) -> None:
    if wanted.sample2.number <= wanted.sample1.number:
        raise NVMLError("Invalid Argument")
    for metric in wanted.metrics[: wanted.numMetrics]:
        metric.value = {2: 12.5, 10: 91.0}[metric.metricId]
        metric.nvmlReturn = 3 * _is("no metric")


def _is(word: str) -> bool:
    return word in os.environ.get("FAKE_NVML", "").split(",")


def _check(call: str, handle: int | None = None) -> None:
    if _is("gone") and Path(os.environ["FAKE_NVML_GONE"]).exists():
        raise NVMLError("Driver Not Loaded")
    if _is(call) or _is(f"{call} {handle}"):
        raise NVMLError("Not Supported")
