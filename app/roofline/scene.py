"""Where everything of the roofline stands, in pixels: axes, roofs, ridge, dots. Draws nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QPointF, QRectF

from app.roofline.log_axis import LogAxis, rung_above, rung_below
from app.telemetry.series import Array
from app.telemetry.step_points import StepPoints
from engine.events import ModelLoaded

_AROUND_RIDGE = 12.0  # what the intensity axis shows at least on either side, as a factor
_AROUND_DOTS = 1.5
_LATE_PERCENT = 1.0  # of the slowest steps may lie on the floor instead of stretching the axis


@dataclass(frozen=True, slots=True)
class Limits:
    """The two roofs as drawn: FLOP/s of products, bytes/s of reading `working_set` bytes."""

    matmul_flops: float
    bandwidth: float
    working_set: int

    @property
    def ridge(self) -> float:
        """The intensity in FLOP/byte at which both roofs are equally high."""
        return self.matmul_flops / self.bandwidth


def limits_of(loaded: ModelLoaded, points: StepPoints) -> Limits:
    """The roofs for what the newest decode step reads; before there is one, for the weights.

    `loaded` must have roofs.
    """
    assert loaded.roofs is not None
    decode = points.bytes[~points.is_prefill]
    working_set = int(decode[-1]) if len(decode) else loaded.weight_bytes
    return Limits(loaded.roofs.matmul_flops, loaded.roofs.bandwidth_at(working_set), working_set)


@dataclass(frozen=True, slots=True)
class Scene:
    """`x` is arithmetic intensity in FLOP/byte, `y` FLOP/s, both logarithmic; `area` in px."""

    limits: Limits
    area: QRectF
    x: LogAxis
    y: LogAxis

    def point(self, intensity: float, rate: float) -> QPointF:
        """The pixel of a place."""
        return QPointF(self.x.px(intensity), self.y.px(rate))

    def pixels(self, points: StepPoints) -> tuple[Array, Array]:
        """The pixels of dots, shape [n] each; what is below the floor lies on it."""
        x = self.x.pixels(points.intensity).clip(self.area.left(), self.area.right())
        y = self.y.pixels(points.rate).clip(self.area.top(), self.area.bottom())
        return x, y

    @property
    def ridge(self) -> QPointF:
        """Where the roofs meet."""
        return self.point(self.limits.ridge, self.limits.matmul_flops)

    @property
    def slope_start(self) -> QPointF:
        """Where the bandwidth roof comes in at the left."""
        return self.point(self.x.low, self.x.low * self.limits.bandwidth)

    @property
    def flat_end(self) -> QPointF:
        """Where the compute roof goes out at the right."""
        return self.point(self.x.high, self.limits.matmul_flops)

    def slope_y(self, x_px: float) -> float:
        """The bandwidth roof's pixel row over a column."""
        return self.y.px(self.x.value(x_px) * self.limits.bandwidth)


def make_scene(limits: Limits, points: StepPoints, area: QRectF, headroom: float) -> Scene:
    """Axes that hold both roofs around the ridge and all dots; `headroom` px over the flat one."""
    ridge = limits.ridge
    least, most = ridge / _AROUND_RIDGE, ridge * _AROUND_RIDGE
    floor = np.inf
    if len(points):
        least = min(least, float(points.intensity.min()) / _AROUND_DOTS)
        most = max(most, float(points.intensity.max()) * _AROUND_DOTS)
        slow = np.percentile(points.rate, _LATE_PERCENT, method="higher")
        floor = float(slow) / _AROUND_DOTS
    low, high = rung_below(least), rung_above(most)
    bottom = rung_below(min(low * limits.bandwidth, floor))
    share = min(headroom / max(area.height(), 1.0), 0.5)
    top = limits.matmul_flops * (limits.matmul_flops / bottom) ** (share / (1 - share))
    return Scene(
        limits,
        area,
        LogAxis(low, high, area.left(), area.width()),
        LogAxis(bottom, top, area.bottom(), -area.height()),
    )
