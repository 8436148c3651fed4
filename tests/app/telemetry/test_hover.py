"""The mouse and the keys read every figure of a moment; the look-up is right without a widget."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, Qt
from pytestqt.qtbot import QtBot

from app.telemetry.crosshair import readout
from app.telemetry.plots import TelemetryPlots
from app.telemetry.telemetry_model import TelemetryModel
from app.telemetry.timeline import make_timeline
from app.telemetry.token_texts import TokenTexts
from app.theme import Theme
from engine.events import StepStats, TokenEvent
from engine.sensors import SensorSample
from tests.app.telemetry.story import Clock, Story, loaded

# The offscreen platform says so of every window that is shown.
pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")


@pytest.fixture
def story(model: TelemetryModel, clock: Clock) -> Story:
    """An answer of 110 tokens, one of them late, that the model has heard."""
    story = Story(num_tokens=110, late={60: 41.0})
    model.handle_events([loaded()])
    story.tell(model, clock)
    return story


@pytest.fixture
def plots(
    qtbot: QtBot, model: TelemetryModel, theme: Theme, story: Story
) -> Iterator[TelemetryPlots]:
    """The three plots of the answer, shown at the size of the dock."""
    plots = TelemetryPlots(theme, model)
    plots.resize(480, 560)
    qtbot.addWidget(plots)
    with qtbot.waitExposed(plots):
        plots.show()
    yield plots
    plots.hide()


def test_a_moment_has_the_figures_of_its_token_step_and_sample(
    model: TelemetryModel, story: Story
) -> None:
    """Every token's moment gives what its own events said, found here by plain search."""
    assert model.selected is not None
    events = story.events()
    steps = {e.step_id: e for e in events if isinstance(e, StepStats)}
    samples = [s for s in story.until() if isinstance(s, SensorSample)]
    for token in (e for e in events if isinstance(e, TokenEvent)):
        at = (token.t_ns - story.t_send_ns) / 1e9
        found = model.instant(model.selected, at + 1e-4)
        assert (found.token, found.text) == (token.index + 1, token.text)
        assert found.itl_ms == token.itl_ms
        assert found.context_tokens == token.context_tokens
        assert found.kv_bytes == token.kv_bytes_used
        assert found.mfu_pct == steps[token.step_id].mfu_pct
        assert found.mbu_pct == steps[token.step_id].mbu_pct
        holds = next(s for s in samples if s.t_ns >= token.t_ns)
        assert found.device_pct == holds.cpu_util_pct


def test_before_the_first_token_the_prompt_is_read(model: TelemetryModel, story: Story) -> None:
    """In the second chunk the cache holds the first, and the step is the chunk's."""
    assert model.selected is not None
    found = model.instant(model.selected, 0.1)
    assert (found.token, found.itl_ms, found.context_tokens) == (None, None, 128)
    assert found.mfu_pct == pytest.approx(72.0)


def test_a_moment_between_steps_has_no_utilization(model: TelemetryModel, clock: Clock) -> None:
    """While a request waits in the queue no step is running, so none is claimed."""
    model.handle_events([loaded()])
    Story(num_tokens=5, queue_ms=50.0).tell(model, clock)
    assert model.selected is not None
    found = model.instant(model.selected, 0.02)
    assert found.mfu_pct is None
    timeline = make_timeline(model, "answer", by_token=False)
    assert ("Compute (MFU)", "–") in readout(found, model.selected, timeline)


@given(st.lists(st.text(max_size=6), max_size=40))
def test_texts_come_back_as_they_went_in(texts: list[str]) -> None:
    """Empty ones, halves of characters and other scripts included."""
    kept = TokenTexts()
    for text in texts:
        kept.append(text)
    assert [kept[row] for row in range(len(kept))] == texts


def test_the_mouse_reads_the_moment_under_it(qtbot: QtBot, plots: TelemetryPlots) -> None:
    """Over any plot the token nearest in time is read; beside the plots nothing is."""
    area = plots.kv.area
    start, end = plots.time_range
    rect = area.data_rect()
    times = plots.curves()["itl"][0]
    x = rect.left() + (times[50] - start) / (end - start) * rect.width()
    qtbot.mouseMove(area.viewport(), QPoint(round(x), round(rect.center().y())))
    number = int(plots.reading[0][0].split()[1])
    per_pixel = (end - start) / rect.width()
    assert abs(times[number - 2] - times[50]) <= per_pixel
    assert dict(plots.reading)["Token " + str(number)] == "“ token”"
    qtbot.mouseMove(area.viewport(), QPoint(2, round(rect.center().y())))
    assert plots.reading == []


def test_keys_go_from_token_to_token(qtbot: QtBot, plots: TelemetryPlots) -> None:
    """The first press reads the newest; left, right, Home and End go where they say, Esc ends."""
    seen = []
    plots.setFocus()
    keys = (
        *(Qt.Key.Key_Left, Qt.Key.Key_Left, Qt.Key.Key_Right, Qt.Key.Key_Right),
        *(Qt.Key.Key_Home, Qt.Key.Key_Left, Qt.Key.Key_End, Qt.Key.Key_Escape),
    )
    for key in keys:
        qtbot.keyClick(plots, key)
        seen.append(plots.reading[0][0] if plots.reading else "")
    numbers = [f"Token {n}" for n in (110, 109, 110, 110, 1, 1, 110)]
    assert seen == [*numbers, ""]


def test_a_token_beyond_the_axis_is_brought_into_view(qtbot: QtBot, plots: TelemetryPlots) -> None:
    """Zoomed in on the beginning, End moves the axis by as much as it needs, as wide as it was."""
    plots.itl.area.view_box.setXRange(0.0, 0.2, padding=0)
    qtbot.keyClick(plots, Qt.Key.Key_End)
    start, end = plots.time_range
    assert end - start == pytest.approx(0.2)
    assert start < plots.curves()["itl"][0][-1] < end
    assert not plots.following


def test_the_card_stays_within_the_plots(plots: TelemetryPlots) -> None:
    """At either end of the axis no part of it is cut off, and it never lies under the line."""
    for t_s in np.linspace(*plots.time_range, 25):
        plots.read(float(t_s))
        if plots.reading:
            card = plots._crosshair.card()
            assert card.left() >= 0
            assert card.right() <= plots.width()
            assert not card.left() <= plots._crosshair._x <= card.right()


def test_another_answer_takes_the_reading_away(
    plots: TelemetryPlots, model: TelemetryModel, clock: Clock, story: Story
) -> None:
    """A moment of the last answer says nothing of the next."""
    plots.read(0.5)
    assert plots.reading
    Story("r2", t_send_ns=story.end_ns + 1).tell(model, clock)
    plots.redraw()
    assert plots.reading == []
