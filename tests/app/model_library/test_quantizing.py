"""The quantize dialog: what it offers before, over a job of the test's own, and over a real one."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from app import folders
from app.engine_link.worker import EngineProblem
from app.model_library.quantize_dialog import QuantizeDialog
from app.settings.schema import MODEL_FOLDERS
from engine.config import ModelInfo
from engine.quantization.plan import Quantized
from tests.app.conftest import MakeProgram, Play
from tests.engine.rig import GOLDEN
from tests.fakes.figures import model_info
from tests.fakes.window import FakeProgram, wait_until

LONG_S = 60.0
STEP = {"layer": 3, "num_layers": 30, "fraction": 0.1, "elapsed_s": 9.0, "remaining_s": 81.0}


@pytest.fixture
def tiny(tmp_path: Path) -> ModelInfo:
    """A tiny model of two layers in a folder of its own, sizes multiples of 64."""
    source = tmp_path / "models" / "tiny"
    shutil.copytree(GOLDEN / "tiny" / "rope_llama3", source)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(GOLDEN / "tiny" / name, source)
    config = json.loads((source / "config.json").read_text())
    return replace(
        plain(str(source)),
        name="tiny",
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        num_heads=config["num_attention_heads"],
        num_kv_heads=config["num_key_value_heads"],
        head_dim=config["hidden_size"] // config["num_attention_heads"],
        num_layers=config["num_hidden_layers"],
    )


def plain(path: str) -> ModelInfo:
    """SmolLM2 as it is before quantizing."""
    return replace(model_info(path), stored_format="BF16")


def open_dialog(program: FakeProgram, info: ModelInfo | None = None) -> QuantizeDialog:
    return program.window.finding.open_quantize(info or plain("/m/SmolLM2"))


def begin(dialog: QuantizeDialog, seen: str = "Layer") -> None:
    """Start, and wait until the first step is shown."""
    dialog.quantize.click()
    wait_until(lambda: seen in dialog.detail.accessibleName(), LONG_S)


def ended(dialog: QuantizeDialog) -> None:
    wait_until(lambda: not dialog.stop.isVisibleTo(dialog), LONG_S)


def press(program: FakeProgram, text: str) -> str:
    """Press a button of the job's card; gives what the card says."""
    card = program.window.cards.card("quantize")
    assert card is not None
    words = card.accessibleName()
    next(b for b in card.findChildren(QPushButton) if b.text() == text).click()
    return words


def children() -> list[psutil.Process]:
    return [p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE]


def test_the_name_follows_the_choices(
    qtbot: QtBot, make_program: MakeProgram, tmp_path: Path
) -> None:
    """In the person's models folder, free, until another name is typed."""
    program = make_program()
    program.settings.set(MODEL_FOLDERS, [str(tmp_path)])
    (tmp_path / "SmolLM2-135M-Instruct-rtn-int8-g64").mkdir()
    dialog = open_dialog(program)
    assert Path(dialog.out.text()) == tmp_path / "SmolLM2-135M-Instruct-gptq-int4-g64"
    dialog.methods["rtn"].setChecked(True)
    dialog.bits.setCurrentIndex(dialog.bits.findData(8))
    assert Path(dialog.out.text()) == tmp_path / "SmolLM2-135M-Instruct-rtn-int8-g64-2"
    dialog.take_folder(str(tmp_path / "models"))
    dialog.methods["awq"].setChecked(True)
    assert Path(dialog.out.text()).parent == tmp_path / "models"
    assert dialog.out.text().endswith("awq-int4-g64")
    dialog.out.setText(str(tmp_path / "mine"))
    dialog.methods["gptq"].setChecked(True)
    assert Path(dialog.out.text()) == tmp_path / "mine"
    dialog.reject()


def test_what_cannot_be_is_not_offered(qtbot: QtBot, make_program: MakeProgram) -> None:
    """AWQ has 4 bits, RTN needs no text, and 128 does not divide 576 inputs."""
    dialog = open_dialog(make_program())
    sizes = [dialog.group_size.model().index(row, 0).flags() for row in range(3)]
    assert [bool(flags & Qt.ItemFlag.ItemIsEnabled) for flags in sizes] == [True, True, False]
    assert dialog.group_size.currentData() == 64
    dialog.bits.setCurrentIndex(dialog.bits.findData(8))
    dialog.methods["awq"].setChecked(True)
    assert (dialog.bits.currentData(), dialog.bits.isEnabled()) == (4, False)
    assert dialog.calibration.isEnabled()
    dialog.methods["rtn"].setChecked(True)
    assert dialog.bits.isEnabled()
    assert not dialog.calibration.isEnabled()
    assert "free on that disk" in dialog.facts.text()
    dialog.reject()


@pytest.mark.parametrize(("stored", "warns"), [("BF16", False), ("Q4_1, head Q8_0", True)])
def test_a_quantized_source_is_warned_of(
    qtbot: QtBot, make_program: MakeProgram, stored: str, warns: bool
) -> None:
    """In a sentence, before hours are spent."""
    dialog = open_dialog(make_program(), replace(plain("m"), stored_format=stored))
    assert dialog.warning.isVisibleTo(dialog) == warns
    assert (stored in dialog.warning.text()) == warns
    dialog.reject()


