"""`--progress json`: a command that another program starts, reads line by line and can stop."""

from __future__ import annotations

import _thread
import argparse
import json
import os
import sys
import threading
from dataclasses import asdict
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypeAlias

from engine.session import EngineError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

LineKind: TypeAlias = Literal["progress", "result", "error"]


def add_progress_option(group: argparse._ArgumentGroup) -> None:
    """Add `--progress`; "json" asks for JsonLines."""
    group.add_argument(
        "--progress",
        choices=("line", "json"),
        default="line",
        help="line: written over on a terminal; json: for programs, each step as a line of JSON on "
        "stdout, then the result or the error; the end of stdin stops the command (default: line)",
    )


class JsonLines:
    """Each line of stdout is an object of one key: "progress", then "result" or "error".

    Used as a context. The end of stdin interrupts the main thread as Ctrl-C does, wherever it is:
    it comes when the other program closes the pipe, and by itself when that program dies. An
    EngineError that leaves the context is written as its three sentences.
    """

    def __enter__(self) -> JsonLines:
        threading.Thread(target=_interrupt_at_end, args=(sys.stdin.fileno(),), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, EngineError):
            self._write("error", {"what": error.what, "why": error.why, "next": error.next_step})

    def write(self, kind: LineKind, value: DataclassInstance) -> None:
        """One line, at once. Raises BrokenPipeError when nobody reads any more."""
        self._write(kind, asdict(value))

    def _write(self, kind: LineKind, fields: dict[str, object]) -> None:
        sys.stdout.write(json.dumps({kind: fields}, default=str) + "\n")
        sys.stdout.flush()


def _interrupt_at_end(stdin: int) -> None:
    # Not through sys.stdin: a thread that waits there holds a lock that Python's end needs.
    while os.read(stdin, 4096):
        pass
    _thread.interrupt_main()
