"""MFU and MBU of steps as lines over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.telemetry.series import Array, Series

# Steps further apart than this did not follow each other.
PAUSE_S = 0.25


@dataclass(frozen=True, slots=True)
class StepLine:
    """Points of steps in order of time, shape [n] each: seconds, and shares in % (NaN: unknown).

    `is_edge`: what the line is there to show, so that it is never thinned out: a prefill step,
    long enough to be seen as such, has a point at its start and one at its end. A decode step has
    the one at its end.
    """

    t_s: Array
    mfu_pct: Array
    mbu_pct: Array
    is_edge: NDArray[np.bool_]


NO_STEPS = StepLine(np.empty(0), np.empty(0), np.empty(0), np.empty(0, dtype=bool))


def step_line(steps: Series, rows: slice, origin_s: float) -> StepLine:
    """The line of these rows, in seconds from `origin_s`; steps without figures are left out."""
    ends, starts, is_prefill, mfu, mbu = _known(steps, rows, origin_s)
    drawn = np.column_stack((is_prefill, np.ones(len(ends), dtype=bool))).ravel()
    return StepLine(
        np.column_stack((starts, ends)).ravel()[drawn],
        np.repeat(mfu, 2)[drawn],
        np.repeat(mbu, 2)[drawn],
        np.repeat(is_prefill, 2)[drawn],
    )


def session_line(steps: Series) -> StepLine:
    """The line of all steps, in seconds since the session began; 0 where none ran."""
    line = step_line(steps, slice(0, len(steps)), 0.0)
    ends, starts, is_prefill, *_ = _known(steps, slice(0, len(steps)), 0.0)
    first_points = np.cumsum(1 + is_prefill) - (1 + is_prefill)
    rows = np.flatnonzero(starts[1:] - ends[:-1] > PAUSE_S) + 1
    at = np.repeat(first_points[rows], 2)
    moments = np.column_stack((ends[rows - 1], starts[rows])).ravel()
    if len(ends):
        at, moments = np.append(at, len(line.t_s)), np.append(moments, ends[-1])
    return StepLine(
        np.insert(line.t_s, at, moments),
        np.insert(line.mfu_pct, at, 0.0),
        np.insert(line.mbu_pct, at, 0.0),
        np.insert(line.is_edge, at, True),
    )


def _known(
    steps: Series, rows: slice, origin_s: float
) -> tuple[Array, Array, NDArray[np.bool_], Array, Array]:
    """End, start, whether it read a prompt, MFU and MBU of the steps that have figures."""
    mfu, mbu = steps["mfu"][rows], steps["mbu"][rows]
    known = ~(np.isnan(mfu) & np.isnan(mbu))
    ends = steps["t_s"][rows][known] - origin_s
    starts = np.maximum(ends - steps["step_s"][rows][known], 0.0)
    return ends, starts, steps["is_prefill"][rows][known] > 0, mfu[known], mbu[known]
