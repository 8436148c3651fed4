"""From the File menu to the file: what is asked, what is written, what a card says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PySide6.QtWidgets import QDialog, QFileDialog, QPushButton
from pytestqt.qtbot import QtBot

from app.export.dialog import ExportDialog
from tests.app.conftest import MakeProgram
from tests.fakes.window import FakeProgram, wait_until

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")

PROMPT = "Why is the sky <i>blue</i>?"


def answered(make_program: MakeProgram) -> FakeProgram:
    program = make_program()
    program.load()
    program.window.conversations.send(PROMPT)
    wait_until(lambda: not program.window.conversations.generating_chats())
    return program


def export(qtbot: QtBot, program: FakeProgram, action: str, path: Path, *, text: bool) -> None:
    """Trigger an action, set the check box, choose a path, wait for the file."""
    program.window.actions_table[action].trigger()
    dialog = program.window.findChildren(ExportDialog)[-1]
    assert not dialog.with_text.isChecked()
    dialog.with_text.setChecked(text)
    dialog.accept()
    where = program.window.findChildren(QFileDialog)[-1]
    where.done(QDialog.DialogCode.Accepted)
    with qtbot.waitSignal(program.window.instruments.exports.written):
        where.fileSelected.emit(str(path))


def test_report_without_and_with_text(
    qtbot: QtBot, make_program: MakeProgram, tmp_path: Path
) -> None:
    """Prompts and answers only when their box is checked; a card says where the file is."""
    program = answered(make_program)
    plain, told = tmp_path / "plain.html", tmp_path / "told.html"
    export(qtbot, program, "file.export_report", plain, text=False)
    assert "sky" not in plain.read_text(encoding="utf-8")
    export(qtbot, program, "file.export_report", told, text=True)
    html = told.read_text(encoding="utf-8")
    assert "Why is the sky &lt;i&gt;blue&lt;/i&gt;?" in html
    answer = program.window.conversations.current.chat.messages[1].text
    assert answer.split()[0] in html
    assert program.window.cards.card("export") is not None


def test_json(qtbot: QtBot, make_program: MakeProgram, tmp_path: Path) -> None:
    """The answer's text is in it when asked, and its figures are those of the engine."""
    program = answered(make_program)
    path = tmp_path / "result.json"
    export(qtbot, program, "file.export_vllm", path, text=True)
    result = json.loads(path.read_text(encoding="utf-8"))
    stats = program.window.conversations.current.chat.messages[1].stats
    assert stats is not None
    assert result["mean_ttft_ms"] == pytest.approx(stats.ttft_ms, abs=1e-3)
    assert result["p95_itl_ms"] == pytest.approx(stats.itl_p95_ms, abs=1e-3)
    assert result["generated_texts"] == [program.window.conversations.current.chat.messages[1].text]
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written(
    qtbot: QtBot, make_program: MakeProgram, tmp_path: Path
) -> None:
    """A card says why, and its button asks again."""
    program = answered(make_program)
    export(qtbot, program, "file.export_report", tmp_path / "no" / "r.html", text=False)
    card = program.window.cards.card("export")
    assert card is not None
    again = next(b for b in card.findChildren(QPushButton) if "elsewhere" in b.text())
    again.click()
    assert program.window.findChildren(ExportDialog)[-1].isVisible()
