"""The recording that ships: whole, small, without a trace of where it was made."""

from __future__ import annotations

import getpass
import re
import socket
from pathlib import Path

import pytest
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from app import resources
from app.replay.opening import EXAMPLE
from app.replay.player import Player
from app.replay.recording import Recording, read_recording
from app.replay.window import ReplayWindow
from app.settings.schema import EXPLAIN_OFFERED
from engine.events import GenerationFinished, ModelLoaded, TokenEvent
from tests.app.conftest import MakeProgram
from tests.app.telemetry.story import Clock
from tests.fakes.fake_session import Script

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")

MAX_BYTES = 300_000


@pytest.fixture(scope="module")
def example() -> Recording:
    """The shipped file, opened."""
    with resources.as_file(EXAMPLE) as path:
        return read_recording(path)


def test_it_is_small_and_says_nothing_of_its_machine() -> None:
    """Nobody's folders, names or addresses."""
    data = resources.read_bytes(EXAMPLE)
    assert len(data) < MAX_BYTES
    text = data.decode().lower()
    own = {socket.gethostname().lower(), str(Path.home()).lower(), getpass.getuser().lower()}
    assert not {name for name in own if len(name) > 4 and name in text}
    assert not re.findall(
        r"/(?:home|users|root|tmp|work|mnt|opt)/|[a-z]:\\\\|\d+\.\d+\.\d+\.\d+", text
    )


def test_it_has_two_answers_of_which_the_second_finds_the_first(example: Recording) -> None:
    """Prefill is long enough to be seen at once, and a cached prefix after it."""
    items = [told.item for told in example.items]
    (loaded,) = (item for item in items if isinstance(item, ModelLoaded))
    assert loaded.model.path.endswith(".gguf")
    first, second = (item for item in items if isinstance(item, GenerationFinished))
    assert first.metrics.prompt_tokens > 400
    assert first.metrics.cached_tokens == 0
    assert second.metrics.cached_tokens > 400
    for end in (first, second):
        tokens = [i for i in items if isinstance(i, TokenEvent) and i.request_id == end.request_id]
        assert len(tokens) == end.metrics.completion_tokens > 60
        assert "".join(token.text for token in tokens).strip()
        assert len(end.block_tables[0]) >= end.metrics.prompt_tokens // 16


def test_it_plays_to_its_end(qtbot: QtBot, example: Recording) -> None:
    """Some seconds, after which every panel has something to show."""
    player = Player(example, Clock())
    assert 2e9 < player.end_ns - player.start_ns < 20e9
    player.seek(player.end_ns)
    trace = player.model.selected
    assert trace is not None
    assert trace.end_s is not None
    assert player.model.blocks is not None
    assert len(player.model.steps_of(trace).t_s) > 60
    assert len(player.model.device_steps(trace)[0]) > 0
    player.model.clear()
    player.deleteLater()


def test_it_plays_while_the_first_model_loads(qtbot: QtBot, make_program: MakeProgram) -> None:
    """The loading card offers it to whoever is new, and says that it is no live session."""
    program = make_program(Script(hold_load_at=0.5))
    program.begin_load()
    card = program.window.chat_view.loading_card
    (link,) = (b for b in card.findChildren(QPushButton) if "recorded" in b.text())
    qtbot.waitUntil(link.isVisible)
    link.click()
    (window,) = program.window.findChildren(ReplayWindow)
    assert window.title.text() == "Example recording, not this machine"
    assert window.player.is_playing
    window.close()
    assert program.controller.loading is not None


def test_who_knows_the_program_is_not_offered_it(qtbot: QtBot, make_program: MakeProgram) -> None:
    """After a first message the card only loads; the menu still has it."""
    program = make_program(Script(hold_load_at=0.5))
    program.settings.set(EXPLAIN_OFFERED, True)
    program.begin_load()
    card = program.window.chat_view.loading_card
    qtbot.waitUntil(card.isVisible)
    (link,) = (b for b in card.findChildren(QPushButton) if "recorded" in b.text())
    assert not link.isVisible()
    program.window.actions_table["help.example"].trigger()
    (window,) = program.window.findChildren(ReplayWindow)
    window.close()
