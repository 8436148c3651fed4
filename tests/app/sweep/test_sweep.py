"""The sweep's window: what it offers and says, rows as they come, and what its buttons do."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QMessageBox
from pytestqt.qtbot import QtBot

from app.sweep.dialog import SweepDialog
from app.sweep.opening import CARD
from app.sweep.plot import SweepPlot
from app.sweep.sweeping import SweepRow
from app.sweep.table import SweepTable, as_csv
from app.sweep.words import headline
from app.theme import load_theme
from engine.config import EngineConfig
from engine.measuring import Workload
from engine.sweep import SweepPlan
from tests.app.conftest import MakeProgram, Play
from tests.contact_sheet.sweeping import measured, row
from tests.engine.quantization.test_job import with_tokenizer
from tests.fakes.window import MODEL, FakeProgram, wait_until

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")
LONG_S = 60.0
LEFT_OUT = SweepRow("fp32", "fp32", 4_096, why="It needs 1.30 GB, and 950 MB are free.")


def opened(program: FakeProgram, path: str = MODEL) -> SweepDialog:
    program.window.loading.load(EngineConfig(path, weight_format="bf16"))
    wait_until(lambda: program.controller.model is not None and program.controller.loading is None)
    program.window.actions_table["model.sweep"].trigger()
    [dialog] = program.window.findChildren(SweepDialog)
    return dialog


def tick(dialog: SweepDialog, weights: set[str], kv: set[str], contexts: set[int]) -> None:
    assert dialog.choices is not None
    for boxes, wanted in (
        (dialog.choices.weights, weights),
        (dialog.choices.kv, kv),
        (dialog.choices.contexts, contexts),
    ):
        for value, box in boxes.items():
            box.setChecked(value in wanted)


def cells(table: SweepTable) -> list[list[str]]:
    found = []
    for line in range(table.rowCount()):
        items = [table.item(line, column) for column in range(table.columnCount())]
        found.append([item.text() if item else "" for item in items])
    return found


def played(*lines: dict[str, object], then: str = "") -> str:
    """A command that writes these lines."""
    texts = [json.dumps(line) for line in lines]
    return f"for line in {texts!r}: print(line, flush=True)\n{then}"


def progress(share: float, text: str, **new: object) -> dict[str, object]:
    return {"progress": {"share": share, "text": text, "row": None, "skipped": None, **new}}


def skipped() -> dict[str, object]:
    return {"weights": "fp32", "kv": "fp32", "prompt_tokens": 4_096, "why": LEFT_OUT.why}


def test_what_is_chosen_is_counted_and_timed(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Before the start, from the same prediction as the planner's; nothing ticked is no sweep."""
    dialog = opened(make_program())
    tick(dialog, {"bf16", "int4"}, {"auto"}, {512, 2_048})
    wait_until(lambda: "The runs take" in dialog.estimate.text())
    assert dialog.estimate.text().startswith("Combinations: 4.")
    assert dialog.start.isEnabled()
    tick(dialog, {"bf16"}, {"auto"}, set())
    assert dialog.estimate.text() == "Tick at least one of each."
    assert not dialog.start.isEnabled()


def test_rows_come_one_by_one(qtbot: QtBot, make_program: MakeProgram, play: Play) -> None:
    """Measured and left out, in table and plot; at the end the fastest is named."""
    play(
        played(
            progress(0.0, "weights int8: loading"),
            progress(0.3, "measured", row=row("int8", "bf16", 512)),
            progress(0.6, "measured", row=row("int4", "bf16", 512)),
            progress(1.0, "left out", skipped=skipped()),
            {"result": {}},
        )
    )
    program = make_program()
    dialog = opened(program)
    dialog.start.click()
    sweeping = program.window.instruments.sweeps.sweeping
    wait_until(lambda: not sweeping.running)
    assert [line[:3] for line in cells(dialog.table)] == [
        ["INT8", "BF16", "512"],
        ["INT4", "BF16", "512"],
        ["FP32", "FP32", "4,096"],
    ]
    assert cells(dialog.table)[2][-1] == LEFT_OUT.why
    assert dialog.headline.text().startswith("INT4, BF16 KV at 512 tokens decodes fastest: 153")
    assert dialog.headline.text().endswith("1.34x the pace of INT8")
    assert "Left out: 1." in dialog.summary.text()
    assert [len(points) for points in dialog.plot.lines()] == [1, 1]
    assert program.window.status.job.text() == ""
    dialog.copy.click()
    assert QGuiApplication.clipboard().pixmap().size() == dialog.picture.size() * 2


