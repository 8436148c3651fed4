"""The session on one axis, an answer over its tokens, the newest seconds; chosen and read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.telemetry.dock import TelemetryPanel
from app.telemetry.kv_plot import cache_course
from app.telemetry.telemetry_model import TelemetryModel
from app.telemetry.time_axis import TimeAxis
from app.telemetry.time_scale import session_scale
from app.telemetry.timeline import LIVE_S, Timeline, View, make_timeline
from app.telemetry.token_keys import token_for
from app.theme import Theme, load_theme
from tests.app.conftest import MakeProgram
from tests.app.telemetry.story import MS, Clock, Story, loaded

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")

S = 1_000 * MS


@pytest.fixture
def stories(model: TelemetryModel, clock: Clock) -> list[Story]:
    """Two answers 100 s apart, and one that ran beside the second."""
    model.handle_events([loaded()])
    first = Story("a", t_send_ns=2 * S, num_tokens=60, prompt_tokens=300)
    second = Story("b", t_send_ns=102 * S, num_tokens=40, first_step=200)
    beside = Story("c", t_send_ns=102 * S + 200 * MS, num_tokens=20, first_step=400)
    told = [first, second, beside]
    for story in told:
        story.tell(model, clock)
    clock.now_ns = max(story.end_ns for story in told)
    model.select("b")
    return told


@pytest.fixture
def apart(model: TelemetryModel, clock: Clock) -> None:
    """Two answers 100 s apart: an engine's steps follow one another."""
    model.handle_events([loaded()])
    Story("a", t_send_ns=2 * S, num_tokens=60, prompt_tokens=300).tell(model, clock)
    Story("b", t_send_ns=102 * S, num_tokens=40, first_step=200).tell(model, clock)


@pytest.fixture
def panel(qtbot: QtBot, model: TelemetryModel, theme: Theme) -> Iterator[TelemetryPanel]:
    """A shown panel."""
    panel = TelemetryPanel(theme, model)
    qtbot.addWidget(panel)
    panel.resize(512, 860)
    with qtbot.waitExposed(panel):
        panel.show()
    yield panel
    panel.hide()


def session(model: TelemetryModel) -> Timeline:
    return make_timeline(model, "session", by_token=False)


# --- what is drawn ----------------------------------------------------------------------------


def test_a_session_draws_every_token(
    panel: TelemetryPanel, model: TelemetryModel, stories: list[Story]
) -> None:
    """Each at its place, in order, whoever's it is; every prompt shaded, the pause hatched."""
    panel.show_view("session", by_token=False)
    x, itl = panel.plots.curves()["itl"]
    assert len(x) == sum(story.num_tokens - 1 for story in stories)
    assert np.all(np.diff(x) >= 0)
    expected = {
        (round(session(model).place(trace, float(t_s)), 6), float(latency))
        for trace in model.requests
        for t_s, latency in zip(trace.tokens["t_s"][1:], trace.tokens["itl_ms"][1:], strict=True)
    }
    assert {(round(float(a), 6), float(b)) for a, b in zip(x, itl, strict=True)} == expected
    backdrop = panel.plots.itl.area.backdrop
    assert len(backdrop.shades) == 3
    (gap,) = backdrop.gaps
    assert gap[1] - gap[0] == pytest.approx(2.0)
    assert panel.plots.time_range[1] < 10


def test_the_cache_of_a_session_is_that_of_all(model: TelemetryModel, stories: list[Story]) -> None:
    """At any moment the sum of what each request had; nothing while none ran."""
    timeline = session(model)
    x, used, _ = cache_course(timeline, "used")
    assert used.min() >= 0
    for second in (1.3, 50.0, 101.1, 101.35, 101.5):
        own = []
        for trace in model.requests:
            start, end = model.span_s(trace)
            row = int(np.searchsorted(trace.kv["t_s"], second - start, side="right")) - 1
            is_running = start <= second < end and row >= 0
            own.append(float(trace.kv["used"][row]) if is_running else 0.0)
        row = int(np.searchsorted(x, timeline.scale.place_of(second), side="right")) - 1
        assert used[row] == pytest.approx(sum(own), abs=1.0), second
    assert used[-1] == 0


