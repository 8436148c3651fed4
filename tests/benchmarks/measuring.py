"""What the benchmark scripts share: a quiet machine, our own `bench`, JSON from a child."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
QUIET_PERCENT = 8.0  # of all cores: an idle desktop stays below


@dataclass(frozen=True)
class Workload:
    """The same work for every side. `model` None is the starter model."""

    model: Path | None
    weights: str
    threads: int
    prompt_tokens: int
    generate: int


def wait_until_quiet(limit_s: float = 30.0) -> float:
    """Wait until the machine is idle for a second, so that nothing else is timed along.

    Returns the busy share of all cores in percent at the end, above QUIET_PERCENT when
    `limit_s` ran out: the caller reports it with the figures.
    """
    deadline = time.monotonic() + limit_s
    while True:
        busy = psutil.cpu_percent(interval=1.0)
        if busy <= QUIET_PERCENT or time.monotonic() > deadline:
            return busy


def run_engine_bench(work: Workload, repeat: int = 1) -> dict[str, Any]:
    """One process of `python -m engine.bench`: the JSON object of its last line."""
    command = [sys.executable, "-m", "engine.bench", "--json", "--repeat", str(repeat)]
    command += ["--weights", work.weights, "--threads", str(work.threads)]
    command += ["--prompt-tokens", str(work.prompt_tokens), "--generate", str(work.generate)]
    if work.model is not None:
        command += ["--model", str(work.model)]
    return run_for_json(command)


def run_for_json(
    command: Sequence[str], environment: dict[str, str] | None = None
) -> dict[str, Any]:
    """Run a command in the checkout's root; the JSON object of its last line. As run_checked."""
    return last_json_line(run_checked(command, environment))


def run_checked(command: Sequence[str], environment: dict[str, str] | None = None) -> str:
    """Run a command in the checkout's root, `environment` added to ours; its stdout.

    Raises SystemExit with the command's last words on stderr when it fails.
    """
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last_words = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise SystemExit(f"{' '.join(command)}\nfailed: {last_words}")
    return done.stdout


def last_json_line(stdout: str) -> dict[str, Any]:
    """The object that a script of ours prints last."""
    result: dict[str, Any] = json.loads(stdout.strip().splitlines()[-1])
    return result


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Median of the ratios of neighbours: each pair ran under the same conditions."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def machine() -> str:
    """The processor in a few words, for the record."""
    for line in _cpu_info():
        if line.startswith("model name"):
            return f"{line.partition(':')[2].strip()}, {psutil.cpu_count(logical=False)} cores"
    return f"{psutil.cpu_count(logical=False)} cores"


def _cpu_info() -> list[str]:
    file = Path("/proc/cpuinfo")
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []
