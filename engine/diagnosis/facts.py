"""What a diagnosis looks at: one answer's figures, the engine's steps meanwhile, and the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from engine.config import EngineConfig
from engine.diagnosis.machine import MachineState
from engine.events import RequestMetrics, StepStats
from engine.footprint import resolve_kv_format
from engine.planner.plan import Planning
from engine.prediction import ModelWork
from engine.quality.kept import KeptQuality

Phase = Literal["start", "stream"]


@dataclass(frozen=True, slots=True)
class PhaseSteps:
    """The engine's steps in one phase of an answer, added up.

    `busy_s` is the time in operations on tensors, None where the device cannot tell it apart.
    `shared_s` is the time of steps that served other requests too. MFU and MBU are weighted by
    time; None: the peaks are not known.
    """

    count: int = 0
    seconds: float = 0.0
    tokens: int = 0
    bytes: int = 0
    busy_s: float | None = None
    shared_s: float = 0.0
    mfu_pct: float | None = None
    mbu_pct: float | None = None


@dataclass(frozen=True, slots=True)
class AnswerFacts:
    """One answer that has ended.

    `wanted` is the config as it was asked for, with "auto" in it. `planning` has the model's sizes
    and the speeds of this machine with the present threads, `unbound` with those the engine would
    choose; None: not read. `qualities` is by weight format. `device_pct` is the mean utilization
    while the answer streamed, as the sensor tells it. `is_first`: of this load. `machines` is what
    the sensors said in each phase.
    """

    metrics: RequestMetrics
    wanted: EngineConfig
    prefill: PhaseSteps = PhaseSteps()
    decode: PhaseSteps = PhaseSteps()
    itl_ms: tuple[float, ...] = ()
    planning: Planning | None = None
    unbound: Planning | None = None
    devices: tuple[str, ...] = ()
    qualities: Mapping[str, KeptQuality] = field(default_factory=dict)
    device_pct: float | None = None
    on_gpu: bool = False
    is_first: bool = False
    load_s: float = 0.0
    machines: Mapping[Phase, MachineState] = field(default_factory=dict)

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that the cache did not have."""
        return self.metrics.prompt_tokens - self.metrics.cached_tokens

    @property
    def mean_context(self) -> int:
        """Tokens before the one in the middle of the answer."""
        return self.metrics.prompt_tokens + self.metrics.completion_tokens // 2

    @property
    def stream_ms(self) -> float:
        """From the first token to the last."""
        metrics = self.metrics
        if metrics.e2el_ms is None or metrics.ttft_ms is None:
            return 0.0
        return metrics.e2el_ms - metrics.ttft_ms

    def pace(self, phase: Phase) -> float | None:
        """Tokens a second that the phase reached."""
        return self.metrics.prefill_tok_s if phase == "start" else self.metrics.decode_tok_s

    def machine(self, phase: Phase) -> MachineState:
        """What the sensors said meanwhile."""
        return self.machines.get(phase, MachineState())

    def work(self, weights: str | None = None, kv: str | None = None) -> ModelWork | None:
        """What a token costs, in other formats where they are named; None: not known."""
        if self.planning is None:
            return None
        weights = weights or self.wanted.weight_format
        kv = resolve_kv_format(weights, kv or self.wanted.kv_format)
        model = self.planning.model
        if weights not in model.work or kv not in model.footprint.kv_groups:
            return None
        return model.token_work(weights, kv)


def phase_steps(steps: Iterable[StepStats]) -> PhaseSteps:
    """Add up steps."""
    taken = list(steps)
    seconds = sum(step.step_ms for step in taken) / 1e3
    return PhaseSteps(
        count=len(taken),
        seconds=seconds,
        tokens=sum(step.num_tokens for step in taken),
        bytes=sum(step.bytes for step in taken),
        busy_s=_busy_s(taken),
        shared_s=sum(step.step_ms for step in taken if step.num_seqs > 1) / 1e3,
        mfu_pct=_weighted(taken, [step.mfu_pct for step in taken]),
        mbu_pct=_weighted(taken, [step.mbu_pct for step in taken]),
    )


def _busy_s(steps: Sequence[StepStats]) -> float | None:
    stages = [step.stages for step in steps if step.stages is not None]
    if not steps or len(stages) < len(steps):
        return None
    return sum(each.attention_ms + each.ffn_ms + each.head_ms for each in stages) / 1e3


def _weighted(steps: Sequence[StepStats], values: Sequence[float | None]) -> float | None:
    known = [(v, s.step_ms) for s, v in zip(steps, values, strict=True) if v is not None]
    if not known:
        return None
    shares, weights = zip(*known, strict=True)
    return float(np.average(shares, weights=weights)) if sum(weights) > 0 else None
