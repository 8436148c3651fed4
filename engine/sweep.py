"""Every combination of weight formats, KV formats and contexts, measured one after the other.

`SweepPlan` says which; what is illegal or does not fit is known from headers and free memory before
anything is loaded, and listed with the sentence that says why. A model is loaded once for each pair
of formats, with the longest of its contexts. No torch here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby, product
from typing import Any

from engine.config import EngineConfig
from engine.footprint import resolve_kv_format
from engine.load_blocking import load_or_raise
from engine.measuring import Workload, measure
from engine.planner.plan import Planning
from engine.prediction import decode_s, prefill_s
from engine.session import EngineError, Session

MIN_CONTEXT = 16  # the shortest that EngineConfig takes


@dataclass(frozen=True, slots=True)
class SweepCell:
    """One combination. `prompt_tokens` fill the context before the measured tokens come."""

    weights: str
    kv: str
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What to measure: model, device and threads of `config`, and the rest of `workload`."""

    config: EngineConfig
    workload: Workload
    weights: tuple[str, ...]
    kv: tuple[str, ...]
    contexts: tuple[int, ...]

    def cells(self) -> tuple[SweepCell, ...]:
        """All combinations, those of one load beside each other, each named once."""
        every = product(self.weights, self.kv, sorted(set(self.contexts)))
        resolved = (SweepCell(w, resolve_kv_format(w, kv), context) for w, kv, context in every)
        return tuple(dict.fromkeys(resolved))

    def work(self, cell: SweepCell) -> Workload:
        """What is run of a combination."""
        return replace(self.workload, prompt_tokens=cell.prompt_tokens)

    def config_for(self, cell: SweepCell) -> EngineConfig:
        """What is loaded where this combination has the longest context of its formats."""
        work = self.work(cell)
        config = replace(
            self.config,
            weight_format=cell.weights,
            kv_format=cell.kv,
            context_length=max(work.context, MIN_CONTEXT),
        )
        return work.room_in(config)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A combination that was not measured, and the sentence that says why."""

    weights: str
    kv: str
    prompt_tokens: int
    why: str


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """`share` of the sweep is done, 0 to 1; `row` and `skipped` are what is new, if anything is."""

    share: float
    text: str
    row: Mapping[str, Any] | None = None
    skipped: Skipped | None = None


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Rows as `bench` prints them, and the combinations left out."""

    sweep: list[Mapping[str, Any]] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


def refusal(planning: Planning, plan: SweepPlan, cell: SweepCell) -> str:
    """Why a combination cannot be measured here, in a sentence; empty where it can."""
    model, footprint = planning.model, planning.model.footprint
    if cell.weights not in model.weight_formats:
        return f"{model.name} cannot be loaded as {cell.weights}."
    if cell.kv not in model.kv_formats:
        return f"The heads of {model.name} do not fit into a cache in {cell.kv}."
    config = plan.config_for(cell)
    needed = plan.work(cell).context
    if needed > footprint.context_length:
        return f"{model.name} has {footprint.context_length:,} tokens of context, not {needed:,}."
    required = footprint.required_bytes(config, cell.kv, config.context_length or needed)
    if required > planning.machine.budget_bytes:
        there = planning.machine.budget_bytes
        return f"It needs {_size(required)}, and {_size(there)} are free."
    return ""


def predicted_s(planning: Planning, plan: SweepPlan) -> float | None:
    """Seconds that the runs of what can be measured take, loads left out.

    None where this machine's speeds are not measured yet, or a format has no prediction.
    """
    total = 0.0
    for cell in plan.cells():
        if refusal(planning, plan, cell):
            continue
        device = planning.machine.speeds.get(cell.weights)
        if device is None or cell.weights not in planning.model.work:
            return None
        model, work = planning.model.token_work(cell.weights, cell.kv), plan.work(cell)
        a_token = decode_s(model, device, work.prompt_tokens + work.generate // 2)
        a_run = prefill_s(model, device, work.prompt_tokens) + work.generate * a_token
        total += (work.repeat + 1) * a_run
    return total


class Sweep:
    """Measures a plan on a session. `result` has what there is, also after an interruption."""

    def __init__(
        self, session: Session, plan: SweepPlan, tell: Callable[[SweepProgress], object]
    ) -> None:
        self._session, self._plan, self._tell = session, plan, tell
        self._cells = plan.cells()
        self.result = SweepResult()

    def run(self) -> None:
        """Measure everything. Raises EngineError where the model cannot be read at all."""
        config = self._plan.config
        planning = self._session.planning(config.model_path, config.device, config.threads)
        for _, cells in groupby(self._cells, lambda cell: (cell.weights, cell.kv)):
            possible = []
            for cell in cells:
                why = refusal(planning, self._plan, cell)
                if why:
                    self._skip(cell, why)
                else:
                    possible.append(cell)
            self._run_load(possible)

    # --- private --------------------------------------------------------------------------

    def _run_load(self, cells: list[SweepCell]) -> None:
        """Load with the longest context that can be loaded and measure all up to it."""
        while cells:
            self._say(_name(cells[-1], "loading"))
            try:
                loaded = load_or_raise(self._session, self._plan.config_for(cells[-1]))
            except EngineError as error:
                self._skip(cells.pop(), f"{error.what} {error.why}")
                continue
            for cell in cells:
                work = self._plan.work(cell)
                runs = work.repeat + 1

                def on_run(done: int, cell: SweepCell = cell, runs: int = runs) -> None:
                    if done < runs:
                        self._say(_name(cell, f"run {done} of {runs - 1}"), done / runs)

                self._say(_name(cell, "warming up"))
                try:
                    row = measure(self._session, loaded, work, on_run)
                except EngineError as error:
                    self._skip(cell, f"{error.what} {error.why}")
                    continue
                self.result.sweep.append(row)
                self._tell(SweepProgress(self._share(), _name(cell, "measured"), row=row))
            return

    def _skip(self, cell: SweepCell, why: str) -> None:
        skipped = Skipped(cell.weights, cell.kv, cell.prompt_tokens, why.strip())
        self.result.skipped.append(skipped)
        self._tell(SweepProgress(self._share(), _name(cell, "left out"), skipped=skipped))

    def _say(self, text: str, of_this: float = 0.0) -> None:
        self._tell(SweepProgress(self._share(of_this), text))

    def _share(self, of_this: float = 0.0) -> float:
        done = len(self.result.sweep) + len(self.result.skipped)
        return (done + of_this) / len(self._cells)


def _name(cell: SweepCell, stage: str) -> str:
    return f"weights {cell.weights}, KV {cell.kv}, {cell.prompt_tokens:,} tokens: {stage}"


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:,.2f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:,.0f} MB"