def test_stop_keeps_what_was_measured(qtbot: QtBot, make_program: MakeProgram, play: Play) -> None:
    """While it runs the status bar says so, nothing can be ticked; afterwards it can begin anew."""
    play(played(progress(0.4, "measured", row=row("int8", "bf16", 512)), then="sys.stdin.read()"))
    program = make_program()
    dialog = opened(program)
    dialog.start.click()
    wait_until(lambda: dialog.table.rowCount() == 1)
    assert program.window.status.job.text() == "Sweep, 40 %"
    assert dialog.choices is not None
    assert not dialog.choices.isEnabled()
    dialog.reject()
    program.window.status.job_requested.emit()
    assert dialog.isVisible()
    dialog.stop.click()
    wait_until(lambda: dialog.start.isVisible())
    assert dialog.table.rowCount() == 1
    assert dialog.choices.isEnabled()


def test_a_failure_is_said(qtbot: QtBot, make_program: MakeProgram, play: Play) -> None:
    """In three sentences, under the headline."""
    problem = {"what": "The file is gone.", "why": "It was moved.", "next": "Choose it anew."}
    play(played({"error": problem}))
    program = make_program()
    dialog = opened(program)
    dialog.start.click()
    wait_until(lambda: "gone" in dialog.summary.text())
    assert dialog.summary.text() == "The file is gone. It was moved. Choose it anew."
    assert dialog.start.isVisible()


