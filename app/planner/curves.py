"""KV memory against context length as arrays: what the planner's plot draws. No widgets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.telemetry.series import Array
from engine.config import EngineConfig, KVGroupSize, kv_bytes
from engine.planner.plan import Choice, Planning

_NUM_POINTS = 128


@dataclass(frozen=True, slots=True)
class KVCurves:
    """Bytes over context lengths `contexts` [n]: of one text in each format, and what there is.

    `room` [n] is what the chosen weights and the rest of the load leave to the text's KV cache, 0
    where nothing is left: the chosen format's line crosses it at the longest context that fits.
    """

    contexts: Array
    by_format: dict[str, Array]
    room: Array

    @property
    def largest(self) -> float:
        """The highest point of all formats."""
        return max(float(line[-1]) for line in self.by_format.values())


def kv_curves(planning: Planning, choice: Choice) -> KVCurves:
    """The curves up to the model's own context, with a point at each window, where a line bends."""
    footprint, budget = planning.model.footprint, planning.machine.budget_bytes
    groups = footprint.kv_groups
    contexts = _contexts(footprint.context_length, groups[choice.kv])
    config = EngineConfig("", weight_format=choice.weights)
    room = [
        budget - footprint.required_bytes(config, choice.kv, n) + kv_bytes(groups[choice.kv], n)
        for n in contexts
    ]
    return KVCurves(
        contexts=np.array(contexts, dtype=np.float64),
        by_format={
            name: np.array([kv_bytes(each, n) for n in contexts], dtype=np.float64)
            for name, each in groups.items()
        },
        room=np.maximum(np.array(room, dtype=np.float64), 0.0),
    )


def _contexts(longest: int, groups: tuple[KVGroupSize, ...]) -> list[int]:
    even = np.linspace(0, longest, _NUM_POINTS).astype(int).tolist()
    bends = [group.window for group in groups if group.window is not None]
    return sorted({*even, *(window for window in bends if window < longest)})
