"""Pinning answers and races, and the window in which they are compared."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QLabel, QMessageBox
from pytestqt.qtbot import QtBot

from app.race.race import Stage
from app.run_comparison.dialog import MOST, RunsDialog, running_median
from app.run_comparison.opening import CARD
from engine.config import EngineConfig
from tests.app.conftest import MakeProgram
from tests.fakes.fake_session import Script
from tests.fakes.window import MODEL, FakeProgram, wait_until

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")

KNOWN = Script(itl_ms_as={"int8": 12.0, "int4": 7.5}, prefill_tok_s=1_000.0, is_even=True)


def load(program: FakeProgram, weights: str) -> None:
    program.window.loading.load(EngineConfig(MODEL, weight_format=weights))
    wait_until(lambda: program.controller.model is not None and program.controller.loading is None)


def ask_and_pin(program: FakeProgram, weights: str, question: str = "Why is it slow?") -> None:
    load(program, weights)
    program.window.conversations.new_chat()
    assert program.window.conversations.send(question)
    wait_until(lambda: not program.controller.active_requests)
    program.window.actions_table["chat.pin"].trigger()


def opened(program: FakeProgram) -> RunsDialog:
    program.window.actions_table["chat.compare_runs"].trigger()
    [dialog] = program.window.findChildren(RunsDialog)
    return dialog


def figures(dialog: RunsDialog) -> dict[str, list[str]]:
    return {title: cells for title, *cells in dialog.table.texts()}


def tick(dialog: RunsDialog, row: int, *, on: bool) -> None:
    dialog.list.item(row).setCheckState(Qt.CheckState.Checked if on else Qt.CheckState.Unchecked)


def test_two_answers_side_by_side(qtbot: QtBot, make_program: MakeProgram) -> None:
    """The older is the baseline; figures, ratios, both lines, and a picture to take along."""
    program = make_program(replace(KNOWN))
    ask_and_pin(program, "int8")
    ask_and_pin(program, "int4")
    dialog = opened(program)
    assert dialog.headline.text() == "INT4 decodes fastest: 1.60x the pace of INT8"
    assert dialog.summary.text() == "Ratios are to INT8."
    assert figures(dialog)[""] == ["INT8", "INT4"]
    assert figures(dialog)["ITL p50, ms"] == ["12.0 1x", "7.50 0.625x"]
    assert figures(dialog)["Decode, tok/s"] == ["83.3 1x", "133 1.60x"]
    assert [line.name for line in dialog.overlay._lines] == ["INT8", "INT4"]
    assert set(dialog.overlay._lines[1].itl_ms.round(6)) == {7.5}
    dialog.copy.click()
    assert QGuiApplication.clipboard().pixmap().size() == dialog.picture.size() * 2


def test_another_baseline(qtbot: QtBot, make_program: MakeProgram) -> None:
    """It comes first, and all ratios are to it."""
    program = make_program(replace(KNOWN))
    ask_and_pin(program, "int8")
    ask_and_pin(program, "int4")
    dialog = opened(program)
    dialog.baseline.setCurrentIndex(dialog.baseline.findText("INT4"))
    dialog.baseline.activated.emit(dialog.baseline.currentIndex())
    assert dialog.headline.text() == "INT4 decodes fastest; INT8 reaches 0.625x of it"
    assert figures(dialog)[""] == ["INT4", "INT8"]


def test_another_prompt_is_said(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Its wait stands there without a ratio."""
    program = make_program(replace(KNOWN))
    ask_and_pin(program, "int8")
    ask_and_pin(program, "int8", "And what is a block table for, when all is said and done?")
    dialog = opened(program)
    assert "Not the same prompt" in dialog.summary.text()
    assert "x" not in figures(dialog)["First token (TTFT), ms"][1]