@pytest.mark.usefixtures("apart")
def test_steps_rest_where_none_ran(model: TelemetryModel) -> None:
    """Utilization falls to nothing between answers, and stays there."""
    line = model.session_steps()
    assert np.all(np.diff(line.t_s) >= -1e-9)
    idle = (line.t_s > 3.0) & (line.t_s < 100.9)
    assert not np.any(line.mfu_pct[idle])
    end_of_first = line.t_s < 50
    assert line.mfu_pct[end_of_first][-1] == 0
    assert line.mfu_pct[line.t_s > 50][0] == 0
    assert line.mfu_pct[-1] == 0
    busy = model.steps_of(model.requests[0])
    assert set(busy.mfu_pct) <= set(line.mfu_pct)


@pytest.mark.usefixtures("apart")
def test_edges_survive_thinning(panel: TelemetryPanel) -> None:
    """The drawn lines still have their prefill steps and their zeros."""
    panel.show_view("session", by_token=False)
    for name in ("mfu", "mbu"):
        x, y = panel.plots.curves()[name]
        assert np.all(np.diff(x) >= -1e-9)
        assert np.count_nonzero(y == 0) >= 3
    assert panel.plots.curves()["mfu"][1].max() == pytest.approx(72.0, rel=0.05)


def test_an_answer_over_its_tokens(
    panel: TelemetryPanel, model: TelemetryModel, stories: list[Story]
) -> None:
    """Token by token after the prompt, whose shade it takes; the reading is the same moment."""
    panel.show_view("answer", by_token=True)
    x, _ = panel.plots.curves()["itl"]
    assert x.tolist() == list(range(258, 297))
    ((start, end),) = panel.plots.itl.area.backdrop.shades
    assert (start, end) == pytest.approx((0, 257), abs=1)
    assert panel.plots.time_range == (0.0, 400.0)
    assert panel.plots.time_axis.labels()[-1][1].endswith(" tokens")
    panel.plots.read_token(30)
    assert panel.plots.reading[0][0] == "Token 31"
    assert dict(panel.plots.reading)["Context"] == "287 tokens"


def test_the_newest_seconds_move_on(
    panel: TelemetryPanel, model: TelemetryModel, clock: Clock
) -> None:
    """A long answer is followed at its end; a short one is whole."""
    model.handle_events([loaded()])
    story = Story(num_tokens=200, itl_ms=150.0)
    panel.show_view("live", by_token=False)
    for share, is_whole in ((0.2, True), (0.7, False), (1.0, False)):
        at = round(story.t_send_ns + (story.end_ns - story.t_send_ns) * share)
        story.tell(model, clock, at)
        panel.plots.redraw()
        start, end = panel.plots.time_range
        newest = (at - story.t_send_ns) / 1e9
        assert (start == 0.0) == is_whole
        assert start <= newest <= end
        assert is_whole or end - start == pytest.approx(LIVE_S)
        assert is_whole or end - newest <= 1.0


@pytest.mark.parametrize("view", ["live", "answer", "session"])
@pytest.mark.parametrize("by_token", [False, True])
def test_nothing_yet(panel: TelemetryPanel, view: View, by_token: bool) -> None:
    """Before the first message every view is empty and has a sentence."""
    panel.show_view(view, by_token=by_token)
    assert all(len(x) == 0 for x, _ in panel.plots.curves().values())
    assert panel.plots.time_axis.labels()


# --- the ribbon and the axis -------------------------------------------------------------------


def test_the_ribbon_has_loads_and_a_lane_a_request_at_a_time(
    panel: TelemetryPanel, model: TelemetryModel, stories: list[Story]
) -> None:
    """What follows each other shares a lane; a tooltip names the load."""
    panel.show_view("session", by_token=False)
    first, second = panel.ribbon.lanes()
    kinds = [segment.kind for segment in first]
    assert kinds == ["load", "warm-up", *["prefill", "decode"] * 2]
    assert [segment.kind for segment in second] == ["prefill", "decode"]
    for lane in (first, second):
        assert all(a.end <= b.start + 1e-9 for a, b in itertools.pairwise(lane))
    assert panel.ribbon.describe(first[0]) == "Loading the model: 900 ms"