def test_a_row_can_be_used(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Chosen by its dot; not while an answer runs, and never one that was left out."""
    program = make_program()
    dialog = opened(program)
    sweeping = program.window.instruments.sweeps.sweeping
    sweeping.rows = [measured("int8", "bf16", 512), measured("int4", "int8", 512), LEFT_OUT]
    sweeping.changed.emit()
    assert not dialog.use.isEnabled()
    point = next(p for line in dialog.plot.lines() for p in line if p.row.weights == "int4")
    qtbot.mouseClick(dialog.plot, Qt.MouseButton.LeftButton, pos=point.at.toPoint())
    assert dialog.table.current is sweeping.rows[1]
    assert "INT4, INT8 KV at 512 tokens is chosen." in dialog.summary.text()
    program.session.script.hold_decode_at = 3
    assert program.window.conversations.send("Why?")
    wait_until(lambda: bool(program.controller.active_requests))
    dialog.use.click()
    assert program.window.cards.card(CARD) is not None
    program.session.release()
    wait_until(lambda: not program.controller.active_requests)
    dialog.use.click()
    wait_until(lambda: program.controller.loading is None)
    loaded = program.controller.model
    assert loaded is not None
    assert (loaded.config.weight_format, loaded.config.kv_format) == ("int4", "int8")
    assert loaded.config.context_length == 4_096
    dialog.table.choose(LEFT_OUT)
    assert not dialog.use.isEnabled()
    assert LEFT_OUT.why in dialog.summary.text()


def test_other_work_goes_first(qtbot: QtBot, make_program: MakeProgram, play: Play) -> None:
    """One command at a time: the window says what to do."""
    play("sys.stdin.read()")
    program = make_program()
    dialog = opened(program)
    job = program.window.finding.job
    job.start(["perplexity"], lambda _: None, lambda _: None)
    dialog.start.click()
    assert "Other work is under way" in dialog.summary.text()
    job.stop()
    wait_until(lambda: not job.running)


def test_another_model_begins_anew(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Rows of one model do not stand under the name of another."""
    program = make_program()
    dialog = opened(program)
    sweeping = program.window.instruments.sweeps.sweeping
    sweeping.rows = [measured("int8", "bf16", 512)]
    sweeping.changed.emit()
    assert dialog.table.rowCount() == 1
    assert opened(program, "other.gguf") is dialog
    assert dialog.table.rowCount() == 0


def test_a_real_model_is_swept(
    qtbot: QtBot, make_program: MakeProgram, tmp_path: Path, play: Play
) -> None:
    """Through the program's own command: rows of the very combinations, with figures."""
    play("from app.main import main\nsys.exit(main(sys.argv[1:]))")
    program = make_program()
    source = with_tokenizer("rope_llama3", tmp_path)
    dialog = opened(program)
    sweeping = program.window.instruments.sweeps.sweeping
    config, work = EngineConfig(str(source), device="cpu"), Workload(generate=4, repeat=1)
    sweeping.begin(SweepPlan(config, work, ("bf16", "int8"), ("auto",), (64,)))
    wait_until(lambda: not sweeping.running, LONG_S)
    assert sweeping.problem is None
    assert [(r.weights, r.prompt_tokens, r.why) for r in sweeping.rows] == [
        ("bf16", 64, ""),
        ("int8", 64, ""),
    ]
    assert dialog.table.rowCount() == 2
    assert all((r.value("decode_tok_s") or 0) > 0 for r in sweeping.rows)


def test_csv(qtbot: QtBot, make_program: MakeProgram, tmp_path: Path) -> None:
    """A line a combination with the names of requests.csv; what the disk refuses is said."""
    rows = [measured("int8", "bf16", 512), LEFT_OUT]
    first, second = csv.DictReader(as_csv(rows).splitlines())
    assert (first["weight_format"], first["prompt_tokens"]) == ("int8", "512")
    assert float(first["itl_p95_ms"]) == pytest.approx(rows[0].value("itl_p95_ms"))
    assert (second["decode_tok_s"], second["left_out_because"]) == ("", LEFT_OUT.why)
    dialog = opened(make_program())
    dialog.save_csv(str(tmp_path / "missing" / "sweep.csv"))
    [box] = dialog.findChildren(QMessageBox)
    assert box.text() == "The table could not be saved."
    box.close()


def test_the_table_sorts_by_value(qtbot: QtBot) -> None:
    """1,000 comes after 900, and what has no figure last; the choice goes with its row."""
    table = SweepTable()
    qtbot.addWidget(table)
    rows = [LEFT_OUT, *(measured("int8", "bf16", n) for n in (4_096, 512, 1_024))]
    table.set_rows(rows)
    table.choose(rows[2])
    table.sortItems(3)
    assert [line[2] for line in cells(table)] == ["512", "1,024", "4,096", "4,096"]
    assert cells(table)[-1][-1] == LEFT_OUT.why
    assert table.current is rows[2]


def test_every_line_is_inside_and_named(qtbot: QtBot) -> None:
    """Dots within the widget; a mouse over one reads it, elsewhere nothing."""
    plot = SweepPlot(load_theme("dark"))
    qtbot.addWidget(plot)
    plot.resize(700, 300)
    rows = [measured(w, kv, n) for w in ("bf16", "int4") for kv in ("bf16", "int8") for n in (1, 9)]
    plot.set_rows([*rows, LEFT_OUT], "decode_tok_s")
    lines = plot.lines()
    assert len(lines) == 4
    assert all(plot.rect().contains(p.at.toPoint()) for line in lines for p in line)
    point = lines[2][1]
    found = plot._point_at(point.at)
    assert found is not None
    assert found.row is point.row
    assert plot._point_at(QPoint(2, 2).toPointF()) is None
    assert not plot.grab().isNull()


def test_the_headline_compares_at_one_context() -> None:
    """A longer context is slower by itself: it says nothing of a format."""
    rows = [measured("int8", "bf16", 512), measured("bf16", "bf16", 4_096)]
    assert headline(rows) == "INT8, BF16 KV at 512 tokens decodes fastest: 114 tok/s"
    assert headline([LEFT_OUT]) == "Nothing was measured"