def test_a_race_pins_both(qtbot: QtBot, make_program: MakeProgram) -> None:
    """The earlier run and the new one, of the same prompt to the token."""
    program = make_program(replace(KNOWN))
    load(program, "int8")
    assert program.window.conversations.send("Why is it slow?")
    wait_until(lambda: not program.controller.active_requests)
    race = program.window.instruments.races.open()
    assert race is not None
    assert not race.pin.isVisible()
    race.choose({"weight_format": "int4"})
    race.start.click()
    wait_until(lambda: race.race.stage is Stage.DONE)
    race.pin.click()
    first, second = program.window.instruments.pinned.pins.runs
    assert {first.metrics.weight_format, second.metrics.weight_format} == {"int8", "int4"}
    assert first.prompt_sha256 == second.prompt_sha256
    assert len(first.itl_ms) == len(second.itl_ms) == first.metrics.completion_tokens - 1


def test_what_to_choose_is_said(qtbot: QtBot, make_program: MakeProgram) -> None:
    """With none pinned how that is done; then how many; nothing can be copied meanwhile."""
    program = make_program(replace(KNOWN))
    dialog = opened(program)
    assert dialog.headline.text() == "Pin at least two runs"
    assert not dialog.copy.isEnabled()
    for _ in range(MOST + 1):
        ask_and_pin(program, "int8")
    assert dialog.list.count() == MOST + 1
    assert dialog.headline.text() == "Tick two to six runs"
    for row in range(MOST + 1):
        tick(dialog, row, on=True)
    assert dialog.headline.text() == "7 runs are too many at once"
    tick(dialog, 0, on=False)
    assert len(dialog.chosen) == MOST
    assert dialog.copy.isEnabled()
    assert len({line.token + str(line.is_dashed) for line in dialog.overlay._lines}) == MOST


def test_letting_go_can_be_undone(qtbot: QtBot, make_program: MakeProgram) -> None:
    """By key or button; the run comes back with all its figures."""
    program = make_program(replace(KNOWN))
    ask_and_pin(program, "int8")
    ask_and_pin(program, "int4")
    dialog, pins = opened(program), program.window.instruments.pinned.pins
    before = pins.runs
    dialog.list.setCurrentRow(0)
    assert dialog.undo.isHidden()
    dialog.unpin.click()
    assert pins.runs == before[1:]
    assert dialog.headline.text() == "Pin at least two runs"
    dialog.undo.click()
    assert pins.runs == before
    assert dialog.undo.isHidden()


def test_csv_and_table(qtbot: QtBot, make_program: MakeProgram, tmp_path: Path) -> None:
    """A row a run for scripts, tabs for a spreadsheet; what the disk refuses is said."""
    program = make_program(replace(KNOWN))
    ask_and_pin(program, "int8")
    ask_and_pin(program, "int4")
    dialog = opened(program)
    dialog.save_csv(str(tmp_path / "runs.csv"))
    with (tmp_path / "runs.csv").open(encoding="utf-8", newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["weight_format"], first["decode_tok_s_ratio"]) == ("int8", "")
    assert float(second["decode_tok_s_ratio"]) == pytest.approx(1.6)
    dialog.copy_table.click()
    assert "Decode, tok/s\t83.3 1x\t133 1.60x" in QGuiApplication.clipboard().text()
    dialog.save_csv(str(tmp_path / "missing" / "runs.csv"))
    [box] = dialog.findChildren(QMessageBox)
    assert box.text() == "The table could not be saved."
    box.close()


def test_what_cannot_be_pinned_is_said(qtbot: QtBot, make_program: MakeProgram) -> None:
    """An answer whose run is not known any more."""
    program = make_program(replace(KNOWN))
    load(program, "int8")
    program.window.instruments.pinned.pin_answer("no such answer")
    card = program.window.cards.card(CARD)
    assert card is not None
    assert "There is no run to be pinned." in [label.text() for label in card.findChildren(QLabel)]
    assert program.window.instruments.pinned.pins.runs == ()


def test_a_lone_late_token_does_not_hide_the_others() -> None:
    """The line is a running median; its length and level are kept."""
    latencies = [10.0] * 5 + [90.0] + [11.0] * 5
    smooth = running_median(latencies)
    assert len(smooth) == len(latencies)
    assert set(smooth) == {10.0, 11.0}
    assert running_median([7.0]).tolist() == [7.0]
    assert running_median([]).tolist() == []
