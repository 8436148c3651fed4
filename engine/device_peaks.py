"""Measures what the device can do at most: matmul FLOP/s by dtype, read bandwidth by working set.

Measured once for a device, torch build and thread count, and kept in the cache folder: MFU and
MBU are shares of these figures. What was measured while other programs kept the processor busy
serves for this load and is not kept. A caller must not time anything else meanwhile.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import torch

from engine.paths import cache_folder
from engine.peaks import DevicePeaks

log = logging.getLogger("engine.load")

# Rows, inner columns, columns. The CPU's is the one its libraries are quickest at.
_MATMUL_SHAPES = {"cpu": (768, 2048, 1536), "cuda": (4096, 4096, 4096)}
_WORKING_SETS = {
    "cpu": (1 << 20, 8 << 20, 32 << 20, 128 << 20, 512 << 20),
    "cuda": (16 << 20, 64 << 20, 256 << 20, 1 << 30),
}
# A processor without BF16 multiplies it a hundred times slower than FP32: the whole product would
# take seconds, a hundredth of its rows tells as much.
_EMULATED, _TRIAL_SHARE = 0.1, 96
# A shared machine's memory gives half for seconds at a time: a roof is the best of tries apart.
_ROUNDS = 4
_LEAST_REPEATS, _LEAST_S = 3, 0.04
_FILE_VERSION = 3
# Share of all cores that other programs may take while the figures are measured.
_QUIET = 0.1


def stored_peaks(device: torch.device, threads: int) -> DevicePeaks | None:
    """The figures measured earlier on this device, or None."""
    path = _path(device, threads)
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        rates = tuple((int(size), float(rate)) for size, rate in data["read_bandwidth"])
        flops = {str(k): float(v) for k, v in data["matmul_flops"].items()}
        return DevicePeaks(flops, rates) if rates and flops else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.info("measuring the device again, %s is unreadable: %s", path.name, error)
        return None


def measure_peaks(device: torch.device, threads: int) -> Iterator[float | DevicePeaks]:
    """Measure and store; yields the share done after each round, then the figures."""
    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16}
    if device.type == "cuda":
        dtypes["fp16"] = torch.float16
    flops = dict.fromkeys(dtypes, 0.0)
    rates = dict.fromkeys(_WORKING_SETS[device.type], 0.0)
    company = _Company()
    for done in range(1, _ROUNDS + 1):
        for name, dtype in dtypes.items():
            hopeless = _EMULATED * flops["fp32"]
            flops[name] = max(flops[name], _matmul_flops(device, dtype, hopeless))
        for size in rates:
            rates[size] = max(rates[size], _read_rate(device, size))
        yield done / _ROUNDS
    share = company.share()
    peaks = DevicePeaks(flops, tuple(rates.items()), is_quiet=share <= _QUIET)
    if peaks.is_quiet:
        _store(_path(device, threads), peaks)
    else:
        log.info("the device's figures are not kept: others took %.0f %% of it", 100 * share)
    yield peaks


class _Company:
    """How much of the processor other programs take from now on."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._start = self._times()

    def share(self) -> float:
        """Share of all cores' time since the start, 0 to 1."""
        wall, busy, own = (now - then for now, then in zip(self._times(), self._start, strict=True))
        return max(0.0, busy - own) / wall if wall > 0 else 0.0

    def _times(self) -> tuple[float, float, float]:
        """Seconds of all cores together: passed, not idle (a host's neighbours too), our own."""
        cores, own = psutil.cpu_times(), self._process.cpu_times()
        waiting = cores.idle + getattr(cores, "iowait", 0.0)
        # On Linux guests' time is part of the user's.
        passed = sum(cores) - getattr(cores, "guest", 0.0) - getattr(cores, "guest_nice", 0.0)
        return passed, passed - waiting, own.user + own.system


def _matmul_flops(device: torch.device, dtype: torch.dtype, hopeless: float) -> float:
    """FLOP/s of products; where a few rows stay below `hopeless`, it is theirs."""
    all_rows, inner, columns = _MATMUL_SHAPES[device.type]
    a = torch.randn(all_rows, inner, device=device).to(dtype)
    b = torch.randn(inner, columns, device=device).to(dtype)

    def measured(rows: int) -> float:
        seconds = _best_seconds(lambda: torch.mm(a[:rows], b), device)
        return 2 * rows * inner * columns / seconds

    few = measured(max(1, all_rows // _TRIAL_SHARE))
    return few if few < hopeless else measured(all_rows)


def _read_rate(device: torch.device, size: int) -> float:
    # Ones: pages of zeros that nobody wrote are one and the same page, which the caches hold.
    data = torch.ones(size // 4, dtype=torch.float32, device=device)
    # Neither reduction is the quicker one at every size.
    return size / min(_best_seconds(read, device) for read in (data.sum, data.amax))


def _best_seconds(operation: Callable[[], object], device: torch.device) -> float:
    operation()
    times: list[float] = []
    while len(times) < _LEAST_REPEATS or sum(times) < _LEAST_S:
        _synchronize(device)
        start = time.perf_counter()
        operation()
        _synchronize(device)
        times.append(time.perf_counter() - start)
    return min(times)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _path(device: torch.device, threads: int) -> Path:
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        name = f"{platform.machine()}-{torch.backends.cpu.get_cpu_capability()}-{os.cpu_count()}"
    parts = [device.type, name, f"torch-{torch.__version__}", f"threads-{threads}"]
    key = "_".join(parts).replace(" ", "-").replace("/", "-")
    return cache_folder() / "device-peaks" / f"v{_FILE_VERSION}_{key}.json"


def _store(path: Path, peaks: DevicePeaks) -> None:
    data = {"matmul_flops": peaks.matmul_flops, "read_bandwidth": peaks.read_bandwidth}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data), encoding="utf-8")
    except OSError as error:
        log.info("the device's figures could not be kept: %s", error)
