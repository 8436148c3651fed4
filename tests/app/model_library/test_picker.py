"""The list of models in the window: filled in the background, searched, chosen from, kept."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app import folders
from app.model_library.picker import ModelPicker
from app.model_library.picker_model import BELOW_ROLE, ENTRY_ROLE
from app.settings.schema import MODEL_FOLDERS, RECENT_MODELS
from engine.config import EngineConfig
from engine.model_library.measured import MeasuredSpeeds, SpeedKey
from engine.session import EngineError
from tests.app.conftest import MakeProgram
from tests.fakes.fake_session import Script
from tests.fakes.window import FakeProgram, wait_until

NAME, MEMORY, FIRST_TOKEN, DECODE = 0, 5, 6, 7


@pytest.fixture(autouse=True)
def own_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One folder with two models; nothing else of this machine is seen."""
    for variable in ("HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "OLLAMA_MODELS"):
        monkeypatch.setenv(variable, str(tmp_path / "nothing"))
    monkeypatch.setenv("HOME", str(tmp_path / "nothing"))
    monkeypatch.setattr("engine.model_library.listing.starter_model_path", lambda: None)
    models = tmp_path / "models"
    models.mkdir()
    for name in ("alpha.gguf", "beta.gguf"):
        (models / name).write_bytes(b"GGUF")
    return models


def open_picker(program: FakeProgram, *added: Path) -> ModelPicker:
    program.settings.set(MODEL_FOLDERS, [str(each) for each in added])
    picker = program.window.finding.open_picker()
    wait_until(lambda: picker.listed)
    return picker


def surveyed(picker: ModelPicker, number: int) -> None:
    wait_until(lambda: len(picker.surveys) == number)


def rows(picker: ModelPicker) -> list[list[tuple[str, str]]]:
    """Both lines of every cell shown, in the order shown."""
    shown = []
    for top in range(picker.proxy.rowCount()):
        heading = picker.proxy.index(top, 0)
        for row in range(picker.proxy.rowCount(heading)):
            cells = [picker.proxy.index(row, c, heading) for c in range(DECODE + 1)]
            shown.append([(str(c.data()), str(c.data(BELOW_ROLE))) for c in cells])
    return shown


def drop(program: FakeProgram, *paths: Path) -> None:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    where = QPoint(20, 20)
    copy, left = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton
    none = Qt.KeyboardModifier.NoModifier
    enter = QDragEnterEvent(where, copy, data, left, none)
    program.window.dragEnterEvent(enter)
    assert enter.isAccepted()
    program.window.dropEvent(QDropEvent(QPointF(where), copy, data, left, none))


def test_rows_fill_in(qtbot: QtBot, make_program: MakeProgram, own_models: Path) -> None:
    """Names stand at once; facts, memory and predicted speeds follow for each."""
    program = make_program()
    picker = open_picker(program, own_models)
    surveyed(picker, 2)
    assert [row[NAME] for row in rows(picker)] == [("alpha", "llama"), ("beta", "llama")]
    for row in rows(picker):
        assert row[MEMORY] == ("251 MB", "fits")
        assert row[FIRST_TOKEN] == ("487 ms", "predicted")
        assert row[DECODE] == ("101 tok/s", "predicted")
    assert picker.view.accessibleName()
    picker.reject()


def test_what_cannot_be_opened_says_why(
    qtbot: QtBot, make_program: MakeProgram, own_models: Path
) -> None:
    """A file whose headers are refused keeps its row, with the reason, and cannot be loaded."""
    bad = str(own_models / "alpha.gguf")
    error = EngineError("alpha.gguf cannot be read.", "The file is empty.", "Download it again.")
    program = make_program(Script(bad_paths={bad: error}))
    picker = open_picker(program, own_models)
    surveyed(picker, 1)
    wait_until(lambda: "empty" in rows(picker)[0][NAME][1])
    picker.view.setCurrentIndex(picker.proxy.index(0, 0, picker.proxy.index(0, 0)))
    assert not picker.load.isEnabled()
    picker.reject()


def test_surveys_run_beside_window_and_engine(
    qtbot: QtBot, make_program: MakeProgram, own_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers are read in a thread that is neither the window's nor the engine's."""
    program = make_program()
    threads: set[int] = set()
    plain = program.session.survey

    def survey(config: EngineConfig) -> object:
        threads.add(threading.get_ident())
        return plain(config)

    monkeypatch.setattr(program.session, "survey", survey)
    program.load()
    picker = open_picker(program, own_models)
    surveyed(picker, 2)
    assert threads
    assert not threads & {threading.get_ident(), *program.session.thread_ids}
    picker.reject()


def test_search_and_enter_load(qtbot: QtBot, make_program: MakeProgram, own_models: Path) -> None:
    """Typing leaves what fits the text; Enter loads it as chosen above the list."""
    program = make_program()
    picker = open_picker(program, own_models)
    surveyed(picker, 2)
    picker.weights.setCurrentIndex(picker.weights.findData("int8"))
    picker.context.setCurrentIndex(picker.context.findData(2048))
    wait_until(lambda: all(s.config.weight_format == "int8" for s in picker.surveys.values()))
    QTest.keyClicks(picker.search, "BETA")
    assert [row[NAME][0] for row in rows(picker)] == ["beta"]
    picker.view.setCurrentIndex(picker.proxy.index(0, 0, picker.proxy.index(0, 0)))
    QTest.keyClick(picker.search, Qt.Key.Key_Return)
    wait_until(lambda: program.controller.model is not None)
    config = program.session.loads[-1]
    assert Path(config.model_path).name == "beta.gguf"
    assert (config.weight_format, config.context_length) == ("int8", 2048)


def test_arrow_keys_move_from_the_search_field(
    qtbot: QtBot, make_program: MakeProgram, own_models: Path
) -> None:
    """Down in the search field goes to the next model, past headings."""
    program = make_program()
    program.settings.set(RECENT_MODELS, [str(own_models.parent / "gone.gguf")])
    picker = open_picker(program, own_models)
    surveyed(picker, 2)
    names = []
    for _ in range(3):
        names.append(picker.view.currentIndex().siblingAtColumn(0).data(ENTRY_ROLE).name)
        QTest.keyClick(picker.search, Qt.Key.Key_Down)
    assert names == ["alpha", "beta", "gone"]
    picker.reject()


def test_a_model_that_is_gone_keeps_its_path(
    qtbot: QtBot, make_program: MakeProgram, own_models: Path
) -> None:
    """It is shown as unavailable with its path, cannot be loaded, and stays remembered."""
    program = make_program()
    gone = str(own_models.parent / "gone.gguf")
    program.settings.set(RECENT_MODELS, [gone])
    picker = open_picker(program)
    [row] = rows(picker)
    assert row[NAME][0] == "gone"
    assert gone in row[NAME][1]
    assert not picker.load.isEnabled()
    assert program.settings.get(RECENT_MODELS) == [gone]
    picker.reject()


def test_nothing_found_offers_folder_and_download(qtbot: QtBot, make_program: MakeProgram) -> None:
    """An empty list says so, and what to do; the buttons for it are there."""
    picker = open_picker(make_program())
    assert rows(picker) == []
    assert "No models were found" in picker.empty.text()
    assert picker.empty.isVisibleTo(picker)
    assert picker.add_folder.isEnabled()
    picker.reject()


def test_folders_are_added_and_removed(
    qtbot: QtBot, make_program: MakeProgram, own_models: Path
) -> None:
    """An added folder is kept in the settings and listed; removing it deletes nothing."""
    program = make_program()
    picker = open_picker(program)
    picker.take_folder(str(own_models))
    wait_until(lambda: len(rows(picker)) == 2)
    assert program.settings.get(MODEL_FOLDERS) == [str(own_models)]
    picker.view.setCurrentIndex(picker.proxy.index(0, 0, picker.proxy.index(0, 0)))
    picker.remove_folder.click()
    wait_until(lambda: picker.listed)
    assert rows(picker) == []
    assert program.settings.get(MODEL_FOLDERS) == []
    assert (own_models / "alpha.gguf").exists()
    picker.reject()


def test_measured_speeds_take_the_predictions_place(
    qtbot: QtBot, make_program: MakeProgram, own_models: Path
) -> None:
    """After a long answer the row says what was measured, at the next start too."""
    program = make_program()
    program.begin_load(str(own_models / "alpha.gguf"))
    wait_until(lambda: program.controller.model is not None)
    program.window.conversations.send("word " * 400)
    wait_until(lambda: not program.controller.active_requests)
    picker = open_picker(program, own_models)
    surveyed(picker, 2)
    alpha, beta = rows(picker)
    assert (alpha[FIRST_TOKEN][1], alpha[DECODE][1]) == ("measured", "measured")
    assert beta[DECODE][1] == "predicted"
    loaded = program.controller.model
    assert loaded is not None
    key = SpeedKey.of(loaded.config, loaded.device_name, loaded.threads)
    again = MeasuredSpeeds(folders.speeds_file()).get(key)
    assert again.decode_tok_s == pytest.approx(1_000 / program.session.script.itl_ms, rel=0.2)
    picker.reject()


def test_answers_beside_each_other_are_not_measured(
    qtbot: QtBot, make_program: MakeProgram, own_models: Path
) -> None:
    """Two answers at once share the machine: neither says how fast the model is."""
    program = make_program(Script(hold_decode_at=20))
    program.begin_load(str(own_models / "alpha.gguf"))
    wait_until(lambda: program.controller.model is not None)
    program.window.conversations.send("word " * 400)
    program.window.conversations.new_chat()
    program.window.conversations.send("word " * 400)
    program.session.release()
    wait_until(lambda: not program.controller.active_requests)
    assert not folders.speeds_file().exists()


@pytest.mark.parametrize("name", ["alpha.gguf", ""])
def test_a_dropped_model_is_loaded(
    qtbot: QtBot, make_program: MakeProgram, own_models: Path, name: str
) -> None:
    """A file or a folder dropped on the window is loaded."""
    program = make_program()
    drop(program, own_models / name)
    wait_until(lambda: program.controller.model is not None)
    assert program.session.loads[-1].model_path == str(own_models / name)


def test_other_things_dropped_are_refused_in_words(
    qtbot: QtBot, make_program: MakeProgram, own_models: Path
) -> None:
    """A picture, or two files at once, give a sentence and load nothing."""
    program = make_program()
    for dropped, word in (
        ([own_models / "photo.png"], "photo.png is not a model."),
        ([own_models / "alpha.gguf", own_models / "beta.gguf"], "One model at a time"),
    ):
        drop(program, *dropped)
        card = program.window.cards.card("drop")
        assert card is not None
        assert word in card.accessibleName()
    assert program.session.loads == []


def test_the_list_follows_the_theme(
    qtbot: QtBot, make_program: MakeProgram, own_models: Path
) -> None:
    """Changed while the list is open, its rows lie on the new theme's ground."""
    program = make_program()
    picker = open_picker(program, own_models)
    program.appearance.choose("light", 1.0)
    row = picker.view.visualRect(picker.proxy.index(1, 0, picker.proxy.index(0, 0)))
    color = picker.view.viewport().grab().toImage().pixelColor(row.topLeft())
    assert color.name() == program.appearance.theme.surface
    picker.reject()


def test_closing_the_window_ends_a_listing(
    qtbot: QtBot, make_program: MakeProgram, own_models: Path
) -> None:
    """The window closes while the list is open and being filled."""
    program = make_program()
    program.settings.set(MODEL_FOLDERS, [str(own_models)])
    program.window.finding.open_picker()
    program.window.close()
    assert not program.window.isVisible()
