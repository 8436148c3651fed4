"""What formats cost in quality: told in the weights menu, measured from a dialog."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot

from app.model_library.quality_dialog import QualityDialog
from engine.events import ModelLoaded
from engine.paths import quality_file
from engine.quality.kept import keep_quality, kept_qualities
from engine.quality.report import Quality
from tests.app.conftest import MakeProgram, Play
from tests.engine.quantization.test_job import with_tokenizer
from tests.fakes.figures import model_info
from tests.fakes.window import FakeProgram, wait_until

LONG_S = 60.0
RESULT = Quality(
    *("SmolLM2", "int8", 10, "bf16", "CPU", "native", 2, "prefill", 11_874, 11_873),
    *(1024, 512, False, 3.2, 24.048, "SmolLM2", "fp32", 24.0, 1e-3, 0.98, 1.0),
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "SmolLM2.gguf").write_bytes(b"GGUF")
    return tmp_path / "SmolLM2.gguf"


def loaded(program: FakeProgram, path: Path) -> ModelLoaded:
    program.begin_load(str(path))
    wait_until(lambda: program.controller.model is not None)
    assert program.controller.model is not None
    return program.controller.model


def texts(menu: QMenu) -> dict[str, tuple[str, str]]:
    """Text and tooltip of each weight format."""
    menu.aboutToShow.emit()
    return {
        action.data()["weight_format"]: (action.text(), action.toolTip())
        for action in menu.actions()
        if isinstance(action.data(), dict)
    }


def open_dialog(program: FakeProgram) -> QualityDialog:
    assert program.controller.model is not None
    return program.window.finding.open_quality(
        program.controller.model.model, program.controller.model.config
    )


def test_the_menu_tells_what_was_measured(
    qtbot: QtBot, make_program: MakeProgram, model: Path
) -> None:
    """Memory always; perplexity where measured, by the time the menu opens; how in the tooltip."""
    program = make_program()
    config = loaded(program, model).config
    menu = program.window.run_bar.weights.menu()
    assert texts(menu)["int8"][0] == "INT8\t143 MB"
    keep_quality(
        quality_file(), replace(config, weight_format="int8"), RESULT, "evaluation.txt", "text"
    )
    shown = texts(menu)
    assert shown["int8"][0] == "INT8   perplexity +0.2 %\t143 MB"
    assert "24.05 against 24.00 of SmolLM2 in FP32" in shown["int8"][1]
    assert "11,874 tokens of evaluation.txt in windows of 1,024" in shown["int8"][1]
    assert shown["int4"][0] == "INT4\t96.2 MB"


def test_what_is_not_measured_yet_is_meant(
    qtbot: QtBot, make_program: MakeProgram, model: Path
) -> None:
    """Measured formats are shown with their figure and left out; the reference is not offered."""
    program = make_program()
    config = loaded(program, model).config
    keep_quality(quality_file(), replace(config, weight_format="int8"), RESULT, "text", "text")
    dialog = open_dialog(program)
    assert {name: box.isChecked() for name, box in dialog.formats.items()} == {
        **{"as-stored": True, "bf16": True, "fp16": True},
        **{"int8": False, "int4": True},
    }
    for box in dialog.formats.values():
        box.setChecked(False)
    assert not dialog.measure.isEnabled()
    dialog.reject()


def test_a_real_model_is_measured(
    qtbot: QtBot, make_program: MakeProgram, tmp_path: Path, play: Play
) -> None:
    """Two formats after each other through the program's own command, over a short text."""
    (tmp_path / "text").write_text("An epoch of rest. " * 20)
    play(
        "from app.main import main\n"
        f"sys.exit(main([*sys.argv[1:], '--text', {str(tmp_path / 'text')!r}]))"
    )
    program = make_program()
    source = with_tokenizer("rope_llama3", tmp_path)
    config = loaded(program, source).config
    dialog = program.window.finding.open_quality(model_info(str(source)), config)
    for name, box in dialog.formats.items():
        box.setChecked(name in ("bf16", "int8"))
    dialog.measure.click()
    wait_until(lambda: "%" in program.window.status.job.text(), LONG_S)
    wait_until(lambda: not dialog.stop.isVisibleTo(dialog), LONG_S)
    assert not dialog.problem.isVisibleTo(dialog), dialog.problem.text()
    assert set(kept_qualities(quality_file(), str(source))) == {"bf16", "int8"}
    assert not dialog.formats["int8"].isChecked()
    assert program.window.status.job.text() == ""
    dialog.reject()


def test_one_job_at_a_time(
    qtbot: QtBot, make_program: MakeProgram, model: Path, play: Play
) -> None:
    """While formats are measured nothing is quantized; Stop leaves those that wait, too."""
    play("sys.stdin.read()")
    program = make_program()
    loaded(program, model)
    dialog = open_dialog(program)
    dialog.measure.click()
    other = program.window.finding.open_quantize(model_info(str(model)))
    other.quantize.click()
    assert "Other work is under way" in other.problem.text()
    other.reject()
    dialog.stop.click()
    wait_until(lambda: not program.window.finding.measuring.busy)
    assert not program.window.finding.measuring.running
    dialog.reject()


def test_a_failure_ends_the_row_of_formats(
    qtbot: QtBot, make_program: MakeProgram, model: Path
) -> None:
    """The engine's sentences, once: this file is no model."""
    program = make_program()
    loaded(program, model)
    dialog = open_dialog(program)
    dialog.measure.click()
    wait_until(lambda: not dialog.problem.isHidden(), LONG_S)
    assert "SmolLM2.gguf" in dialog.problem.text()
    assert not program.window.finding.measuring.busy
    dialog.reject()