@given(
    stretches=st.lists(st.tuples(st.floats(0, 2e4), st.floats(0.1, 300)), min_size=1, max_size=12),
    share=st.tuples(st.floats(0, 0.9), st.floats(0.02, 1.0)),
    width=st.integers(200, 1_200),
)
def test_session_labels_never_overlap(
    stretches: list[tuple[float, float]],
    share: tuple[float, float],
    width: int,
    qapp: object,
) -> None:
    """However long the pauses and wherever one looks, labels stand apart and within."""
    scale = session_scale([(start, start + length) for start, length in stretches])
    axis = TimeAxis(load_theme("light"))
    axis.resize(width, axis.height())
    end = float(scale.places[-1])
    axis.set_scale(scale, "session")
    axis.set_range(share[0] * end, share[0] * end + share[1] * end)
    labels = axis.labels()
    for (left, _), (right, _) in itertools.pairwise(labels):
        assert left.right() < right.left()
    assert all(rect.right() <= width for rect, _ in labels)


# --- reading -----------------------------------------------------------------------------------


def test_the_mouse_reads_any_answer_of_the_session(
    qtbot: QtBot, panel: TelemetryPanel, model: TelemetryModel, stories: list[Story]
) -> None:
    """Its number is told; a double-click opens it."""
    panel.show_view("session", by_token=False)
    area = panel.plots.itl.area
    trace = model.requests[0]
    place = panel.plots.timeline.place(trace, float(trace.tokens["t_s"][30]))
    start, end = panel.plots.time_range
    rect = area.data_rect()
    x = rect.left() + (place - start) / (end - start) * rect.width()
    spot = QPoint(round(x), round(rect.center().y()))
    qtbot.mouseMove(area.viewport(), spot)
    assert dict(panel.plots.reading)["Answer"] == "1 of 3"
    with qtbot.waitSignal(panel.view_chosen):
        QTest.mouseDClick(area.viewport(), Qt.MouseButton.LeftButton, pos=spot)
    assert model.selected is trace
    assert panel.switch.view == "answer"
    assert len(panel.plots.curves()["itl"][0]) == 59


def test_enter_opens_the_answer_that_is_read(
    panel: TelemetryPanel, model: TelemetryModel, stories: list[Story]
) -> None:
    """Home is the session's first token, End its newest; Enter leads to the answer."""
    panel.show_view("session", by_token=False)
    panel.plots.setFocus()
    QTest.keyClick(panel.plots, Qt.Key.Key_End)
    assert dict(panel.plots.reading)["Answer"] == "3 of 3"
    QTest.keyClick(panel.plots, Qt.Key.Key_Home)
    assert panel.plots.reading[0][0] == "Token 1"
    QTest.keyClick(panel.plots, Qt.Key.Key_Return)
    assert model.selected is model.requests[0]
    assert not panel.plots.timeline.is_session


def test_keys_visit_every_token(model: TelemetryModel, stories: list[Story]) -> None:
    """To the right from the first to the last, to the left back again."""
    timeline = session(model)
    tokens = [(t, row) for t in model.requests for row in range(len(t.tokens))]
    for key, ahead in ((Qt.Key.Key_Right, tokens), (Qt.Key.Key_Left, tokens[::-1])):
        for (trace, row), expected in itertools.pairwise(ahead):
            assert token_for(key, timeline, trace, row) == expected
        assert token_for(key, timeline, *ahead[-1]) == ahead[-1]
    assert token_for(Qt.Key.Key_A, timeline, None, None) is None


# --- choosing ----------------------------------------------------------------------------------


def test_the_choice_is_kept(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Over the plots or in the menu, it is the same and there again at the next start."""
    program = make_program()
    panel, actions = program.window.panel, program.window.actions_table
    assert (panel.switch.view, panel.switch.by_token) == ("answer", False)
    actions["view.session"].trigger()
    assert panel.switch.view == "session"
    assert not panel.switch.units.isEnabled()
    panel.switch.views.buttons()[0].click()
    actions["view.tokens"].trigger()
    assert panel.switch.by_token
    assert panel.switch.units.isEnabled()
    later = make_program().window.panel
    assert (later.switch.view, later.switch.by_token) == ("live", True)


def test_choosing_again_follows_again(panel: TelemetryPanel, stories: list[Story]) -> None:
    """A click on what is chosen already leads back from where the person panned to."""
    panel.plots.redraw()
    panel.plots.itl.area.view_box.setXRange(0.1, 0.2, padding=0)
    panel.plots.itl.area.panned.emit()
    assert not panel.plots.following
    panel.switch.views.buttons()[1].click()
    assert panel.plots.following
