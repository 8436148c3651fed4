"""Asks the process that reads NVML, and does without it where it crashes or hangs."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine.nvml.reader import COMMAND, READ_TIMEOUT_S, START_TIMEOUT_S
from engine.nvml.readings import NvmlAnswer, answer_from

# A reader that ended is started again so many seconds later, and after the last one no more: a
# driver that is being updated comes back, one that crashes would do so for ever.
RESTART_DELAYS_S = (1.0, 5.0, 30.0, 120.0)
_END_TIMEOUT_S = 0.5

_log = logging.getLogger("engine.sensors")


class NvmlLink:
    """Owns the reader of one program. Used from one thread.

    `device_uuid` is the GPU to watch; "" watches none. A failure costs the values until the next
    start and a line in the log, never an exception.
    """

    def __init__(self, device_uuid: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._uuid = device_uuid
        self._clock = clock
        self._reader: _Reader | None = None
        self._num_failures = 0
        self._start_at = clock()
        self._is_closed = False
        self._problem = ""
        self._ended_cpu_s = 0.0
        self._cpu_s = 0.0

    def read(self) -> NvmlAnswer:
        """All GPUs now: some ms; the first time NVML is started, which may take seconds."""
        if self._reader is None and not self._may_start():
            return self._nothing()
        try:
            if self._reader is None:
                self._reader = _Reader(self._uuid)
            return self._counted(_answer(self._reader.ask()))
        except (OSError, ValueError) as error:
            self._note_failure(str(error))
            return self._nothing()

    def close(self) -> None:
        """End the process. A later reading gives no value."""
        self._is_closed = True
        self._end_reader()

    def _may_start(self) -> bool:
        is_given_up = self._num_failures > len(RESTART_DELAYS_S)
        return not self._is_closed and not is_given_up and self._clock() >= self._start_at

    def _nothing(self) -> NvmlAnswer:
        return NvmlAnswer(cpu_s=self._ended_cpu_s, problem=self._problem)

    def _counted(self, answer: NvmlAnswer) -> NvmlAnswer:
        """With the time of the processes before it."""
        self._cpu_s = answer.cpu_s
        return replace(answer, cpu_s=self._ended_cpu_s + answer.cpu_s)

    def _note_failure(self, why: str) -> None:
        self._end_reader()
        self._ended_cpu_s, self._cpu_s = self._ended_cpu_s + self._cpu_s, 0.0
        if self._num_failures < len(RESTART_DELAYS_S):
            delay_s = RESTART_DELAYS_S[self._num_failures]
            self._start_at = self._clock() + delay_s
            self._problem = f"{why}; tried again in {delay_s:.0f} s"
        else:
            self._problem = f"{why}; left alone until the program starts again"
        self._num_failures += 1
        _log.info("no values from NVML: %s", self._problem)

    def _end_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.end()


class _Reader:
    """One process. `ask` raises OSError where no answer comes in time."""

    def __init__(self, uuid: str) -> None:
        self._timeout_s = START_TIMEOUT_S
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._process = subprocess.Popen(
            [*reader_command(), uuid, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        # A pipe cannot be read with a time-out on every platform, a queue can.
        self._forwarder = threading.Thread(
            target=_forward, args=(self._process, self._lines), name="NVML answers", daemon=True
        )
        self._forwarder.start()

    def ask(self) -> bytes:
        """The line that answers."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it is gone: the end of its stdout says so
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
        try:
            line = self._lines.get(timeout=self._timeout_s)
        except queue.Empty:
            raise OSError(f"the driver gave no answer within {self._timeout_s:.0f} s") from None
        if line is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_TIMEOUT_S)
            raise OSError(_ending(self._process.returncode))
        self._timeout_s = READ_TIMEOUT_S
        return line

    def end(self) -> None:
        """Close its stdin, and kill it where it does not mind."""
        process = self._process
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # what was still to be written has no reader
            process.stdin.close()
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            # One that hangs inside of the driver cannot even be killed.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_TIMEOUT_S)
        self._forwarder.join(_END_TIMEOUT_S)


def first_gpu_name() -> str | None:
    """How NVML calls the machine's first GPU; None where there is none, or no driver."""
    link = NvmlLink("")
    try:
        gpus = link.read().others
    finally:
        link.close()
    return gpus[0].name if gpus else None


def reader_command() -> list[str]:
    """What starts the reader, its arguments to follow: a bundle is its own executable."""
    if getattr(sys, "frozen", False):
        return [sys.executable, COMMAND]
    return [sys.executable, "-P", "-m", "engine.nvml.reader"]


def _answer(line: bytes) -> NvmlAnswer:
    """Raises ValueError, with the reason that the process gave where it gave one."""
    fields = json.loads(line)
    if isinstance(fields, dict) and "error" in fields:
        raise ValueError(fields["error"])
    answer = answer_from(fields)
    for field, why in answer.missing.items():
        _log.info("no value for %s: %s", field, why)
    return answer


def _ending(returncode: int | None) -> str:
    if returncode is not None and returncode < 0:
        return f"the process that asks the driver crashed ({signal.strsignal(-returncode)})"
    return f"the process that asks the driver ended with {returncode}"


def _forward(process: subprocess.Popen[bytes], lines: queue.Queue[bytes | None]) -> None:
    assert process.stdout is not None
    with process.stdout as stdout:
        for line in stdout:
            lines.put(line)
    lines.put(None)


def _environment() -> dict[str, str]:
    """This process' own, with the packages of this very program before any others."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
