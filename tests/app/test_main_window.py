"""The window over a fake session: what a person does and what they then see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from app import folders
from app.chat.chat_rows import PACE_ROLE, ChatRowsModel
from app.chat.store import ChatMessage
from app.engine_link.controller import EngineState
from app.settings.schema import (
    CONTEXT,
    FONT_SCALE,
    LAST_MODEL,
    RECORD,
    RECORD_FOLDER,
    SHOW_TELEMETRY,
    THREADS,
    WEIGHTS,
)
from engine.config import EngineConfig
from engine.events import GenerationFailed, LoadFailed
from engine.session import EngineError
from engine.starter import starter_model_path
from tests.app.conftest import MakeProgram
from tests.fakes.fake_session import Script
from tests.fakes.window import MODEL, FakeProgram, settle, wait_until


def messages(program: FakeProgram) -> list[ChatMessage]:
    return program.window.conversations.current.chat.messages


def send(program: FakeProgram, text: str = "Why?") -> None:
    program.window.composer.set_text(text)
    QTest.keyClick(program.window.composer.focusProxy(), Qt.Key.Key_Return)


def answered(program: FakeProgram) -> None:
    wait_until(lambda: not program.window.conversations.generating_chats())


def press(program: FakeProgram, topic: str, text: str) -> None:
    card = program.window.cards.card(topic)
    assert card is not None
    button = next(b for b in card.findChildren(QPushButton) if text in b.text())
    button.click()


def test_send_streams_an_answer(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Enter sends; the answer streams in, with its figures, and the draft is gone."""
    program = make_program()
    program.load()
    send(program)
    answered(program)
    question, answer = messages(program)
    assert question.text == "Why?"
    assert answer.text == program.session.script.answer
    assert answer.state == "done"
    assert answer.stats is not None
    assert answer.stats.completion_tokens > 100
    assert program.window.composer.text() == ""
    assert program.window.windowTitle().startswith("Why?")


def test_next_turn_carries_token_ids(qtbot: QtBot, make_program: MakeProgram) -> None:
    """History goes with the ids that were sampled, so that the cache can be used again."""
    program = make_program()
    program.load()
    send(program, "One")
    answered(program)
    send(program, "Two")
    answered(program)
    history = program.session.requests[-1].messages
    assert [m.role for m in history] == ["user", "assistant", "user"]
    assert history[1].token_ids == messages(program)[1].token_ids
    stats = messages(program)[3].stats
    assert stats is not None
    assert stats.cached_tokens > 0


def test_ids_of_another_model_are_not_sent(qtbot: QtBot, make_program: MakeProgram) -> None:
    """After a change of model the ids mean nothing any more; the text is sent alone."""
    program = make_program()
    program.load()
    send(program, "One")
    answered(program)
    program.begin_load("Other.gguf")
    wait_until(lambda: program.controller.state is EngineState.READY)
    wait_until(lambda: program.controller.model is not None)
    send(program, "Two")
    answered(program)
    assert [m.token_ids for m in program.session.requests[-1].messages] == [None, None, None]


