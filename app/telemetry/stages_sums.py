"""Where the time of steps went, stage by stage, as sums over one phase of an answer."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.telemetry.series import Series
from engine.events import StepStats

# In the order in which a step runs through them; `host_ms` is what lies between.
STAGES = ("attention_ms", "ffn_ms", "head_ms", "sample_ms", "detokenize_ms", "host_ms")
COLUMNS = ("t_s", "is_prefill", *STAGES)


@dataclass(frozen=True, slots=True)
class PhaseStages:
    """The stages of `num_steps` timed steps of one phase; `sums_ms` is in the order of STAGES."""

    num_steps: int
    sums_ms: tuple[float, ...]

    @property
    def step_ms(self) -> tuple[float, ...]:
        """The mean time of each stage in a step."""
        return tuple(each / self.num_steps for each in self.sums_ms)

    @property
    def shares_pct(self) -> tuple[float, ...]:
        """What each stage took of the whole, in %; they add up to 100."""
        total = sum(self.sums_ms)
        return tuple(100 * each / total for each in self.sums_ms)


@dataclass(frozen=True, slots=True)
class AnswerStages:
    """Both phases of an answer; None where no step of it was timed by stage."""

    prefill: PhaseStages | None = None
    decode: PhaseStages | None = None


class StageLog:
    """The stages of every timed step of the session, in order of time."""

    def __init__(self) -> None:
        self._rows = Series(*COLUMNS)
        self._rows_of: dict[str, array[int]] = {}  # by request: the steps that served it

    def note(self, step: StepStats, t_s: float) -> None:
        """Keep a step that ended at `t_s`, if it was timed by stage."""
        if step.stages is not None:
            stages = (getattr(step.stages, name) for name in STAGES)
            for request_id in step.request_ids:
                self._rows_of.setdefault(request_id, array("q")).append(len(self._rows))
            # A mixed step counts as prefill: what it reads of a prompt is most of its work.
            self._rows.append(t_s, step.phase != "decode", *stages)

    def of(self, request_id: str, start_s: float, end_s: float) -> AnswerStages:
        """The sums over the steps that served a request.

        Where steps do not say whom they served, those that ended within this time.
        """
        served = self._rows_of.get(request_id)
        if served is not None:
            return self._sums(np.array(served))
        first, last = np.searchsorted(self._rows["t_s"], [start_s, end_s], side="right")
        return self._sums(np.arange(first, last))

    def _sums(self, rows: NDArray[np.int64]) -> AnswerStages:
        is_prefill = self._rows["is_prefill"][rows] > 0
        times = np.stack([self._rows[name][rows] for name in STAGES])

        def of(mask: NDArray[np.bool_]) -> PhaseStages | None:
            sums = times[:, mask].sum(axis=1)
            if not sums.sum() > 0:
                return None
            return PhaseStages(int(mask.sum()), tuple(float(each) for each in sums))

        return AnswerStages(of(is_prefill), of(~is_prefill))