def test_progress_is_shown_here_and_in_the_status_bar(
    qtbot: QtBot, make_program: MakeProgram, play: Play
) -> None:
    """Layer, time left and share; closing the dialog leaves the job, Stop ends it."""
    play(f"print(json.dumps({{'progress': {STEP!r}}}), flush=True)\nsys.stdin.read()")
    program = make_program()
    dialog = open_dialog(program)
    begin(dialog)
    assert dialog.detail.accessibleName() == "Layer 3 of 30   about 81 s left"
    assert dialog.bar.value() == 100
    assert program.window.status.job.text() == "Quantizing, 10 %"
    assert not dialog.out.isEnabled()
    dialog.reject()
    assert children()
    program.window.status.job.click()
    assert dialog.isVisible()
    assert open_dialog(program, plain("/other")) is dialog  # one job at a time: this one
    assert dialog.stop.isVisibleTo(dialog)
    dialog.stop.click()
    ended(dialog)
    assert "Stopped" in dialog.detail.accessibleName()
    assert program.window.status.job.text() == ""
    assert dialog.quantize.isEnabled()
    dialog.reject()


REFUSAL = {"what": "It exists.", "why": "There it is.", "next": "Name another."}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (f"print(json.dumps({{'error': {REFUSAL!r}}})); sys.exit(1)", "There it is. Name another."),
        ("sys.exit('phasescope quantize: [Errno 28] No space left')", "[Errno 28] No space left"),
        ("print('not ours'); sys.exit(3)", "Exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "when memory runs out"),
    ],
)
def test_every_failure_is_told_in_the_dialog(
    qtbot: QtBot, make_program: MakeProgram, play: Play, source: str, words: str
) -> None:
    """A refusal in its three sentences; whatever else ends the process, with its reason."""
    play(source)
    dialog = open_dialog(make_program())
    dialog.quantize.click()
    ended(dialog)
    assert words in dialog.problem.text()
    assert dialog.problem.isVisibleTo(dialog)
    assert dialog.quantize.isEnabled()
    dialog.reject()


def test_a_program_that_is_not_there_is_told(
    qtbot: QtBot, make_program: MakeProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never starts."""
    monkeypatch.setattr("app.command_job.own_command", lambda: ["/nowhere/phasescope"])
    dialog = open_dialog(make_program())
    dialog.quantize.click()
    ended(dialog)
    assert "ended before its work" in dialog.problem.text()
    dialog.reject()


def test_a_real_model_is_quantized_listed_and_loaded(
    qtbot: QtBot, make_program: MakeProgram, tiny: ModelInfo, tmp_path: Path
) -> None:
    """The whole way, through the program's own command; the folder is found afterwards."""
    (tmp_path / "text").write_text("An epoch of rest. " * 40)
    program = make_program()
    dialog = open_dialog(program, tiny)
    dialog.calibration.setText(str(tmp_path / "text"))
    out = Path(dialog.out.text())
    assert out == folders.models_folder() / "tiny-gptq-int4-g64"
    begin(dialog, "Done in")
    assert (out / "model.safetensors").exists()
    assert "bits a weight" in dialog.detail.accessibleName()
    assert program.settings.get(MODEL_FOLDERS) == [str(folders.models_folder())]
    picker = program.window.finding.open_picker()
    wait_until(lambda: picker.listed)
    assert str(out) in [entry.path for entry in picker.model.entries]
    dialog.load.click()
    wait_until(lambda: program.controller.model is not None)
    assert program.session.loads[-1].model_path == str(out)


def test_a_real_refusal_is_shown(
    qtbot: QtBot, make_program: MakeProgram, tiny: ModelInfo, tmp_path: Path
) -> None:
    """The engine's own sentences come through."""
    dialog = open_dialog(make_program(), tiny)
    dialog.out.setText(str(tmp_path / "no" / "where"))
    dialog.quantize.click()
    ended(dialog)
    assert "There is no folder" in dialog.problem.text()
    dialog.reject()


def test_stopping_a_real_job_leaves_nothing(
    qtbot: QtBot, make_program: MakeProgram, tiny: ModelInfo, tmp_path: Path
) -> None:
    """No folder, no half of one, no process."""
    dialog = open_dialog(make_program(), tiny)
    dialog.take_folder(str(tmp_path / "models"))
    begin(dialog)
    assert len(list((tmp_path / "models").iterdir())) == 2
    dialog.stop.click()
    ended(dialog)
    assert [each.name for each in (tmp_path / "models").iterdir()] == ["tiny"]
    assert not children()
    dialog.reject()


def test_the_window_asks_before_it_closes_over_a_job(
    qtbot: QtBot, make_program: MakeProgram, tiny: ModelInfo, tmp_path: Path
) -> None:
    """A card says what would be lost; its button stops the job, leaving nothing, and closes."""
    program = make_program()
    dialog = open_dialog(program, tiny)
    dialog.take_folder(str(tmp_path / "models"))
    begin(dialog)
    dialog.reject()
    program.window.close()
    assert program.window.isVisible()
    assert "still being made" in press(program, "Stop it and close")
    assert not program.window.isVisible()
    assert [each.name for each in (tmp_path / "models").iterdir()] == ["tiny"]
    assert not children()


def test_an_end_nobody_watches_is_told_on_a_card(
    qtbot: QtBot, make_program: MakeProgram, tmp_path: Path
) -> None:
    """What was made with the button that loads it; a failure with the one that shows it."""
    program = make_program()
    dialog = open_dialog(program)
    dialog.reject()
    job = program.window.finding.quantizing
    job.ended.emit(EngineProblem("It failed.", "For a reason.", "Do that."))
    assert press(program, "Open the dialog") == "It failed. For a reason. Do that."
    assert "For a reason" in dialog.problem.text()
    dialog.reject()
    job.ended.emit(Quantized(tmp_path / "made", 1, 1, 4.5, 1, 1.0, ()))
    assert "made is ready" in press(program, "Load it")
    wait_until(lambda: program.controller.model is not None)
    assert program.session.loads[-1].model_path == str(tmp_path / "made")
