"""A sweep in a process of its own, and the rows it has given so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.command_job import CommandJob
from app.engine_link.worker import EngineProblem
from engine.sweep import SweepPlan
from engine.sweep_command import arguments_of


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One combination: measured, or left out because of `why`.

    `figures` is the row of `phasescope bench` (docs/metrics.md), empty where it was left out.
    """

    weights: str
    kv: str
    prompt_tokens: int
    figures: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""

    def value(self, name: str) -> float | None:
        """A figure by its name in the row; "itl_p95_ms" and its like are percentiles."""
        if name.startswith("itl_"):
            point = name.removeprefix("itl_").removesuffix("_ms")
            found = self.figures.get("itl_ms", {}).get(point)
        else:
            found = self.figures.get(name)
        return None if found is None else float(found)


class Sweeping(QObject):
    """Runs one sweep at a time; its rows stay until the next begins. GUI thread only.

    Attributes:
        running: whether combinations are being measured. plan: what was asked for last.
        rows: what is known, in the order it came. share: of the plan that is done, 0 to 1.
        text: what is being done. problem: why it ended early; None when it did not.

    Signals:
        changed(): any of them did.
    """

    changed = Signal()

    def __init__(self, job: CommandJob, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._job = job
        self.running = False
        self.plan: SweepPlan | None = None
        self.rows: list[SweepRow] = []
        self.share = 0.0
        self.text = ""
        self.problem: EngineProblem | None = None

    @property
    def busy(self) -> bool:
        """Whether this or other work of its kind is under way: there is one at a time."""
        return self._job.running

    def begin(self, plan: SweepPlan) -> None:
        """Measure a plan; nothing may be under way."""
        self.plan, self.rows, self.running = plan, [], True
        self.share, self.text, self.problem = 0.0, self.tr("starting"), None
        self._job.start(arguments_of(plan), self._on_progress, self._on_end)
        self.changed.emit()

    def stop(self) -> None:
        """End it as soon as it can be; what was measured stays."""
        if self.running:
            self.text = self.tr("stopping")
            self._job.stop()
            self.changed.emit()

    def forget(self) -> None:
        """Drop what was measured, which was of another model."""
        self.plan, self.rows, self.problem = None, [], None
        self.changed.emit()

    # --- private --------------------------------------------------------------------------

    def _on_progress(self, fields: dict[str, Any]) -> None:
        self.share, self.text = fields["share"], fields["text"]
        row, skipped = fields["row"], fields["skipped"]
        if row is not None:
            self.rows.append(SweepRow(row["weights"], row["kv"], row["prompt_tokens"], row))
        if skipped is not None:
            self.rows.append(SweepRow(**skipped))
        self.changed.emit()

    def _on_end(self, outcome: dict[str, Any] | EngineProblem | None) -> None:
        self.running = False
        self.problem = outcome if isinstance(outcome, EngineProblem) else None
        self.changed.emit()
