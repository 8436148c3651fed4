"""The player: what is replayed is what was live, at any pace and from any moment."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytestqt.qtbot import QtBot

from app.replay.items import Told
from app.replay.player import Player
from app.telemetry.plots import TelemetryPlots
from app.telemetry.readings import Reading, ReadingKey, reading
from app.telemetry.telemetry_model import TelemetryModel
from app.theme import Theme, load_theme
from engine.events import TokenEvent
from tests.app.telemetry.story import MS, Clock, Story

Shown = tuple[list[Reading], dict[str, tuple[list[float], list[float]]]]


@pytest.fixture
def theme() -> Theme:
    """The dark colour set."""
    return load_theme("dark")


def shown(qtbot: QtBot, theme: Theme, model: TelemetryModel) -> Shown:
    """All readings and curves of a model."""
    plots = TelemetryPlots(theme, model)
    qtbot.addWidget(plots)
    plots.redraw()
    curves = {name: (list(x), list(y)) for name, (x, y) in plots.curves().items()}
    return [reading(key, model) for key in get_args(ReadingKey)], curves


def live(story: Story, t_ns: int | None = None) -> TelemetryModel:
    """A model that was told the story while it happened, up to `t_ns`."""
    clock = Clock(0)
    model = TelemetryModel(clock)
    model.handle_events([story.model])
    story.tell(model, clock, t_ns)
    if t_ns is None:
        model.request_painted(story.request_id, story.num_tokens - 1, story.end_ns + 5 * MS)
    return model


def told_tokens(player: Player) -> int:
    """How many tokens the model knows."""
    assert player.model.selected is not None
    return len(player.model.selected.tokens)


@pytest.mark.parametrize("after_ms", [None, 20, 60, 70, 300])
def test_replayed_is_live(
    qtbot: QtBot, theme: Theme, player: Player, story: Story, after_ms: int | None
) -> None:
    """At the end, and at moments of prefill and decode, readings and curves are the live ones.

    Also after going there and back: nothing of what was told before is left.
    """
    player.seek(player.end_ns)
    player.seek(player.start_ns)
    t_ns = None if after_ms is None else story.t_send_ns + after_ms * MS
    player.seek(player.end_ns if t_ns is None else t_ns)
    model = live(story, t_ns)
    readings, curves = shown(qtbot, theme, player.model)
    expected_readings, expected_curves = shown(qtbot, theme, model)
    assert readings == expected_readings
    assert curves.keys() == expected_curves.keys()
    for name, (x, y) in expected_curves.items():
        np.testing.assert_array_equal(curves[name][0], x, name)
        np.testing.assert_array_equal(curves[name][1], y, name)
    assert t_ns is not None or len(curves["itl"][0]) == story.num_tokens - 1
    model.clear()
    model.select(None)


@settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(shares=st.lists(st.floats(-0.2, 1.2), min_size=1, max_size=6))
def test_any_way_there_is_the_same(player: Player, shares: list[float]) -> None:
    """Forwards and back, a moment shows the tokens of before it, no more and none twice."""
    length = player.end_ns - player.start_ns
    for share in shares:
        player.seek(player.start_ns + round(share * length))
    until = player.position_ns
    tokens = [t for t in player.recording.items if isinstance(t.item, TokenEvent)]
    assert told_tokens(player) == sum(t.t_ns <= until for t in tokens)
    assert player.start_ns <= until <= player.end_ns


@pytest.mark.parametrize("speed", [0.1, 1.0, 10.0])
def test_speeds(player: Player, wall: Clock, speed: float) -> None:
    """50 ms of the clock are 50 ms times the speed of the recording."""
    player.set_speed(speed)
    player.play()
    wall.now_ns += 50 * MS
    player.tick()
    assert player.position_ns - player.start_ns == round(50 * MS * speed)


def test_another_speed_counts_from_now(player: Player, wall: Clock) -> None:
    """Changed while it plays, the pace does not change what has passed."""
    player.play()
    wall.now_ns += 100 * MS
    player.set_speed(0.1)
    wall.now_ns += 100 * MS
    player.tick()
    assert player.position_ns - player.start_ns == 110 * MS


def test_it_stands_at_the_first_send(player: Player, story: Story) -> None:
    """The wait before the first question is not played, the model is loaded at once."""
    assert player.position_ns == story.t_send_ns
    assert player.model.loaded is not None
    assert not player.is_playing


def test_played_to_the_end(qtbot: QtBot, player: Player, wall: Clock) -> None:
    """By its own timer it comes to the end, tells each event once, and stands; play starts over."""
    played: list[Told] = []
    player.events_played.connect(played.extend)
    player.play()
    wall.now_ns += player.end_ns
    with qtbot.waitSignal(player.playing_changed) as signal:
        pass
    assert signal.args == [False]
    assert player.position_ns == player.end_ns
    assert played == list(player.recording.items[-len(played) :])
    assert sum(isinstance(t.item, TokenEvent) for t in played) == told_tokens(player)
    player.play()
    assert player.position_ns == player.start_ns


def test_paused_it_stands(player: Player, wall: Clock) -> None:
    """Time that passes while it is paused is not made up for."""
    player.play()
    player.pause()
    wall.now_ns += 500 * MS
    player.play()
    player.tick()
    assert player.position_ns == player.start_ns


def test_a_comparison_does_not_take_the_panels(player: Player, story: Story) -> None:
    """A request that no chat sent is known, and the chat's answer stays on show."""
    other = Story("other", t_send_ns=story.end_ns + 500 * MS, num_tokens=5)
    items = (*player.recording.items, *(Told(t, e) for t, e in other.items))
    second = Player(replace(player.recording, items=items))
    second.seek(second.end_ns)
    assert second.model.selected is not None
    assert second.model.selected.request_id == story.request_id
    found = second.model.request("other")
    assert found is not None
    assert len(found.tokens) == 5
    second.model.clear()
    second.deleteLater()
