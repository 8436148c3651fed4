"""Steps of the engine as points under the device's roofs: arithmetic intensity and FLOP/s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.telemetry.series import Array, Series

# Enough to see where a phase lies, few enough to draw while the engine needs the processor.
MOST_PREFILL, MOST_DECODE = 256, 1_024
COLUMNS = (
    *("t_s", "step_s", "is_prefill", "num_seqs", "step_id", "mfu", "mbu"),
    *("is_mixed", "num_tokens", "flops", "bytes"),
)


@dataclass(frozen=True, slots=True)
class StepPoints:
    """Measured steps, the oldest first; every array has the shape [n].

    `is_prefill` is true of mixed steps too: what they read of a prompt is most of their work.
    `is_selected`: the step ran while the selected answer did.
    """

    step_id: Array
    is_prefill: NDArray[np.bool_]
    is_mixed: NDArray[np.bool_]
    is_selected: NDArray[np.bool_]
    num_seqs: Array
    num_tokens: Array
    step_s: Array
    flops: Array
    bytes: Array
    mfu_pct: Array
    mbu_pct: Array

    def __len__(self) -> int:
        return len(self.step_id)

    @property
    def intensity(self) -> Array:
        """Arithmetic intensity, FLOP/byte."""
        return self.flops / self.bytes

    @property
    def rate(self) -> Array:
        """FLOP/s achieved."""
        return self.flops / self.step_s

    @property
    def roof_pct(self) -> Array:
        """Share of the roof that the step lies under, in %.

        The roof is min(matmul peak, intensity x bandwidth), so that the share of it is the larger
        one of MFU and MBU.
        """
        return np.maximum(self.mfu_pct, self.mbu_pct)

    @property
    def under_bandwidth(self) -> NDArray[np.bool_]:
        """Whether the roof over the step is the bandwidth's."""
        return self.mbu_pct >= self.mfu_pct

    def where(self, mask: NDArray[np.bool_]) -> StepPoints:
        """Those for which `mask` [n] holds."""
        columns: dict[str, Any] = {name: getattr(self, name)[mask] for name in self.__slots__}
        return StepPoints(**columns)


def newest_points(steps: Series, first: int, selected: slice) -> StepPoints:
    """The newest measured steps of each phase, from row `first` on; `selected` rows are marked."""
    is_prefill = steps["is_prefill"] > 0
    known = ~np.isnan(steps["mfu"]) & ~np.isnan(steps["mbu"])
    known &= (steps["bytes"] > 0) & (steps["flops"] > 0)
    known[:first] = False
    prefill = np.flatnonzero(known & is_prefill)[-MOST_PREFILL:]
    decode = np.flatnonzero(known & ~is_prefill)[-MOST_DECODE:]
    rows = np.sort(np.concatenate((prefill, decode)))
    return StepPoints(
        step_id=steps["step_id"][rows],
        is_prefill=is_prefill[rows],
        is_mixed=steps["is_mixed"][rows] > 0,
        is_selected=(rows >= selected.start) & (rows < selected.stop),
        num_seqs=steps["num_seqs"][rows],
        num_tokens=steps["num_tokens"][rows],
        step_s=steps["step_s"][rows],
        flops=steps["flops"][rows],
        bytes=steps["bytes"][rows],
        mfu_pct=steps["mfu"][rows],
        mbu_pct=steps["mbu"][rows],
    )
