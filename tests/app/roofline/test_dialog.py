"""The roofline beside the window: opened from its menu, live, in every state it can meet."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QDialog, QFileDialog, QMessageBox
from pytestqt.qtbot import QtBot

from app.roofline.dialog import RooflineDialog
from tests.app.conftest import MakeProgram
from tests.fakes.fake_session import Script
from tests.fakes.window import FakeProgram, wait_until

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")

PROMPT = "Why is the first token slow and the rest fast? " * 60


def opened(program: FakeProgram) -> RooflineDialog:
    program.window.actions_table["view.roofline"].trigger()
    [dialog] = program.window.findChildren(RooflineDialog)
    return dialog


def answered(program: FakeProgram) -> None:
    assert program.window.conversations.send(PROMPT)
    wait_until(lambda: not program.controller.active_requests)


def test_before_a_model_it_says_what_is_missing(qtbot: QtBot, make_program: MakeProgram) -> None:
    """No roofs, no dots; once the model is there the roofs are, and a hint at what makes dots."""
    program = make_program(Script())
    dialog = opened(program)
    assert dialog.plot.scene is None
    assert not dialog.copy.isEnabled()
    program.load()
    wait_until(lambda: dialog.plot.scene is not None)
    assert dialog.summary.text().startswith("Send a message")
    assert dialog.reading.text() == ""


def test_an_unmeasured_device_has_no_roofs(qtbot: QtBot, make_program: MakeProgram) -> None:
    """An engine that does not know its peaks: said, not drawn as zero."""
    program = make_program(Script(is_measured=False))
    program.load()
    answered(program)
    dialog = opened(program)
    assert dialog.plot.scene is None
    assert "not measured" in dialog.plot._empty


def test_it_follows_an_answer(qtbot: QtBot, make_program: MakeProgram) -> None:
    """While the answer streams: prefill first, then the flip, without blocking the window."""
    program = make_program(Script(hold_prefill_at=0.6, hold_decode_at=20))
    program.load()
    dialog = opened(program)
    assert not dialog.isModal()
    assert program.window.conversations.send(PROMPT)
    wait_until(lambda: dialog.headline.text() == "Prefill under the compute roof")
    program.session.script.hold_prefill_at = None
    wait_until(lambda: "decode under the bandwidth roof" in dialog.headline.text())
    assert re.search(r"Decode, 1 token a step, reaches 9\d % of what memory", dialog.summary.text())
    program.session.script.hold_decode_at = None
    wait_until(lambda: not program.controller.active_requests)


def test_a_hidden_roofline_draws_nothing(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Closed it costs nothing; opened again it is the same one and up to date."""
    program = make_program(Script())
    program.load()
    dialog = opened(program)
    QTest.keyClick(dialog, Qt.Key.Key_Escape)
    assert not dialog.isVisible()
    answered(program)
    wait_until(lambda: not program.window.telemetry.model._announce.isActive())
    assert dialog.headline.text().startswith("Each step")
    assert opened(program) is dialog
    assert dialog.headline.text().startswith("Prefill under")


def test_keys_read_steps(qtbot: QtBot, make_program: MakeProgram) -> None:
    """What is picked stands under the plot, and nothing moves for it."""
    program = make_program(Script())
    program.load()
    answered(program)
    dialog = opened(program)
    place = dialog.plot.geometry()
    assert "arrow keys" in dialog.reading.text()
    QTest.keyClick(dialog.plot, Qt.Key.Key_End)
    assert dialog.reading.text().startswith("Decode step: 1 token in")
    assert dialog.plot.geometry() == place


def test_another_chat_dims_the_dots(qtbot: QtBot, make_program: MakeProgram) -> None:
    """An empty chat has no answer to tell of; the session's dots stay."""
    program = make_program(Script())
    program.load()
    answered(program)
    dialog = opened(program)
    program.window.conversations.new_chat()
    wait_until(lambda: dialog.headline.text().startswith("Each step"))
    assert dialog.summary.text().startswith("This chat has no measured answer")
    assert dialog.plot._shown is not None
    assert not dialog.plot._shown.points.is_selected.any()
    assert len(dialog.plot._shown.points)


def test_the_picture_is_copied(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Words and plot at twice their size, without the buttons."""
    program = make_program(Script())
    program.load()
    answered(program)
    dialog = opened(program)
    QTest.mouseClick(dialog.copy, Qt.MouseButton.LeftButton)
    assert QGuiApplication.clipboard().pixmap().size() == dialog.picture.size() * 2
    assert dialog.copy.text() == "Copied"


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_picture_is_saved(
    qtbot: QtBot, make_program: MakeProgram, tmp_path: Path, ending: str
) -> None:
    """By the ending of its name: pixels, or a drawing with real text; a failure is told."""
    program = make_program(Script())
    program.load()
    answered(program)
    dialog = opened(program)
    for folder in (tmp_path, tmp_path / "missing"):
        QTest.mouseClick(dialog.save, Qt.MouseButton.LeftButton)
        where = dialog.findChildren(QFileDialog)[-1]
        where.done(QDialog.DialogCode.Accepted)
        where.fileSelected.emit(str(folder / f"roofline.{ending}"))
    if ending == "svg":
        text = "".join(ET.parse(tmp_path / "roofline.svg").getroot().itertext())
        assert "ridge" in text
    else:
        assert QImage(str(tmp_path / "roofline.png")).size() == dialog.picture.size() * 2
    [box] = dialog.findChildren(QMessageBox)
    assert "could not be saved" in box.text()
    box.done(0)


def test_it_takes_the_windows_theme(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Colours change while it is open."""
    program = make_program(Script())
    program.load()
    dialog = opened(program)
    dark = dialog.plot.grab().toImage()
    program.appearance.choose("light", 1.0)
    assert dialog.plot.grab().toImage() != dark
