"""Quantizing in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.command_job import CommandJob
from app.engine_link.worker import EngineProblem
from engine.quantization.command import arguments_of
from engine.quantization.plan import Quantized, QuantizePlan, QuantizeProgress


class Quantizing(QObject):
    """Orders a job, and what it says. GUI thread only.

    Attributes:
        plan: what is being made, or was made last. running: whether it is being made.

    Signals:
        started()
        progressed(QuantizeProgress)
        ended(Quantized | EngineProblem | None): None when it was stopped; nothing is left then.
    """

    started = Signal()
    progressed = Signal(object)
    ended = Signal(object)

    def __init__(self, job: CommandJob, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.plan: QuantizePlan | None = None
        self.running = False
        self._job = job

    @property
    def busy(self) -> bool:
        """Whether this or other work of its kind is under way: there is one at a time."""
        return self._job.running

    def begin(self, plan: QuantizePlan) -> None:
        """Begin a job; the present one must have ended."""
        self._job.start(arguments_of(plan), self._on_progressed, self._on_ended)
        self.plan, self.running = plan, True
        self.started.emit()

    def stop(self) -> None:
        """Stop the job; what is half made is removed."""
        if self.running:
            self._job.stop()

    # --- private --------------------------------------------------------------------------

    def _on_progressed(self, fields: dict[str, Any]) -> None:
        self.progressed.emit(QuantizeProgress(**fields))

    def _on_ended(self, outcome: dict[str, Any] | EngineProblem | None) -> None:
        self.running = False
        if isinstance(outcome, dict):
            out, notices = Path(outcome["out"]), tuple(outcome["notices"])
            self.ended.emit(Quantized(**{**outcome, "out": out, "notices": notices}))
        else:
            self.ended.emit(outcome)
