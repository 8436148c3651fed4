"""The plots draw every curve, mark what is late, follow the data and rest when unseen."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, QPointF, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QImage, QPainter
from pytestqt.qtbot import QtBot

from app.telemetry.itl_markers import ItlMarkers, LateToken
from app.telemetry.plot_area import axis_width
from app.telemetry.plots import TelemetryPlots
from app.telemetry.telemetry_model import TelemetryModel
from app.telemetry.time_axis import TimeAxis
from app.theme import LABEL_PX, Theme, load_theme
from tests.app.telemetry.story import MS, Clock, Story, loaded

# The offscreen platform says so of every window that is shown.
pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")


@pytest.fixture
def plots(qtbot: QtBot, model: TelemetryModel, theme: Theme) -> Iterator[TelemetryPlots]:
    """The three plots, shown at the size of the dock."""
    plots = TelemetryPlots(theme, model)
    plots.resize(480, 560)
    qtbot.addWidget(plots)
    with qtbot.waitExposed(plots):
        plots.show()
    yield plots
    plots.hide()


def tell(plots: TelemetryPlots, model: TelemetryModel, clock: Clock, story: Story) -> None:
    """Let an answer happen and draw it."""
    model.handle_events([loaded()])
    story.tell(model, clock)
    plots.redraw()


def test_every_curve_of_an_answer_is_drawn(
    plots: TelemetryPlots, model: TelemetryModel, clock: Clock
) -> None:
    """After an answer no curve is empty, and there is one latency a token but the first."""
    tell(plots, model, clock, Story(num_tokens=110))
    curves = plots.curves()
    assert set(curves) == {
        "itl",
        "itl band",
        "ttft",
        "kv used",
        "kv allocated",
        "kv reserved",
        "device",
        "mfu",
        "mbu",
    }
    for name, (x, y) in curves.items():
        assert len(x) == len(y) > 0, name
        assert np.all(np.isfinite(x)), name
        assert np.all(np.isfinite(y)), name
    assert len(curves["itl"][0]) == 109
    assert curves["ttft"][1][0] == pytest.approx(256 / 2_050 * 1e3, rel=1e-3)
    assert curves["kv reserved"][1][0] == pytest.approx(94.7, rel=1e-3)


def test_nothing_yet_draws_nothing(plots: TelemetryPlots) -> None:
    """Before the first message the plots are there, without a curve and without an error."""
    plots.redraw()
    assert all(len(x) == 0 for x, _ in plots.curves().values())


def test_time_axis_makes_room_for_the_rest_of_the_prefill(
    plots: TelemetryPlots, model: TelemetryModel, clock: Clock
) -> None:
    """3.1 s into a prefill of 8 s the axis already reaches beyond its end; zero is Send."""
    story = Story(prompt_tokens=3_120, prefill_tok_s=396)
    model.handle_events([loaded()])
    story.tell(model, clock, story.t_send_ns + 3_100 * MS)
    plots.redraw()
    assert plots.time_range == (0.0, 12.0)
    assert plots.itl.area.backdrop.shades[0] == pytest.approx((0.0, 3.1))
    assert "1,152 of 3,120 tokens, about 5 s" in plots.itl._notice.text


def test_late_tokens_leave_the_axis_alone(
    plots: TelemetryPlots, model: TelemetryModel, clock: Clock
) -> None:
    """A token of 41 ms among tokens of 7 is a labelled triangle, not a new axis."""
    tell(plots, model, clock, Story(num_tokens=110, late={60: 41.0}))
    assert 8 < plots.itl._top_ms < 20
    assert [(t.label, t.cause) for t in plots.itl._markers.late] == [
        ("41.0 ms", "same work, slower step")
    ]
    assert 41.0 in plots.curves()["itl"][1]


def test_axis_of_latencies_does_not_twitch(
    plots: TelemetryPlots, model: TelemetryModel, clock: Clock
) -> None:
    """A little more or less latency keeps the axis; twice as much moves it."""
    model.handle_events([loaded()])
    story = Story(num_tokens=60)
    tops = set()
    for share in (0.3, 0.5, 0.7, 0.9, 1.0):
        story_end = story.t_send_ns + int((story.end_ns - story.t_send_ns) * share)
        story.tell(model, clock, story_end)
        plots.redraw()
        tops.add(plots.itl._top_ms)
    assert len(tops) == 1
    tell(plots, model, clock, Story("slow", t_send_ns=story.end_ns, itl_ms=20.0))
    assert plots.itl._top_ms > 20


@pytest.mark.parametrize("itl_ms", [0.4, 7.2, 800.0, 4_000.0, 90_000.0])
def test_y_labels_fit_their_room_at_any_pace(
    plots: TelemetryPlots, model: TelemetryModel, clock: Clock, itl_ms: float
) -> None:
    """From a fast GPU to a swapping laptop: labels are not dropped, slow ones count seconds."""
    tell(plots, model, clock, Story(num_tokens=5, itl_ms=itl_ms))
    axis = plots.itl.area.getPlotItem().getAxis("left")
    labels = [text for _, text in axis._tickLevels[0]]
    metrics = QFontMetricsF(load_theme("dark").font(LABEL_PX))
    assert len(labels) >= 3
    assert max(map(metrics.horizontalAdvance, labels)) <= axis_width(load_theme("dark")) - 7
    assert plots.itl.header._subtitles[1] == ("s" if itl_ms > 3_000 else "ms")


def test_a_pool_far_above_the_use_is_named_at_the_edge(
    plots: TelemetryPlots, model: TelemetryModel, clock: Clock
) -> None:
    """With 3 of 94 MB used the axis fits the use; with 30 of 94 it holds the whole pool."""
    tell(plots, model, clock, Story("small", prompt_tokens=100, num_tokens=20))
    assert plots.kv._reserved.above_axis
    tell(plots, model, clock, Story("large", prompt_tokens=1_200, num_tokens=20))
    assert not plots.kv._reserved.above_axis
    assert plots.kv._reserved.label == "reserved 94.7 (4,096 tokens)"


def test_without_a_gpu_the_device_is_called_process_cpu(
    plots: TelemetryPlots, model: TelemetryModel, clock: Clock
) -> None:
    """The legend says whose load it is, and n/a where a GPU does not tell."""
    tell(plots, model, clock, Story(num_tokens=20))
    assert plots.utilization.header.legend.entries[0].name == "process CPU"
    model.handle_events([loaded("cuda:0")])
    Story("gpu", t_send_ns=clock.now_ns, num_tokens=20).tell(model, clock)
    plots.redraw()
    assert plots.utilization.header.legend.entries[0].name == "GPU n/a"
    assert "device" not in plots.curves()


def test_panning_stops_following_until_the_button(
    qtbot: QtBot, plots: TelemetryPlots, model: TelemetryModel, clock: Clock
) -> None:
    """The axis stays where the person put it; the button brings the newest data back."""
    tell(plots, model, clock, Story(num_tokens=400))
    assert not plots._follow_button.isVisible()
    view = plots.kv.area.view_box
    with qtbot.waitSignal(plots.following_changed):
        view.setXRange(0.2, 0.6, padding=0)
        view.sigRangeChangedManually.emit([True, False])
    plots.redraw()
    assert plots.time_range == pytest.approx((0.2, 0.6), abs=0.02)
    assert plots._follow_button.isVisible()
    qtbot.mouseClick(plots._follow_button, Qt.MouseButton.LeftButton)
    assert plots.following
    assert plots.time_range == (0.0, 6.0)


def test_a_new_answer_is_followed_again(
    plots: TelemetryPlots, model: TelemetryModel, clock: Clock
) -> None:
    """Having panned in one answer does not hide the next one."""
    tell(plots, model, clock, Story("a", num_tokens=50))
    plots._on_panned()
    tell(plots, model, clock, Story("b", t_send_ns=clock.now_ns + MS, num_tokens=50))
    assert plots.following


def test_the_time_axis_is_shared(
    plots: TelemetryPlots, model: TelemetryModel, clock: Clock
) -> None:
    """All three plots show the same span in the same pixels, so that they can be compared."""
    tell(plots, model, clock, Story(num_tokens=300))
    panels = (plots.itl, plots.kv, plots.utilization)
    spans = {tuple(p.area.view_box.viewRange()[0]) for p in panels}
    assert len(spans) == 1
    assert len({(p.area.view_box.x(), p.area.view_box.width()) for p in panels}) == 1


def test_hidden_plots_are_not_drawn(
    qtbot: QtBot, plots: TelemetryPlots, model: TelemetryModel, clock: Clock
) -> None:
    """While hidden nothing is read from the model; shown again, the plots are up to date."""
    plots.hide()
    model.handle_events([loaded()])
    with qtbot.waitSignal(model.changed):
        Story(num_tokens=30).tell(model, clock)
    assert not plots._timer.isActive()
    assert len(plots.curves()["itl"][0]) == 0
    plots.show()
    assert len(plots.curves()["itl"][0]) == 29


def test_redraws_are_four_a_second_at_most(
    qtbot: QtBot, plots: TelemetryPlots, model: TelemetryModel, clock: Clock
) -> None:
    """Right after a redraw the next one waits for the rest of its quarter of a second."""
    plots.redraw()
    with qtbot.waitSignal(model.changed):
        Story(num_tokens=30).tell(model, clock)
    # select() announced at once: the redraw it asked for is still to come.
    assert plots._timer.isActive()
    assert plots._timer.interval() > 150


def test_plots_can_be_drawn_light_and_at_twice_the_size(
    plots: TelemetryPlots, model: TelemetryModel, clock: Clock, tmp_path: Path
) -> None:
    """A change of theme reaches background, dots and shade; every meaning has its colour."""
    light = load_theme("light", 1.25)
    plots.set_theme(light)
    tell(plots, model, clock, Story(num_tokens=110))
    image = QImage(plots.size() * 2, QImage.Format.Format_RGB32)
    image.setDevicePixelRatio(2)
    image.fill(light.color("surface"))
    plots.render(image, QPoint())
    pixels = np.frombuffer(image.constBits(), np.uint32).reshape(image.height(), -1) & 0xFFFFFF
    for token in ("surface", "prefill", "decode", "kv"):
        assert (pixels == int(getattr(light, token)[1:], 16)).sum() > 20, token


def _draw(markers: ItlMarkers, area: QRectF, seconds: float) -> Callable[[float, float], QPointF]:
    def px(x: float, y: float) -> QPointF:
        return QPointF(area.left() + x / seconds * area.width(), area.bottom() - y)

    markers.px = px  # type: ignore[method-assign]
    return px


@given(
    late=st.lists(st.floats(0.0, 6.0), max_size=12),
    ttft=st.floats(0.01, 6.0),
    width=st.integers(280, 460),
)
def test_labels_at_the_top_edge_never_overlap(
    late: list[float], ttft: float, width: int, qapp: object
) -> None:
    """Whatever is late and wherever the TTFT stands: labels keep clear of each other and inside."""
    markers = ItlMarkers(load_theme("dark"))
    markers.late = tuple(LateToken(t, 20.0 + i, f"{20 + i}.0 ms") for i, t in enumerate(late))
    area = QRectF(34, 0, width, 160)
    px = _draw(markers, area, 6.0)
    pill = markers.pill_rect(px(ttft, 0).x(), area, 80, 18)
    assert pill.left() >= area.left()
    assert pill.right() <= area.right() + 1
    marks = markers._triangles(area, pill)
    labels = markers._late_labels(area, pill, marks, 24.0)
    boxes = [rect for rect, _ in labels] + [pill]
    for i, box in enumerate(boxes):
        assert area.left() <= box.left()
        assert box.right() <= area.right() + 1
        assert not any(box.intersects(other) for other in boxes[i + 1 :])
    assert not any(rect.intersects(mark) for rect, _ in labels for mark, _ in marks)


@given(
    start=st.floats(0, 500),
    span=st.floats(0.05, 4_000),
    width=st.integers(200, 1_200),
)
def test_time_labels_never_overlap_nor_leave_the_widget(
    start: float, span: float, width: int, qapp: object
) -> None:
    """At any zoom and width the labels stand apart, inside, the last one with its unit."""
    axis = TimeAxis(load_theme("light"))
    axis.resize(width, axis.height())
    axis.set_range(start, start + span)
    labels = axis.labels()
    for (left, _), (right, _) in itertools.pairwise(labels):
        assert left.right() < right.left()
    assert all(rect.left() >= 0 and rect.right() <= width for rect, _ in labels)
    if labels:
        assert labels[-1][1].endswith(" s")


def test_dots_land_on_their_pixels(
    plots: TelemetryPlots, model: TelemetryModel, clock: Clock
) -> None:
    """A dot is painted where the axis says it is: the colour of decode at its pixel."""
    tell(plots, model, clock, Story(num_tokens=60))
    area = plots.itl.area
    image = QImage(area.size(), QImage.Format.Format_RGB32)
    painter = QPainter(image)
    area.render(painter)
    painter.end()
    x, y = plots.curves()["itl"]
    seen = 0
    for t, ms in zip(x, y, strict=True):
        scene = area.view_box.mapViewToScene(QPointF(t, ms))
        pixel = area.mapFromScene(scene)
        around = (image.pixelColor(pixel + QPoint(i, j)) for i in (-1, 0, 1) for j in (-1, 0, 1))
        seen += any(color.blue() > 200 for color in around)
    assert seen == len(x)
