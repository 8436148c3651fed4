"""The replay window, and the two ways to it: the File menu and `--replay`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QTextCursor
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from app.main import main
from app.replay.items import RequestSent, Told
from app.replay.recording import Recording
from app.replay.window import ReplayWindow
from app.replay.words import BLOCK, AnswerWords
from app.theme import load_theme
from engine.events import TokenEvent
from tests.app.conftest import MakeProgram
from tests.app.replay.conftest import SECRET
from tests.app.telemetry.story import MS, Story

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")

MakeWindow = Callable[[Recording], ReplayWindow]


@pytest.fixture
def make_window(qtbot: QtBot) -> Iterator[MakeWindow]:
    """Show a window that plays a recording and stands at its beginning."""
    windows: list[ReplayWindow] = []

    def make(recording: Recording) -> ReplayWindow:
        window = ReplayWindow(load_theme("dark"), recording, "story.phasescope")
        window.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose, False)
        qtbot.addWidget(window)
        with qtbot.waitExposed(window):
            window.show()
        windows.append(window)
        return window

    yield make
    for window in windows:
        window.player.pause()
        window.player.model.clear()


def test_blocks_stand_for_words(make_window: MakeWindow, recording: Recording) -> None:
    """Without text there is a block a token known at that moment, back and forth."""
    window = make_window(recording)
    player = window.player
    assert window.words.toPlainText() == ""
    for share in (100, 40, 70):
        player.seek(player.start_ns + (player.end_ns - player.start_ns) * share // 100)
        assert player.model.selected is not None
        assert window.words.toPlainText() == BLOCK * len(player.model.selected.tokens)


def test_words(make_window: MakeWindow, recording_with_text: Recording, story: Story) -> None:
    """With text the answer is written as it was."""
    window = make_window(recording_with_text)
    window.player.seek(window.player.end_ns)
    assert window.words.toPlainText() == SECRET * story.num_tokens


def test_space_plays_and_pauses(make_window: MakeWindow, recording: Recording) -> None:
    """Wherever the focus is, the key does what the button does, and the button says so."""
    window = make_window(recording)
    for focus in (window.words, window.transport.button, window.transport.slider):
        focus.setFocus()
        QTest.keyClick(focus, Qt.Key.Key_Space)
        assert window.player.is_playing
        assert window.transport.button.text() == "Pause"
        QTest.keyClick(focus, Qt.Key.Key_Space)
        assert not window.player.is_playing
        assert window.transport.button.text() == "Play"


def test_the_slider_seeks(make_window: MakeWindow, recording: Recording) -> None:
    """Its ends are those of the recording, and it follows the player."""
    window = make_window(recording)
    player, slider = window.player, window.transport.slider
    slider.setValue(slider.maximum())
    assert player.position_ns == player.end_ns
    player.seek(player.start_ns)
    assert slider.value() == 0
    slider.setValue(slider.maximum() // 2)
    assert abs(player.position_ns - (player.start_ns + player.end_ns) // 2) < MS


def test_the_speed_is_chosen(make_window: MakeWindow, recording: Recording) -> None:
    """It begins at 1 and takes each of the three."""
    window = make_window(recording)
    speed = window.transport.speed
    assert speed.currentText() == "1×"
    for index, expected in enumerate((0.1, 1.0, 10.0)):
        speed.setCurrentIndex(index)
        assert window.player.speed == expected


def test_it_says_what_it_is(make_window: MakeWindow, recording: Recording) -> None:
    """Nobody takes it for the live session; what ran is named, a strange date left out."""
    window = make_window(recording)
    assert "not live" in window.title.text()
    assert "SmolLM2" in window.source.text()
    strange = replace(recording, header=replace(recording.header, started_at="soon"))
    assert "soon" not in make_window(strange).source.text()


def test_open_from_the_menu(
    qtbot: QtBot, make_program: MakeProgram, recording: Recording, tmp_path: Path
) -> None:
    """The chosen recording plays beside the window; a bad one is told on a card."""
    program = make_program()
    for name, content in (("bad.phasescope", b"{}"), ("story.phasescope", None)):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        program.window.actions_table["file.open_recording"].trigger()
        dialog = program.window.findChildren(QFileDialog)[-1]
        dialog.done(QFileDialog.DialogCode.Accepted)
        dialog.fileSelected.emit(str(tmp_path / name))
    card = program.window.cards.card("recording")
    assert card is not None
    assert "bad.phasescope cannot be played. This is not a recorded" in card.accessibleName()
    (window,) = program.window.findChildren(ReplayWindow)
    assert window.isWindow()
    assert window.player.is_playing
    program.appearance.choose("light", 1.0)
    window.close()


def test_a_bad_file_ends_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line on stderr says what is wrong, and the exit code is 1."""
    (tmp_path / "a").write_text("[]")
    assert main(["--replay", str(tmp_path / "a")]) == 1
    assert capsys.readouterr().err.endswith("choose a file that Save recording… wrote.\n")
    with pytest.raises(SystemExit) as leave:
        main(["--replay", str(tmp_path / "a"), "--prompt", "Why?"])
    assert leave.value.code == 2


