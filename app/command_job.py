"""One of the program's own commands in a process of its own.

So that long work neither fights the engine for torch's threads and the interpreter nor leaves its
memory behind, and ends when the window does, even when that crashes: see engine/json_lines.py.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import psutil
from PySide6.QtCore import QObject, QProcess

from app.engine_link.worker import EngineProblem

log = logging.getLogger("app.command_job")

# Native code is not interrupted: a matrix of a large model takes seconds to factor.
CLOSE_MS = 20_000
NICENESS = 10


# The fields of a step; the fields of the result, why there is none, or None when it was stopped.
OnProgress: TypeAlias = Callable[[dict[str, Any]], object]
OnEnd: TypeAlias = Callable[[dict[str, Any] | EngineProblem | None], object]


class CommandJob(QObject):
    """Runs one command at a time, at a low priority. GUI thread only."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._process: QProcess | None = None
        self._on_progress: OnProgress = _ignore
        self._on_end: OnEnd = _ignore
        self._outcome: dict[str, Any] | EngineProblem | None = None
        self._is_stopping = False

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None

    def start(self, arguments: Sequence[str], on_progress: OnProgress, on_end: OnEnd) -> None:
        """Run a command that knows `--progress json`; the one before must have ended."""
        if self._process is not None:
            raise RuntimeError("a command is running")
        self._on_progress, self._on_end = on_progress, on_end
        self._outcome, self._is_stopping = None, False
        program, *before = own_command()
        process = QProcess(self)
        process.setProgram(program)
        process.setArguments([*before, *arguments, "--progress", "json"])
        process.started.connect(self._yield_to_the_window)
        process.readyReadStandardOutput.connect(self._read)
        process.errorOccurred.connect(self._on_error)
        process.finished.connect(self._on_finished)
        self._process = process
        process.start()

    def stop(self) -> None:
        """Make the command end as soon as it can; it removes what is half made."""
        if self._process is not None:
            self._is_stopping = True
            self._process.closeWriteChannel()

    def close(self) -> None:
        """Stop and wait for the end, for a window that is closing."""
        if self._process is None:
            return
        self.stop()
        self._process.finished.disconnect(self._on_finished)
        if not self._process.waitForFinished(CLOSE_MS):
            log.warning("a command did not end in time and was killed")
            self._process.kill()
            self._process.waitForFinished()
        self._drop()

    # --- private --------------------------------------------------------------------------

    def _yield_to_the_window(self) -> None:
        assert self._process is not None
        try:
            psutil.Process(self._process.processId()).nice(_low_priority())
        except psutil.Error as error:  # it may be over already
            log.info("the command keeps its priority: %s", error)

    def _read(self) -> None:
        process = self._process
        while process is not None and process.canReadLine():
            self._take(bytes(process.readLine().data()))

    def _take(self, line: bytes) -> None:
        try:
            [(kind, fields)] = json.loads(line).items()
        except (ValueError, AttributeError):
            log.info("not a line of ours: %r", line)
            return
        if kind == "progress":
            self._on_progress(fields)
        elif kind == "error":
            self._outcome = EngineProblem(fields["what"], fields["why"], fields["next"])
        else:
            self._outcome = fields

    def _on_error(self, error: QProcess.ProcessError) -> None:
        if error is QProcess.ProcessError.FailedToStart and self._process is not None:
            self._end(self._unexpected(self._process.errorString()))

    def _on_finished(self, code: int, status: QProcess.ExitStatus) -> None:
        assert self._process is not None
        self._read()
        words = bytes(self._process.readAllStandardError().data()).decode("utf-8", "replace")
        if words.strip():
            log.info("the command said: %s", words.strip())
        if self._outcome is not None:
            self._end(self._outcome)
        elif self._is_stopping:
            self._end(None)
        elif status is QProcess.ExitStatus.CrashExit:
            reason = self.tr("It was ended from outside, as happens when memory runs out.")
            self._end(self._unexpected(reason))
        else:
            last = words.strip().rpartition("\n")[2].partition(": ")[2]
            self._end(self._unexpected(last or self.tr("Exit code {0}.").format(code)))

    def _end(self, outcome: dict[str, Any] | EngineProblem | None) -> None:
        self._drop()
        self._on_end(outcome)

    def _drop(self) -> None:
        if self._process is not None:
            self._process.deleteLater()
            self._process = None

    def _unexpected(self, reason: str) -> EngineProblem:
        return EngineProblem(
            self.tr("The process ended before its work was done."),
            reason,
            self.tr("The log has the details. Try again."),
        )


def _ignore(_fields: object) -> None:
    """Nobody has asked yet."""


def _low_priority() -> int:
    if sys.platform == "win32":
        return psutil.BELOW_NORMAL_PRIORITY_CLASS
    return NICENESS


def own_command() -> list[str]:
    """How this program starts itself: a bundle is its own executable, otherwise by its module."""
    if getattr(sys, "frozen", False):
        return [sys.executable]
    # -P: a folder named app where the person happens to be must not be taken for ours.
    return [sys.executable, "-P", "-m", "app.main"]