def test_stop_keeps_the_text(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Esc stops; what was said stays, and the next question works."""
    program = make_program(Script(hold_decode_at=12))
    program.load()
    send(program)
    wait_until(lambda: len(messages(program)[-1].text) > 10)
    QTest.keyClick(program.window.composer.focusProxy(), Qt.Key.Key_Escape)
    answered(program)
    assert messages(program)[-1].state == "stopped"
    assert messages(program)[-1].text
    program.session.release()
    send(program, "Again")
    answered(program)
    assert messages(program)[-1].state == "done"


def test_regenerate_replaces_the_answer(qtbot: QtBot, make_program: MakeProgram) -> None:
    """The same question is asked once more and the old answer is gone."""
    program = make_program()
    program.load()
    send(program)
    answered(program)
    program.session.script.answer = "Shorter."
    program.window.actions_table["chat.regenerate"].trigger()
    answered(program)
    assert [m.text for m in messages(program)] == ["Why?", "Shorter."]


def test_regenerating_an_early_answer_loses_nothing(
    qtbot: QtBot, make_program: MakeProgram
) -> None:
    """Where the chat went on, the question is asked anew in a copy; the chat stays as it was."""
    program = make_program()
    program.load()
    for text in ("One", "Two"):
        send(program, text)
        answered(program)
    chats = program.window.conversations
    original = chats.current
    program.window.chat_view.regenerate_requested.emit(messages(program)[1].id)
    answered(program)
    assert len(original.chat.messages) == 4
    assert chats.current is not original
    assert [m.role for m in messages(program)] == ["user", "assistant"]
    assert len(chats.library.chats) == 2


def test_send_while_loading_keeps_the_draft(qtbot: QtBot, make_program: MakeProgram) -> None:
    """What was typed too early is not lost."""
    program = make_program(Script(hold_load_at=0.5))
    program.begin_load()
    wait_until(lambda: program.controller.loading is not None)
    send(program, "Too early")
    assert program.window.composer.text() == "Too early"
    assert messages(program) == []


def test_prompt_longer_than_context(qtbot: QtBot, make_program: MakeProgram) -> None:
    """The text comes back, and a button loads the context that it needs."""
    program = make_program()
    program.load()
    text = "one two three four five " * 1_000
    send(program, text)
    wait_until(lambda: any(m.role == "error" for m in messages(program)))
    error = messages(program)[-1]
    assert [a.id for a in error.actions] == ["context:8192"]
    assert program.window.composer.text() == text
    assert [m.role for m in messages(program)] == ["error"]
    program.window.chat_view.action_requested.emit("context:8192")
    wait_until(lambda: program.session.loads[-1].context_length == 8192)
    wait_until(lambda: program.controller.state is EngineState.READY)
    send(program, text)
    answered(program)
    assert messages(program)[-1].state == "done"


def test_failure_is_told_in_the_chat(qtbot: QtBot, make_program: MakeProgram) -> None:
    """What happened, why and what next stand in the conversation; it can go on."""
    program = make_program()
    program.load()
    program.session.script.generation_failure = GenerationFailed("", 0, "What.", "Why.", "Next.")
    send(program)
    wait_until(lambda: any(m.role == "error" for m in messages(program)))
    error = messages(program)[-1]
    assert (error.text, error.why, error.next_step) == ("What.", "Why.", "Next.")
    assert program.window.composer.text() == "Why?"
    program.session.script.generation_failure = None
    send(program)
    answered(program)
    assert [m.role for m in program.session.requests[-1].messages] == ["user"]


def test_full_context_is_told(qtbot: QtBot, make_program: MakeProgram) -> None:
    """An answer that meets the limit ends with a card, not silently."""
    program = make_program()
    program.load()
    program.window.loading.change({"context_length": 64})
    wait_until(lambda: program.controller.state is EngineState.READY)
    send(program)
    wait_until(lambda: messages(program)[-1:] != [] and messages(program)[-1].role == "error")
    assert [a.id for a in messages(program)[-1].actions] == ["context:128", "new-chat"]


def test_broken_model_leaves_the_window_usable(qtbot: QtBot, make_program: MakeProgram) -> None:
    """A load that fails shows a card with a way out; the card's button works."""
    error = EngineError("This is no model.", "It is a picture.", "Choose another.")
    program = make_program(Script(bad_paths={str(Path("broken.gguf").absolute()): error}))
    program.begin_load("broken.gguf")
    wait_until(lambda: program.window.cards.card("load") is not None)
    assert program.controller.state is EngineState.FAILED
    with qtbot.waitSignal(program.window.loading.open_requested):
        program.window.loading.open_requested.disconnect(program.window.files.open_model_file)
        press(program, "load", "Open another model")
    assert program.window.cards.card("load") is None
    program.load()
    send(program)
    answered(program)


def test_too_large_offers_what_fits(qtbot: QtBot, make_program: MakeProgram) -> None:
    """A change that does not fit keeps the present model and offers buttons that do fit."""
    program = make_program()
    program.load()
    program.session.script.available_bytes = 0
    program.window.loading.change({"context_length": 8192, "kv_format": "fp32"})
    wait_until(lambda: program.window.cards.card("load") is not None)
    assert program.controller.model is not None
    assert program.window.loading.wanted == EngineConfig(str(Path(MODEL).absolute()))
    press(program, "load", "Load with 512 context")
    wait_until(lambda: any(c.context_length == 512 for c in program.session.loads))


def test_refused_change_leaves_the_answer_alone(qtbot: QtBot, make_program: MakeProgram) -> None:
    """A change that is refused mid-answer neither stops it nor blanks its figures."""
    program = make_program(Script(hold_decode_at=20))
    program.load()
    send(program)
    wait_until(lambda: not program.window.status.kv.text().startswith("KV 0 "))
    program.session.script.available_bytes = 0
    program.window.loading.change({"weight_format": "fp32"})
    wait_until(lambda: program.window.cards.card("load") is not None)
    assert not program.window.status.kv.text().startswith("KV 0 ")
    program.session.release()
    answered(program)
    assert messages(program)[-1].state == "done"


def test_cancelled_load(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Cancel on the loading card stops the load; the window says how to go on."""
    program = make_program(Script(hold_load_at=0.5))
    program.begin_load()
    wait_until(lambda: program.controller.loading is not None)
    program.window.chat_view.loading_card.cancel_requested.emit()
    wait_until(lambda: program.window.cards.card("load") is not None)
    assert program.controller.state is EngineState.UNLOADED


def test_change_of_format_keeps_the_chat(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Another weight format reloads at once, is remembered, and the conversation stays."""
    program = make_program()
    program.load()
    send(program)
    answered(program)
    menu = program.window.run_bar.weights.menu()
    next(a for a in menu.actions() if a.text().startswith("INT8")).trigger()
    wait_until(lambda: program.settings.get(WEIGHTS) == "int8")
    assert program.window.run_bar.weights.value() == "INT8"
    assert len(messages(program)) == 2


def test_menu_says_memory_before_loading(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Hovering over a choice shows what it would take; nothing is loaded by it."""
    program = make_program()
    program.load()
    menu = program.window.run_bar.context.menu()
    action = next(a for a in menu.actions() if a.text().startswith("8,192"))
    assert action.text().endswith("189 MB")
    with qtbot.waitSignal(program.window.loading.estimate_answered) as answer:
        menu.hovered.emit(action)
    assert answer.args[0].kv_bytes == (8192 + 16) * 23_040  # the null block
    assert len(program.session.loads) == 1


def test_two_chats_answer_at_once(qtbot: QtBot, make_program: MakeProgram) -> None:
    """A second chat is asked while the first answers; each gets its own text."""
    program = make_program(Script(hold_decode_at=5))
    program.load()
    chats = program.window.conversations
    send(program, "First")
    first = chats.current
    chats.new_chat()
    send(program, "Second")
    wait_until(lambda: len(chats.generating_chats()) == 2)
    wait_until(lambda: bool(messages(program)[-1].text))
    program.session.release()
    answered(program)
    assert first.chat.messages[-1].text == program.session.script.answer
    assert messages(program)[-1].text == program.session.script.answer
    assert {c.title for c in chats.library.chats} == {"First", "Second"}


def test_an_answer_in_another_chat_is_stopped_from_the_list(
    qtbot: QtBot, make_program: MakeProgram
) -> None:
    """The list shows a pace for each answer under way; stopping one leaves the other alone."""
    program = make_program(Script(hold_decode_at=5))
    program.load()
    window, chats = program.window, program.window.conversations
    send(program, "First")
    first = chats.current
    wait_until(lambda: bool(first.chat.messages[-1].text))
    chats.new_chat()
    send(program, "Second")
    wait_until(lambda: bool(messages(program)[-1].text))
    rows = window.chats_list.findChild(ChatRowsModel)
    assert rows is not None
    index = rows.index_of(first.chat.id)
    wait_until(lambda: "tok/s" in str(index.data(PACE_ROLE)))
    window.chats_list.stop_requested.emit(first.chat.id)
    wait_until(lambda: first.chat.messages[-1].state == "stopped")
    assert list(chats.generating_chats()) == [chats.current.chat.id]
    wait_until(lambda: rows.index_of(first.chat.id).data(PACE_ROLE) is None)
    program.session.release()
    answered(program)


def test_chats_are_saved_and_read(qtbot: QtBot, make_program: MakeProgram) -> None:
    """What was said is there at the next start; a deleted chat can be brought back."""
    program = make_program()
    program.load()
    send(program, "Remember me")
    answered(program)
    chat_id = program.window.conversations.current.chat.id
    program.window.close()
    again = make_program()
    again.window.conversations.library.read()
    chats = again.window.conversations
    assert [c.title for c in chats.library.chats] == ["Remember me"]
    chats.select(chat_id)
    chats.library.rename(chat_id, "Renamed")
    chats.delete(chat_id)
    assert chats.library.chats == []
    chats.undo_delete()
    assert chats.current.chat.title == "Renamed"


def test_damaged_chat_is_told(qtbot: QtBot, make_program: MakeProgram) -> None:
    """A chat file that cannot be read is set aside and the window says so."""
    folder = folders.chats_folder()
    folder.mkdir(parents=True)
    (folder / "x.json").write_text("{")
    program = make_program()
    program.window.conversations.library.read()
    assert program.window.cards.card("chats") is not None


def test_system_prompt_belongs_to_the_chat(qtbot: QtBot, make_program: MakeProgram) -> None:
    """It is sent first, and another chat keeps its own."""
    program = make_program()
    program.load()
    chats = program.window.conversations
    chats.set_system_prompt("Be brief.")
    send(program)
    answered(program)
    assert program.session.requests[-1].messages[0].content == "Be brief."
    first = chats.current.chat.id
    chats.new_chat()
    chats.set_system_prompt("Be long.")
    chats.select(first)
    assert chats.current.chat.system_prompt == "Be brief."


@pytest.mark.parametrize(
    ("size", "chats", "panels"),
    [
        ((1440, 900), True, True),
        ((1280, 720), True, True),
        ((1000, 800), False, True),
        ((1093, 614), False, False),
        ((900, 600), False, False),
        ((620, 500), False, False),
    ],
)
def test_narrow_windows(
    qtbot: QtBot, make_program: MakeProgram, size: tuple[int, int], chats: bool, panels: bool
) -> None:
    """Parts fold in order; the strip stands for the panels, the conversation keeps 480 px."""
    program = make_program(None, *size)
    settle(30)
    parts, window = program.window.parts, program.window
    assert window.width() == size[0]
    assert (parts.chats_shown, parts.panels_shown) == (chats, panels)
    assert window.strip.isVisible() is not panels
    assert window.chat_view.width() >= 480
    assert window.composer.isVisible()


def test_chats_drawer_in_a_narrow_window(qtbot: QtBot, make_program: MakeProgram) -> None:
    """While the list is folded a button opens it over the conversation; a click puts it away."""
    program = make_program(None, 900, 600)
    program.window.run_bar.chats.click()
    assert program.window.parts.drawer_open
    qtbot.mouseClick(program.window.composer, Qt.MouseButton.LeftButton)
    assert not program.window.parts.drawer_open
    assert not program.window.chats_list.isVisible()


def test_toolbar_folds_before_it_clips(qtbot: QtBot, make_program: MakeProgram) -> None:
    """In a very narrow window one button stands for all, with every menu in it."""
    program = make_program(None, 1440, 900)
    program.load()
    bar = program.window.run_bar
    assert not bar.folded
    program.window.resize(560, 600)
    settle(30)
    assert bar.folded


def test_panels_asked_for_in_a_low_window(qtbot: QtBot, make_program: MakeProgram) -> None:
    """The strip's button brings the panels, closing them brings the strip back."""
    program = make_program(None, 1093, 614)
    program.window.strip.panels_requested.emit()
    assert program.window.parts.panels_shown
    assert not program.window.strip.isVisible()
    program.window.actions_table["view.telemetry"].trigger()
    assert not program.window.parts.panels_shown
    assert program.window.strip.isVisible()


@pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")
def test_floating_panels(qtbot: QtBot, make_program: MakeProgram) -> None:
    """The dock floats with its contents; closed by its frame it is off, and docks again later."""
    program = make_program()
    parts = program.window.parts
    parts.dock.setFloating(True)
    settle(30)
    assert program.window.panel.isVisible()
    assert program.window.strip.isVisible()
    parts.dock.close()
    assert not program.settings.get(SHOW_TELEMETRY)
    program.window.actions_table["view.telemetry"].trigger()
    assert program.window.panel.isVisible()
    assert not program.window.strip.isVisible()


def test_text_size_and_theme(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Ctrl and plus enlarge all text; the theme changes while the window is open."""
    program = make_program()
    program.window.actions_table["view.larger"].trigger()
    assert program.settings.get(FONT_SCALE) == 1.1
    assert program.appearance.theme.scale == 1.1
    program.window.actions_table["view.reset_text"].trigger()
    program.appearance.choose("light", 1.0)
    assert program.appearance.theme.name == "light"


def test_recording_writes_and_is_shown(
    qtbot: QtBot, make_program: MakeProgram, tmp_path: Path
) -> None:
    """Continuous recording appends each answer's rows and the status bar says so."""
    program = make_program()
    program.load()
    program.settings.set(RECORD_FOLDER, str(tmp_path))
    program.settings.set(RECORD, True)
    assert program.window.status.recording.isVisible()
    send(program)
    answered(program)
    program.window.close()
    assert len((tmp_path / "requests.csv").read_text().splitlines()) == 2


def test_crash_is_told_inline(qtbot: QtBot, make_program: MakeProgram) -> None:
    """An uncaught exception becomes a card; the window goes on."""
    program = make_program()
    program.window.tell_crash("ValueError: 1")
    assert program.window.cards.card("crash") is not None


def test_notices_of_the_engine(qtbot: QtBot, make_program: MakeProgram) -> None:
    """A GPU that cannot be used is named in the status bar; pressed, it shows the whole text."""
    notice = "The GPU is newer than this torch knows. Mend it with: pip install --upgrade torch"
    program = make_program(Script(notices=(notice,)))
    program.load()
    assert program.window.status.notice.isVisible()
    program.window.status.notice.click()
    assert program.window.cards.card(f"notice {notice}") is not None


@pytest.mark.parametrize("point", ["load", "prefill", "decode"])
def test_closing_in_the_middle(qtbot: QtBot, make_program: MakeProgram, point: str) -> None:
    """Closing mid-load, mid-prefill and mid-answer ends cleanly; the partial text is saved."""
    script = Script(
        hold_load_at=0.5 if point == "load" else None,
        hold_prefill_at=0.0 if point == "prefill" else None,
        hold_decode_at=9 if point == "decode" else None,
    )
    program = make_program(script)
    if point == "load":
        program.begin_load()
        wait_until(lambda: program.controller.loading is not None)
    else:
        program.load()
        send(program)
        if point == "decode":
            wait_until(lambda: bool(messages(program)[-1].text))
    program.window.close()
    assert program.session.closed
    saved = list(folders.chats_folder().glob("*.json"))
    assert len(saved) == (0 if point == "load" else 1)
    if point == "decode":
        stored = json.loads(saved[0].read_text())
        assert stored["messages"][-1]["state"] == "stopped"
        assert stored["messages"][-1]["text"]


def test_failed_first_load_then_unload(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Unload is possible in every state and ends with no model and a way to load one."""
    failure = LoadFailed("internal", "It broke.", "Nobody knows.", "Try again.")
    program = make_program(Script(load_failure=failure))
    program.begin_load()
    wait_until(lambda: program.controller.state is EngineState.FAILED)
    program.session.script.load_failure = None
    press(program, "load", "Try again")
    wait_until(lambda: program.controller.state is EngineState.READY)
    program.window.actions_table["model.unload"].trigger()
    wait_until(lambda: program.window.cards.card("load") is not None)
    assert program.controller.state is EngineState.UNLOADED
    assert program.settings.get(CONTEXT) is None


def test_dropped_model_is_opened(qtbot: QtBot, make_program: MakeProgram, tmp_path: Path) -> None:
    """A model file dragged onto the window is loaded."""
    program = make_program()
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(tmp_path / "Dropped.gguf"))])
    event = QDropEvent(
        QPointF(200, 200),
        Qt.DropAction.CopyAction,
        data,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )
    program.window.dropEvent(event)
    wait_until(lambda: program.controller.model is not None)
    assert program.session.loads[-1].model_path.endswith("Dropped.gguf")


def test_command_line_values_hold_for_one_run(qtbot: QtBot, make_program: MakeProgram) -> None:
    """--threads is used but not remembered; chosen in the menu it is."""
    program = make_program()
    program.window.loading.load_first({"model_path": "a.gguf", "threads": 1})
    wait_until(lambda: program.controller.model is not None)
    assert program.session.loads[-1].threads == 1
    assert program.settings.get(THREADS) is None
    program.window.loading.change({"threads": 2})
    wait_until(lambda: program.settings.get(THREADS) == 2)


def test_last_model_is_loaded_at_start(
    qtbot: QtBot, make_program: MakeProgram, tmp_path: Path
) -> None:
    """The next start takes up the model and how it was loaded; one that is gone is skipped."""
    model = tmp_path / "mine.gguf"
    model.write_bytes(b"")
    program = make_program()
    program.settings.set(LAST_MODEL, str(model))
    program.settings.set(WEIGHTS, "int8")
    program.window.loading.load_first()
    wait_until(lambda: program.controller.model is not None)
    assert program.session.loads[-1] == EngineConfig(str(model), weight_format="int8")
    model.unlink()
    program.settings.set(LAST_MODEL, str(tmp_path / "gone.gguf"))
    program.window.loading.load_first()
    wait_until(lambda: len(program.session.loads) == 2 or bool(program.window.cards.card("load")))
    assert all("gone" not in config.model_path for config in program.session.loads)
    card = program.window.cards.card("missing")
    assert (card is not None) == (starter_model_path() is not None)
    if card is not None:
        assert str(tmp_path / "gone.gguf") in card.accessibleName()
