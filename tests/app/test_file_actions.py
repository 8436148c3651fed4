"""Export, recording, pictures and opening, through the dialogs of the File and Model menus."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QFileDialog, QPushButton
from pytestqt.qtbot import QtBot

from app.settings.schema import LAST_MODEL, RECORD, RECORD_FOLDER
from tests.app.conftest import MakeProgram
from tests.fakes.window import FakeProgram, settle, wait_until

SVG = "{http://www.w3.org/2000/svg}"
pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")


def choose(program: FakeProgram, action: str, path: Path) -> QFileDialog:
    """Trigger an action and choose a path in the dialog that it opens."""
    program.window.actions_table[action].trigger()
    dialog = program.window.findChildren(QFileDialog)[-1]
    dialog.done(QFileDialog.DialogCode.Accepted)
    dialog.fileSelected.emit(str(path))
    settle(20)
    return dialog


def ask(program: FakeProgram) -> None:
    program.window.conversations.send("Why?")
    wait_until(lambda: not program.window.conversations.generating_chats())


def test_export(qtbot: QtBot, make_program: MakeProgram, tmp_path: Path) -> None:
    """The session's four tables are written and a card says where."""
    program = make_program()
    program.load()
    ask(program)
    choose(program, "file.export", tmp_path / "out")
    tables = sorted(file.name for file in (tmp_path / "out").iterdir())
    assert tables == ["requests.csv", "samples.csv", "steps.csv", "tokens.csv"]
    assert program.window.cards.card("files") is not None


def test_export_that_fails(
    qtbot: QtBot, make_program: MakeProgram, tmp_path: Path, expected_log: list[str]
) -> None:
    """A place that cannot be written is told with a button that chooses another."""
    expected_log.append("could not be exported")
    (tmp_path / "file").write_text("")
    program = make_program()
    program.load()
    ask(program)
    choose(program, "file.export", tmp_path / "file")
    card = program.window.cards.card("files")
    assert card is not None
    assert any("Choose a folder" in b.text() for b in card.findChildren(QPushButton))


def test_recording_asks_where_once(qtbot: QtBot, make_program: MakeProgram, tmp_path: Path) -> None:
    """Switched on it asks for a folder; the next time it uses that one; the menu shows it."""
    program = make_program()
    choose(program, "file.record", tmp_path)
    assert program.settings.get(RECORD_FOLDER) == str(tmp_path)
    assert program.window.telemetry.recording
    action = program.window.actions_table["file.record"]
    assert action.isChecked()
    action.trigger()
    assert not program.settings.get(RECORD)
    action.trigger()
    assert program.settings.get(RECORD)


def test_recording_given_up(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Who closes the dialog is not recorded, and the menu entry is off again."""
    program = make_program()
    action = program.window.actions_table["file.record"]
    action.trigger()
    program.window.findChildren(QFileDialog)[-1].reject()
    assert not action.isChecked()
    assert not program.settings.get(RECORD)


def test_save_picture(qtbot: QtBot, make_program: MakeProgram, tmp_path: Path) -> None:
    """The panels' picture is twice their size; a failure is told."""
    program = make_program()
    choose(program, "file.save_picture", tmp_path / "panels.png")
    panel = program.window.panel
    assert QImage(str(tmp_path / "panels.png")).width() == 2 * panel.width()
    choose(program, "file.save_picture", tmp_path / "panels.svg")
    drawing = ET.parse(tmp_path / "panels.svg").getroot()
    words = {"".join(each.itertext()).strip() for each in drawing.iter(f"{SVG}text")}
    assert "Inter-token latency" in words
    choose(program, "file.save_picture", tmp_path / "missing" / "panels.png")
    assert program.window.cards.card("files") is not None


def test_open_model_file(qtbot: QtBot, make_program: MakeProgram, tmp_path: Path) -> None:
    """The chosen file is loaded, and the next dialog begins where models are."""
    program = make_program()
    choose(program, "model.open_file", tmp_path / "Chosen.gguf")
    wait_until(lambda: program.settings.get(LAST_MODEL).endswith("Chosen.gguf"))
    program.window.actions_table["model.open_folder"].trigger()
    dialog = program.window.findChildren(QFileDialog)[-1]
    assert Path(dialog.directory().path()) == tmp_path
    dialog.reject()


def test_recent_models(qtbot: QtBot, make_program: MakeProgram, tmp_path: Path) -> None:
    """Models opened before stand in the menu, newest first, and open again."""
    program = make_program()
    for name in ("A.gguf", "B.gguf"):
        program.window.loading.open(str(tmp_path / name))
        wait_until(lambda name=name: program.settings.get(LAST_MODEL).endswith(name))
    menu = program.window.run_bar.model.menu()
    recent = next(a.menu() for a in menu.actions() if a.menu() and a.text() == "Re&cent models")
    assert [a.text() for a in recent.actions()] == ["B.gguf", "A.gguf"]
    recent.actions()[1].trigger()
    wait_until(lambda: program.settings.get(LAST_MODEL).endswith("A.gguf"))
