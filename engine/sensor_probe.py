"""Whether NVML can be used at all, found out in a process of its own.

A broken driver library may crash or hang whoever calls it. `python -m engine.sensor_probe UUID`
takes every reading once and prints one JSON line, {"nvml": true or false}; whoever gets no line
in time keeps away from NVML.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from engine.nvml import NvmlGpu

TIMEOUT_S = 5.0
_KILL_TIMEOUT_S = 0.5
_GPM_INTERVAL_S = 0.1  # GPM's counters answer from the second reading on

_log = logging.getLogger("engine.sensors")


def nvml_answers(device_uuid: str, timeout_s: float = TIMEOUT_S) -> bool:
    """Whether NVML finds this GPU and reads it without crashing; waits up to `timeout_s`."""
    command = [sys.executable, "-P", "-m", "engine.sensor_probe", device_uuid, str(timeout_s)]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except OSError as error:
        _log.warning("NVML was not probed and is left alone: %s", error)
        return False
    return _verdict(process, timeout_s)


def _verdict(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        # A process that hangs inside of the driver cannot even be killed: `with process` and
        # `subprocess.run` would wait for it without end.
        with suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_TIMEOUT_S)
        if process.stdout is not None:
            process.stdout.close()
        _log.warning("NVML did not answer within %.0f s and is left alone", timeout_s)
        return False
    if process.returncode:
        _log.warning("NVML ended its process with %d and is left alone", process.returncode)
        return False
    try:
        return bool(json.loads(output) == {"nvml": True})
    except ValueError:
        return False


def _environment() -> dict[str, str]:
    """This process' own, with the packages of this very program before any others."""
    root = str(Path(__file__).resolve().parent.parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def main(device_uuid: str, timeout_s: float) -> None:
    """Take every reading once and say whether the GPU was found."""
    # Also when nobody is left to end it.
    faulthandler.dump_traceback_later(timeout_s, exit=True)
    gpu = NvmlGpu(device_uuid)
    found = gpu.open()
    gpu.index()
    gpu.read()
    time.sleep(_GPM_INTERVAL_S)
    gpu.read()
    gpu.close()
    sys.stdout.write(json.dumps({"nvml": found}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
