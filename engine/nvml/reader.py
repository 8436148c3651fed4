"""The process that reads NVML: a line on stdin asks, a line of JSON on stdout answers.

`link` starts it with the watched GPU's UUID ("" for none) and the pid whose memory is told. It
ends with its stdin, that is with the program, even when that crashes; and by itself when a
reading takes too long, so that a driver that hangs leaves nothing behind.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import IO, Any

from engine.nvml.gpus import Gpus, GpusLost
from engine.nvml.readings import NvmlAnswer

# The program's own name for this command; no person types it.
COMMAND = "read-nvml"
# A driver that sleeps takes seconds to wake; later a reading takes milliseconds.
START_TIMEOUT_S = 15.0
READ_TIMEOUT_S = 3.0
_SLACK_S = 2.0  # whoever asked gives it up first, if there is still somebody


def main(arguments: Sequence[str]) -> int:
    """Answer until stdin ends (0), or say why there is nothing to read and end (1)."""
    uuid, pid = arguments
    answers = _own_stdout()
    try:
        _serve(answers, uuid, int(pid))
    except BrokenPipeError:  # nobody reads any more
        return 0
    except (ImportError, OSError, GpusLost) as error:
        _say(answers, {"error": str(error)})
        return 1
    return 0


def _serve(answers: IO[str], uuid: str, pid: int) -> None:
    gpus: Gpus | None = None
    told: set[str] = set()
    for _ in sys.stdin:
        with _ending_after(_SLACK_S + (READ_TIMEOUT_S if gpus else START_TIMEOUT_S)):
            if gpus is None:
                nvml = importlib.import_module("pynvml")
                try:
                    gpus = Gpus(nvml, uuid, pid)
                except nvml.NVMLError as error:
                    raise GpusLost(str(error)) from error
            watched, others = gpus.read()
        missing = {field: why for field, why in gpus.missing.items() if field not in told}
        told |= missing.keys()
        _say(answers, asdict(NvmlAnswer(watched, others, time.process_time(), missing)))


def _own_stdout() -> IO[str]:
    """The pipe for answers alone: what a driver prints goes to stderr from now on."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def _say(answers: IO[str], fields: dict[str, Any]) -> None:
    answers.write(json.dumps(fields) + "\n")
    answers.flush()


@contextmanager
def _ending_after(seconds: float) -> Iterator[None]:
    """End this process where the block takes longer, also while native code hangs."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
