"""One request's timeline as SVG: latencies, cache and utilization over the seconds since Send."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from PySide6.QtCore import QCoreApplication

from app.export import svg
from app.export.session_data import RequestData
from app.telemetry.format import milliseconds
from app.telemetry.scales import (
    axis_top,
    covered,
    thin_by_mean,
    thin_by_stride,
    thin_steps,
    tick_labels,
    ticks,
    time_range_s,
)
from app.telemetry.series import Array

WIDTH, LEFT, RIGHT = 860.0, 56.0, 12.0
BINS = 400  # of a curve; twice as many dots: the least and the largest of each bin
_TITLE, _GAP = 18.0, 14.0
_HEIGHTS = (120.0, 84.0, 84.0)
_FOOT = 34.0


@dataclass(frozen=True, slots=True)
class _Panel:
    """A plot's place: the first pixel row of its area, its height, the ends of its axes."""

    top: float
    height: float
    seconds: float
    most: float

    def x(self, seconds: Array) -> Array:
        return LEFT + seconds / self.seconds * (WIDTH - LEFT - RIGHT)

    def y(self, values: Array) -> Array:
        share = np.clip(values / self.most, 0.0, 1.0)
        return self.top + self.height * (1.0 - share)

    def column(self, seconds: float) -> float:
        return float(self.x(np.array([seconds]))[0])

    def row(self, value: float) -> float:
        return float(self.y(np.array([value]))[0])


def timeline(request: RequestData, title: str) -> str:
    """The figure; a request without a token has its prefill and what the sensors said."""
    seconds = time_range_s(request.end_s)
    parts: list[str] = []
    top = _TITLE
    for height, draw in zip(_HEIGHTS, (_itl, _cache, _utilization), strict=True):
        parts += draw(request, top, height, seconds)
        top += height + _GAP + _TITLE
    bottom = top - _GAP - _TITLE
    panel = _Panel(0.0, bottom, seconds, 1.0)
    positions = ticks(0.0, seconds, 8)
    for position, label in zip(positions, tick_labels(positions), strict=True):
        parts.append(svg.words(label, panel.column(position), bottom + 14, anchor="middle"))
    parts.append(svg.words(_tr("seconds since Send"), WIDTH - RIGHT, bottom + 30, anchor="end"))
    return svg.figure(title, _description(request), WIDTH, bottom + _FOOT, *parts)


def thin_to_extremes(x: Array, y: Array, bins: int) -> tuple[Array, Array]:
    """At most 2 x `bins` points: the least and the largest of each run of neighbours.

    A mean would hide the late tokens, which are what one looks for.
    """
    if len(x) <= 2 * bins:
        return x, y
    edges = np.linspace(0, len(x), bins + 1).astype(np.intp)
    runs = [y[a:b] for a, b in pairwise(edges)]
    rows = {int(a + i) for a, run in zip(edges, runs, strict=False) for i in _ends(run)}
    keep = np.array(sorted(rows), dtype=np.intp)
    return x[keep], y[keep]


def _ends(run: Array) -> tuple[int, int]:
    return int(run.argmin()), int(run.argmax())


def _itl(request: RequestData, top: float, height: float, seconds: float) -> list[str]:
    values = request.itl_ms
    times = request.token_s[len(request.token_s) - len(values) :]
    most = axis_top(max(covered(values) * 1.15, 1e-3), 3)
    panel = _Panel(top, height, seconds, most)
    parts = _frame(panel, request, _tr("Inter-token latency, ms"))
    parts.append(svg.dots(*_placed(panel, *thin_to_extremes(times, values, BINS)), "decode"))
    if len(values):
        for point, offset in ((50, 13.0), (95, -4.0)):  # below its line, above its line
            value = float(np.percentile(values, point))
            row = panel.row(value)
            parts.append(svg.line(LEFT, row, WIDTH - RIGHT, row, "percentile"))
            label = f"p{point} {milliseconds(value).text}"
            parts.append(svg.words(label, WIDTH - RIGHT, row + offset, "label", "end"))
    return parts


def _cache(request: RequestData, top: float, height: float, seconds: float) -> list[str]:
    most = float(request.kv_allocated.max()) if len(request.kv_allocated) else 0.0
    unit, name = (1e9, "GB") if most >= 999.5e6 else (1e6, "MB")
    panel = _Panel(top, height, seconds, axis_top(most / unit * 1.1, 3))
    parts = _frame(panel, request, _tr("KV cache used and allocated (dashed), {0}").format(name))
    for values, kind in ((request.kv_allocated, "kv dashed"), (request.kv_used, "kv")):
        x, y = thin_by_stride(request.kv_s, values / unit, BINS)
        parts.append(svg.curve(*_placed(panel, x, y), kind))
    return parts


def _utilization(request: RequestData, top: float, height: float, seconds: float) -> list[str]:
    panel = _Panel(top, height, seconds, 100.0)
    device = _tr("GPU") if request.on_gpu else _tr("CPU")
    name = _tr("Compute (MFU, orange), bandwidth (MBU, blue), {0} utilization (grey), %")
    parts = _frame(panel, request, name.format(device))
    steps = thin_steps(request.device_s, request.device_pct, BINS)
    parts.append(svg.curve(*_placed(panel, *steps), "device"))
    for values, kind in ((request.steps.mfu_pct, "prefill"), (request.steps.mbu_pct, "decode")):
        known = ~np.isnan(values)
        x, y = thin_by_mean(request.steps.t_s[known], values[known], BINS)
        parts.append(svg.curve(*_placed(panel, x, y), kind))
    return parts


def _frame(panel: _Panel, request: RequestData, name: str) -> list[str]:
    """Title, prefill, TTFT marker and the value axis."""
    bottom = panel.top + panel.height
    prefill_end = request.end_s if request.ttft_s is None else request.ttft_s
    start, end = panel.column(request.queue_s), panel.column(prefill_end)
    parts = [
        svg.words(name, LEFT, panel.top - 6, "label"),
        svg.rect(start, panel.top, end - start, panel.height, "shade"),
    ]
    positions = ticks(0.0, panel.most, 4)
    for value, label in zip(positions, tick_labels(positions), strict=True):
        row = panel.row(value)
        parts.append(svg.line(LEFT, row, WIDTH - RIGHT, row, "grid"))
        parts.append(svg.words(label, LEFT - 6, row + 4, anchor="end"))
    if request.ttft_s is not None:
        parts.append(svg.line(end, panel.top, end, bottom, "first"))
        if panel.top == _TITLE:
            text = f"TTFT {milliseconds(request.ttft_s * 1e3).text}"
            parts.append(svg.words(text, end + 4, panel.top + 14, "label"))
    return parts


def _placed(panel: _Panel, x: Array, y: Array) -> tuple[Array, Array]:
    return panel.x(x), panel.y(y)


def _description(request: RequestData) -> str:
    if request.ttft_s is None:
        return _tr("No token came.")
    text = _tr("First token after {0}, {1} tokens.")
    return text.format(milliseconds(request.ttft_s * 1e3).text, f"{len(request.token_s):,}")


def _tr(text: str) -> str:
    return QCoreApplication.translate("Report", text)
