"""The steps of a session under the device's roofs, as SVG."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QRectF

from app.export import svg
from app.export.session_data import SessionData
from app.export.timeline_figure import LEFT, RIGHT, WIDTH
from app.roofline import words
from app.roofline.log_axis import log_ticks
from app.roofline.scene import Scene, limits_of, make_scene

HEIGHT = 320.0
_TOP, _FOOT, _HEADROOM = 22.0, 34.0, 24.0


def roofline(session: SessionData, title: str) -> str:
    """The figure; "" when the roofs were not measured or no step was."""
    loaded, points = session.loaded, session.points
    if loaded is None or loaded.roofs is None or not len(points):
        return ""
    area = QRectF(LEFT, _TOP, WIDTH - LEFT - RIGHT, HEIGHT - _TOP - _FOOT)
    scene = make_scene(limits_of(loaded, points), points, area, _HEADROOM)
    x, y = scene.pixels(points)
    parts = [*_axes(scene), *_roofs(scene)]
    for is_prefill, kind in ((False, "decode"), (True, "prefill")):
        mask = points.is_prefill == is_prefill
        parts.append(svg.dots(x[mask], y[mask], kind, radius=2.4))
    prefill = words.place(points.where(points.is_prefill))
    decode = words.place(points.where(~points.is_prefill))
    return svg.figure(title, words.headline(prefill, decode), WIDTH, HEIGHT, *parts)


def in_words(session: SessionData) -> str:
    """How near prefill and decode come to their roofs."""
    points = session.points
    prefill = words.place(points.where(points.is_prefill))
    return words.shares(prefill, words.place(points.where(~points.is_prefill)))


def _axes(scene: Scene) -> list[str]:
    area, parts = scene.area, []
    scale, unit = words.rate_unit(scene.limits.matmul_flops)
    for value in log_ticks(scene.x.low, scene.x.high):
        x = scene.x.px(value)
        parts.append(svg.line(x, area.top(), x, area.bottom(), "grid"))
        parts.append(svg.words(words.tick_text(value), x, area.bottom() + 14, anchor="middle"))
    for value in log_ticks(scene.y.low, scene.y.high):
        y = scene.y.px(value)
        parts.append(svg.line(area.left(), y, area.right(), y, "grid"))
        parts.append(svg.words(words.tick_text(value / scale), LEFT - 6, y + 4, anchor="end"))
    parts.append(svg.words(unit, LEFT, _TOP - 8, "label"))
    parts.append(svg.words("FLOP/byte", area.right(), area.bottom() + 30, anchor="end"))
    return parts


def _roofs(scene: Scene) -> list[str]:
    corners = (scene.slope_start, scene.ridge, scene.flat_end)
    x = np.array([corner.x() for corner in corners])
    y = np.array([corner.y() for corner in corners])
    left, right = words.zones()
    ridge, bottom = scene.ridge, scene.area.bottom()
    return [
        svg.line(ridge.x(), ridge.y(), ridge.x(), bottom, "ridge"),
        svg.curve(x, y, "roof"),
        svg.words(left, ridge.x() - 8, bottom - 8, "label", "end"),
        svg.words(right, ridge.x() + 8, bottom - 8, "label"),
    ]
