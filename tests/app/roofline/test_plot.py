"""The picture: roofs meet at the ridge, dots lie under them, mouse and keys read steps."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.roofline.plot import RooflinePlot
from app.roofline.scene import Limits, Scene, make_scene
from app.telemetry.telemetry_model import TelemetryModel
from app.theme import load_theme
from engine.events import StepStats
from tests.app.roofline.conftest import BANDWIDTH, FLOPS, ROOFS, decode, prefill, step

LIMITS = Limits(FLOPS, BANDWIDTH, 8_000_000)
AREA = QRectF(60, 10, 600, 300)


def scene_of(model: TelemetryModel, *steps: StepStats) -> Scene:
    model.handle_events(steps)
    return make_scene(LIMITS, model.step_points(), AREA, 24.0)


@pytest.fixture
def plot(qtbot: QtBot, model: TelemetryModel) -> RooflinePlot:
    """Two prefill steps, three decode steps, and a third prefill step."""
    made = RooflinePlot(load_theme("dark"))
    qtbot.addWidget(made)
    made.resize(640, 340)
    made.show()
    model.handle_events([prefill(1), prefill(2), *map(decode, (3, 4, 5)), prefill(6)])
    made.show_steps(ROOFS, LIMITS, model.step_points(), (None, None), is_live=True)
    return made


def test_the_roofs_meet_at_the_ridge(model: TelemetryModel) -> None:
    """At peak over bandwidth; the slope is the bandwidth wherever it is looked at."""
    scene = scene_of(model)
    assert LIMITS.ridge == pytest.approx(10.0)
    assert scene.slope_y(scene.ridge.x()) == pytest.approx(scene.ridge.y())
    middle = (scene.slope_start.x() + scene.ridge.x()) / 2
    rate, intensity = scene.y.value(scene.slope_y(middle)), scene.x.value(middle)
    assert rate == pytest.approx(intensity * BANDWIDTH)
    assert scene.ridge.y() - AREA.top() == pytest.approx(24.0)
    assert AREA.contains(scene.ridge)
    assert AREA.contains(scene.slope_start)


def test_a_dot_is_as_far_under_its_roof_as_its_share(model: TelemetryModel) -> None:
    """Half of the roof is the same distance under both: that is why both axes are logarithmic."""
    scene = scene_of(model, prefill(1), step(2, "decode", 1e7, 1e7, 2.0))
    x, y = scene.pixels(model.step_points())
    under_flat = y[0] - scene.ridge.y()
    under_slope = y[1] - scene.slope_y(x[1])
    assert under_flat > 5
    assert under_flat == pytest.approx(under_slope)


def test_one_late_step_does_not_stretch_the_axis(model: TelemetryModel) -> None:
    """A step that slept for a minute lies on the floor."""
    steps = [decode(n) for n in range(200)]
    usual = scene_of(model, *steps).y
    scene = scene_of(model, step(201, "decode", 1.6e7, 8e6, 60_000.0))
    assert scene.y == usual
    _, y = scene.pixels(model.step_points())
    assert y[-1] == AREA.bottom()


def test_the_pointer_reads_the_dot_under_it(plot: RooflinePlot, model: TelemetryModel) -> None:
    """Of dots on one place the newest; beside them none."""
    scene = plot.scene
    assert scene is not None
    x, y = scene.pixels(model.step_points())
    plot.clearFocus()
    QTest.mouseMove(plot, QPointF(x[2] + 3, y[2]).toPoint())
    assert plot.reading is not None
    assert plot.reading[0].startswith("Decode step: 1 token")
    assert plot._picked_id == 5
    assert "bandwidth roof" in plot.accessibleDescription()
    QTest.mouseMove(plot, scene.ridge.toPoint())
    assert plot.reading is None


def test_keys_go_from_step_to_step(plot: RooflinePlot) -> None:
    """In time left and right, to the other phase up and down, to the ends by Home and End."""
    keys = Qt.Key
    expected = (
        *((keys.Key_End, 6), (keys.Key_Left, 5), (keys.Key_Left, 4), (keys.Key_Up, 2)),
        *((keys.Key_Up, 2), (keys.Key_Down, 3), (keys.Key_Down, 6), (keys.Key_Right, 6)),
        *((keys.Key_Home, 1), (keys.Key_Left, 1), (keys.Key_Right, 2)),
    )
    read = []
    for key, _ in expected:
        QTest.keyClick(plot, key)
        read.append(plot._picked_id)
    assert read == [step_id for _, step_id in expected]


def test_a_step_stays_read_while_others_come(plot: RooflinePlot, model: TelemetryModel) -> None:
    """The reading is the step's, not the place's in the list; a step that is gone is not read."""
    QTest.keyClick(plot, Qt.Key.Key_Home)
    reading = plot.reading
    model.handle_events([decode(n) for n in range(7, 40)])
    plot.show_steps(ROOFS, LIMITS, model.step_points(), (None, None), is_live=True)
    assert plot.reading == reading
    later = model.step_points()
    plot.show_steps(ROOFS, LIMITS, later.where(later.step_id > 9), (None, None), is_live=True)
    assert plot.reading is None


def test_dots_are_painted_in_their_phases_colours(
    plot: RooflinePlot, model: TelemetryModel
) -> None:
    """Of the selected answer strong, else quieter; a thousand are as good as one."""
    scene, theme = plot.scene, load_theme("dark")
    assert scene is not None
    points = model.step_points()
    x, y = scene.pixels(points)
    pixel = QPointF(x[2], y[2]).toPoint()
    quiet = plot.grab().toImage().pixelColor(pixel)
    selected = type(points)(
        **{n: getattr(points, n) for n in points.__slots__ if n != "is_selected"},
        is_selected=points.is_prefill | True,
    )
    plot.show_steps(ROOFS, LIMITS, selected, (None, None), is_live=False)
    strong = plot.grab().toImage()
    assert strong.pixelColor(pixel) == theme.color("decode")
    assert strong.pixelColor(QPointF(x[0], y[0]).toPoint()) == theme.color("prefill")
    assert quiet not in (theme.color("decode"), theme.color("surface"))
