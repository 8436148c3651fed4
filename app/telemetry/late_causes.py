"""Why a token came late, where the events say so; where they do not, nothing is claimed."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from app.telemetry.request_trace import RequestTrace
from app.telemetry.series import Array, Series

LateCause = Literal["slid", "joined", "new block", "same work"]
Rows = NDArray[np.intp]
# A block is only named where this answer's tokens that open one are late as a rule: one token in
# a block's size opens one, so that what happens to hit it says nothing.
_LATE_AS_A_RULE = 1.25
# The step took most of the token's latency, read no more than the one before it, yet was slower.
_MOST_OF_ITL, _SAME_BYTES, _SLOWER = 0.8, 1.05, 1.5


def late_causes(
    trace: RequestTrace, rows: Rows, steps: Series, window: slice
) -> list[LateCause | None]:
    """The cause for each of `rows` of the request's tokens, None where none is known.

    slid: the context was cut and computed again. joined: the step also read another chat's
    prompt, or had more sequences than the one before. new block: the cache took a block for this
    token, and tokens that open one are late throughout the answer. same work: the step itself
    was slow though it read no more than the step before, so something outside held it up.
    The `window` of `steps` ran while the request did.
    """
    step = _step_rows(trace.tokens["step_id"][rows], steps, window)
    joined, same_work = _joined(step, steps), _same_work(step, steps, trace.tokens["itl_ms"][rows])
    opens_block = np.isin(rows, _late_blocks(trace))
    causes: list[LateCause | None] = []
    for i, row in enumerate(rows):
        if int(row) in trace.slid_rows:
            causes.append("slid")
        elif joined[i]:
            causes.append("joined")
        elif opens_block[i]:
            causes.append("new block")
        else:
            causes.append("same work" if same_work[i] else None)
    return causes


def _step_rows(step_ids: Array, steps: Series, window: slice) -> Rows:
    """The row of each step, -1 where it has not been told yet."""
    known = steps["step_id"][window]
    at = np.searchsorted(known, step_ids)
    found = at < len(known)
    found[found] = known[at[found]] == step_ids[found]
    return np.where(found, at + window.start, -1)


def _joined(step: Rows, steps: Series) -> NDArray[np.bool_]:
    if not len(steps):
        return np.zeros(len(step), dtype=bool)
    num_seqs = steps["num_seqs"]
    others_prompt = (steps["is_prefill"][step] > 0) & (num_seqs[step] > 1)
    more = (step > 0) & (num_seqs[step] > num_seqs[step - 1])
    joined: NDArray[np.bool_] = (step >= 0) & (others_prompt | more)
    return joined


def _same_work(step: Rows, steps: Series, itl_ms: Array) -> NDArray[np.bool_]:
    if not len(steps):
        return np.zeros(len(step), dtype=bool)
    before = step - 1
    step_s, num_bytes = steps["step_s"], steps["bytes"]
    alike = (steps["is_prefill"][step] == 0) & (steps["is_prefill"][before] == 0)
    alike &= steps["num_seqs"][step] == steps["num_seqs"][before]
    alike &= num_bytes[step] <= _SAME_BYTES * num_bytes[before]
    slow = (step_s[step] * 1e3 >= _MOST_OF_ITL * itl_ms) & (
        step_s[step] >= _SLOWER * step_s[before]
    )
    same: NDArray[np.bool_] = (step > 0) & alike & slow
    return same


def _late_blocks(trace: RequestTrace) -> Rows:
    """The rows of tokens that opened a block, none where these are no later than the others."""
    rows = np.array([row for row in trace.block_rows if row > 0], dtype=np.intp)
    itl_ms = trace.tokens["itl_ms"]
    if not len(rows) or np.median(itl_ms[rows]) < _LATE_AS_A_RULE * np.median(itl_ms[1:]):
        return rows[:0]
    return rows
