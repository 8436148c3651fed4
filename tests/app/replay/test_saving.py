"""Saving a session's recording from the File menu."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtWidgets import QFileDialog, QMessageBox
from pytestqt.qtbot import QtBot

from app.replay.recording import read_recording
from engine.events import GenerationFinished, TokenEvent
from tests.app.conftest import MakeProgram
from tests.fakes.window import FakeProgram, settle, wait_until

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")


def save(program: FakeProgram, path: Path, *, with_text: bool = False) -> None:
    """Trigger the action, answer its question and choose a file."""
    program.window.actions_table["file.save_recording"].trigger()
    box = program.window.findChildren(QMessageBox)[-1]
    choice = box.checkBox()
    assert choice is not None
    assert not choice.isChecked()
    choice.setChecked(with_text)
    box.accept()
    dialog = program.window.findChildren(QFileDialog)[-1]
    dialog.done(QFileDialog.DialogCode.Accepted)
    dialog.fileSelected.emit(str(path))
    settle(20)


@pytest.mark.parametrize("with_text", [False, True])
def test_save(qtbot: QtBot, make_program: MakeProgram, tmp_path: Path, with_text: bool) -> None:
    """The answer that was given is in the file, its text only when ticked; a card says where."""
    program = make_program()
    program.load()
    program.window.conversations.send("Why?")
    wait_until(lambda: not program.window.conversations.generating_chats())
    save(program, tmp_path / "a.phasescope", with_text=with_text)
    items = [t.item for t in read_recording(tmp_path / "a.phasescope").items]
    assert any(isinstance(i, GenerationFinished) for i in items)
    text = "".join(i.text for i in items if isinstance(i, TokenEvent))
    assert bool(text) == with_text
    assert program.window.cards.card("recording") is not None


def test_save_fails(qtbot: QtBot, make_program: MakeProgram, tmp_path: Path) -> None:
    """A place that cannot be written is told on a card."""
    program = make_program()
    save(program, tmp_path / "missing" / "a.phasescope")
    card = program.window.cards.card("recording")
    assert card is not None
    assert "could not be saved" in card.accessibleName()
