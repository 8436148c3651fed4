"""Configurations chosen by timing on the device at hand, once, and kept in a file.

Triton's own autotuner chooses at a kernel's first call, which may be in the middle of an answer;
here a choice is made when a model is loaded, and found in the file at the next load.
"""

from __future__ import annotations

import json
import logging
import os
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch

_log = logging.getLogger("kernels.gpu")

_REPEATS = 5
# More than the L2 cache of any GPU, so that weights come from memory as they do in an answer.
_FLUSH_BYTES = 256 << 20
# Flushing takes long enough for the host to enqueue all launches of a run meanwhile: the time
# between them would be booked to configurations with two launches.
_FLUSHES = 4


Timer = Callable[[Callable[[], object]], float]


@dataclass(frozen=True, slots=True)
class LinearConfig:
    """Columns a program owns, parts that K is cut into, warps, and loads ahead of their use.

    `stages` is the depth of the software pipeline of the tensor-core kernels, and how many
    blocks of K the one-row kernels unroll.
    """

    block_n: int
    splits: int
    num_warps: int
    stages: int


class TuningFile:
    """The choices for one device and one version of Triton: a JSON object, key to configuration.

    `folder` None keeps them for this process only. A file that cannot be read is as none.
    """

    def __init__(self, folder: Path | None, device_name: str, triton_version: str) -> None:
        words = f"{device_name} triton {triton_version}".lower()
        name = re.sub(r"[^a-z0-9.]+", "-", words).strip("-")
        self._path = None if folder is None else folder / f"{name}.json"
        self._choices: dict[str, LinearConfig] = self._read()

    def get(self, key: str) -> LinearConfig | None:
        """The choice under `key`, None when there is none yet."""
        return self._choices.get(key)

    def put(self, key: str, config: LinearConfig) -> None:
        """Keep a choice; a folder that cannot be written costs only the next load's time."""
        self._choices[key] = config
        if self._path is None:
            return
        text = json.dumps({k: asdict(c) for k, c in self._choices.items()}, indent=1)
        partial = self._path.with_suffix(f".{os.getpid()}.part")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(text, encoding="utf-8")
            partial.replace(self._path)
        except OSError as error:
            _log.info("cannot keep kernel configurations in %s: %s", self._path, error)

    def _read(self) -> dict[str, LinearConfig]:
        if self._path is None or not self._path.exists():
            return {}
        names = {field.name for field in fields(LinearConfig)}
        try:
            stored = json.loads(self._path.read_text(encoding="utf-8"))
            return {
                key: LinearConfig(**values)
                for key, values in stored.items()
                if set(values) == names and all(type(value) is int for value in values.values())
            }
        except (OSError, ValueError, AttributeError, TypeError) as error:
            _log.info("kernel configurations in %s are made anew: %s", self._path, error)
            return {}


def fastest(
    candidates: Sequence[LinearConfig], run: Callable[[LinearConfig], object], timer: Timer
) -> LinearConfig:
    """The candidate whose `run` takes least time; those that a device refuses are left out.

    Raises RuntimeError when it refuses all: the last refusal.
    """
    times: list[tuple[float, LinearConfig]] = []
    refusal: Exception | None = None
    for config in candidates:
        try:
            times.append((timer(lambda config=config: run(config)), config))  # type: ignore[misc]
        except Exception as error:  # noqa: BLE001  the compiler's and driver's have no common type
            _log.info("%s does not run here: %s", config, error)
            refusal = error
    if not times:
        raise RuntimeError("no configuration of the kernel runs on this device") from refusal
    return min(times, key=lambda pair: pair[0])[1]


def time_on_device(run: Callable[[], object]) -> float:
    """Median milliseconds of `run` on the current CUDA device, caches cold, compilation apart."""
    run()
    flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    times: list[float] = []
    for _ in range(_REPEATS):
        for _ in range(_FLUSHES):
            flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)
