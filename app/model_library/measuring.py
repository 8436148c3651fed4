"""Measuring what weight formats cost in quality, in a process of its own, one after the other."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.command_job import CommandJob
from app.engine_link.worker import EngineProblem
from engine.config import EngineConfig
from engine.quality.report import QualityProgress

REFERENCE = "fp32"


@dataclass(frozen=True, slots=True)
class MeasureProgress:
    """How far measuring is: `share` is 0 to 1 of all formats that were asked for.

    `is_reference`: what the format is compared with is being scored, before the format itself.
    """

    weight_format: str
    is_reference: bool
    share: float
    tokens_per_s: float | None
    remaining_s: float | None


class Measuring(QObject):
    """Orders runs of `perplexity`, which keeps what it found, and what they say. GUI thread only.

    Attributes:
        running: whether formats are being measured.

    Signals:
        progressed(MeasureProgress)
        measured(str weight_format): its figures are in the file.
        ended(EngineProblem | None): of the last one, or why it was the last.
    """

    progressed = Signal(object)
    measured = Signal(str)
    ended = Signal(object)

    def __init__(self, job: CommandJob, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.running = False
        self._job = job
        self._weight_format = ""
        self._started = 0.0
        self._config: EngineConfig | None = None
        self._waiting: deque[str] = deque()
        self._number = 0

    @property
    def busy(self) -> bool:
        """Whether this or other work of its kind is under way: there is one at a time."""
        return self._job.running

    def begin(self, config: EngineConfig, formats: Sequence[str]) -> None:
        """Measure a model in these formats, on the config's device; nothing may be under way."""
        self._config, self._waiting, self._number = config, deque(formats), len(formats)
        self.running, self._started = True, time.monotonic()
        self._next()

    def stop(self) -> None:
        """Leave the present run; those before are kept."""
        if self.running:
            self._waiting.clear()
            self._job.stop()

    # --- private --------------------------------------------------------------------------

    def _next(self) -> None:
        assert self._config is not None
        self._weight_format = self._waiting.popleft()
        arguments = [
            *("perplexity", "--model", self._config.model_path, "--device", self._config.device),
            *("--weights", self._weight_format, "--reference-weights", REFERENCE),
        ]
        self._job.start(arguments, self._on_progressed, self._on_ended)

    def _on_progressed(self, fields: dict[str, Any]) -> None:
        at = QualityProgress(**fields)
        is_reference = at.run == "reference"
        runs_before = 2 * (self._number - len(self._waiting) - 1) + (not is_reference)
        share = (runs_before + at.done_tokens / at.total_tokens) / (2 * self._number)
        pace = at.done_tokens / at.elapsed_s if at.elapsed_s else None
        left = (time.monotonic() - self._started) * (1 - share) / share if share else None
        self.progressed.emit(MeasureProgress(self._weight_format, is_reference, share, pace, left))

    def _on_ended(self, outcome: dict[str, Any] | EngineProblem | None) -> None:
        if isinstance(outcome, dict):
            self.measured.emit(self._weight_format)
            if self._waiting:
                self._next()
                return
        self.running = False
        self.ended.emit(outcome if isinstance(outcome, EngineProblem) else None)
