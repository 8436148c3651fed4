"""Recordings of made-up sessions, and a player whose clock stands until it is set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.replay.player import Player
from app.replay.recording import Recording, read_recording
from app.replay.session_recorder import SessionRecorder
from engine.events import Event, TokenEvent
from engine.sensors import SensorSample
from tests.app.telemetry.story import MS, Clock, Story

SECRET = "the answer is forty-two"


def secret(item: Event) -> Event:
    """A token with a text that is searched for."""
    return replace(item, text=SECRET) if isinstance(item, TokenEvent) else item


def record(recorder: SessionRecorder, story: Story) -> None:
    """An answer from Send to its end, the model loaded before."""
    recorder.handle_events([story.model])
    recorder.request_sent(story.request_id, story.t_send_ns)
    for item in story.until():
        if isinstance(item, SensorSample):
            recorder.handle_sample(item)
        else:
            recorder.handle_events([secret(item)])
    recorder.request_painted(story.request_id, story.num_tokens - 1, story.end_ns + 5 * MS)


@pytest.fixture
def story() -> Story:
    """An answer of a hundred tokens to a prompt of which half was cached."""
    return Story(late={40: 55.0}, cached_tokens=128, queue_ms=3.0)


def recorded(story: Story, path: Path, *, with_text: bool) -> Recording:
    """The story, recorded, saved and opened."""
    recorder = SessionRecorder(Clock(0))
    record(recorder, story)
    recorder.save(path, with_text=with_text)
    recorder.close()
    return read_recording(path)


@pytest.fixture
def recording(story: Story, tmp_path: Path) -> Recording:
    """The story without its text."""
    return recorded(story, tmp_path / "story.phasescope", with_text=False)


@pytest.fixture
def recording_with_text(story: Story, tmp_path: Path) -> Recording:
    """The story with its text."""
    return recorded(story, tmp_path / "words.phasescope", with_text=True)


@pytest.fixture
def wall() -> Clock:
    """The clock that paces the player."""
    return Clock()


@pytest.fixture
def player(qtbot: QtBot, recording: Recording, wall: Clock) -> Iterator[Player]:
    """A player of the story, standing at its Send."""
    player = Player(recording, wall)
    yield player
    player.pause()
    player.model.clear()
    player.deleteLater()