def test_replay_needs_no_torch(recording: Recording, tmp_path: Path) -> None:
    """The whole program plays a file to its end without the engine's libraries."""
    code = "\n".join(
        [
            "import sys",
            "from PySide6.QtCore import QTimer",
            "from app.main import main",
            "from app.replay.window import ReplayWindow",
            "shown = ReplayWindow.showEvent",
            "def close(self, event):",
            "    shown(self, event)",
            "    self.player.set_speed(10.0)",
            "    self.player.playing_changed.connect(lambda on: None if on else self.close())",
            "ReplayWindow.showEvent = close",
            f"code = main(['--replay', {str(tmp_path / 'story.phasescope')!r}])",
            "assert not {'torch', 'triton', 'kernels'} & set(sys.modules)",
            "sys.exit(code)",
        ]
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_word_lights_its_dot(
    make_window: MakeWindow, recording_with_text: Recording, story: Story
) -> None:
    """Under the mouse is a token: the crosshair reads it, and it stands out; beside it, none."""
    window = make_window(recording_with_text)
    window.player.seek(window.player.end_ns)
    words, plots = window.words, window.panel.plots
    size = len(SECRET)
    for row in (0, 3, story.num_tokens - 1):
        words.moveCursor(QTextCursor.MoveOperation.Start)
        cursor = words.textCursor()
        cursor.setPosition(row * size + size // 2)
        words.setTextCursor(cursor)
        words.ensureCursorVisible()
        place = words.cursorRect(cursor).center() + QPoint(2, 0)
        QTest.mouseMove(words.viewport(), place)
        assert plots.reading[0] == (f"Token {row + 1}", f"“{SECRET}”")
        (mark,) = words.extraSelections()
        assert mark.cursor.selectedText() == SECRET
    end = words.textCursor()
    end.movePosition(QTextCursor.MoveOperation.End)
    words.setTextCursor(end)
    words.ensureCursorVisible()
    beside = words.cursorRect(end).center() + QPoint(20, 0)
    QTest.mouseMove(words.viewport(), beside)
    assert not plots.reading
    assert not words.extraSelections()
    assert words.token_at(beside + QPoint(0, 200)) is None


def test_words_are_reached_by_keys(make_window: MakeWindow, recording: Recording) -> None:
    """The caret points as the mouse does, and leaving the words takes the reading away."""
    window = make_window(recording)
    window.player.seek(window.player.end_ns)
    words, plots = window.words, window.panel.plots
    words.setFocus()
    QTest.keyClick(words, Qt.Key.Key_Home, Qt.KeyboardModifier.ControlModifier)
    for _ in range(2 * len(BLOCK)):
        QTest.keyClick(words, Qt.Key.Key_Right)
    assert plots.reading[0][0] == "Token 3"
    plots.setFocus()
    assert not plots.reading


@pytest.mark.parametrize(
    "texts", [["a😀", "\r\n", "é\u0301", "", "𝔘x\ry"], ["", "\n", "\n", "語", "\u2028z"]]
)
def test_tokens_are_where_they_were_written(qtbot: QtBot, texts: list[str]) -> None:
    """Whatever the letters take in the document, each token's own are marked."""
    words = AnswerWords(load_theme("light"), has_text=True)
    qtbot.addWidget(words)
    words.play([Told(0, RequestSent("r", 0))])
    for index, text in enumerate(texts):
        words.play([Told(0, TokenEvent("r", index, index, 0, text, 0, 0, None, 1, 0, 0))])
    for row, text in enumerate(texts):
        words.mark([row])
        (mark,) = words.extraSelections()
        shown = mark.cursor.selectedText().replace("\u2029", "\n")
        assert shown == text.replace("\r\n", "\n").replace("\r", "\n")
