"""The race's window: what it offers, says and draws, and what its buttons do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from app.chat.bubble_layout import Target
from app.chat.message_list import MessageList
from app.chat.row_menu import row_entries
from app.race.dialog import RaceDialog
from app.race.race import Stage
from engine.config import EngineConfig
from engine.session import EngineError
from tests.app.conftest import MakeProgram
from tests.fakes.fake_session import Script
from tests.fakes.window import MODEL, FakeProgram, wait_until

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")

KNOWN = Script(itl_ms_as={"int8": 12.0, "int4": 7.5}, prefill_tok_s=1_000.0, is_even=True)


def answered(make_program: MakeProgram, script: Script = KNOWN) -> FakeProgram:
    """A window whose INT8 model has given one answer."""
    program = make_program(replace(script))
    load(program, weight_format="int8")
    ask(program)
    return program


def load(program: FakeProgram, **fields: object) -> None:
    program.window.loading.load(EngineConfig(MODEL, **fields))  # type: ignore[arg-type]
    wait_until(lambda: program.controller.model is not None and program.controller.loading is None)


def ask(program: FakeProgram) -> None:
    assert program.window.conversations.send("Why is the first token slow?")
    wait_until(lambda: not program.window.conversations.generating_chats())


def opened(program: FakeProgram) -> RaceDialog:
    program.window.actions_table["chat.race"].trigger()
    [dialog] = program.window.findChildren(RaceDialog)
    return dialog


def raced(program: FakeProgram, **fields: object) -> RaceDialog:
    dialog = opened(program)
    wait_until(lambda: dialog.race.first.wanted == program.window.loading.wanted)
    dialog.choose(fields)
    wait_until(lambda: "predict" in dialog.summary.text())
    dialog.start.click()
    wait_until(lambda: dialog.race.stage is Stage.DONE)
    return dialog


def weights(program: FakeProgram) -> str:
    wait_until(lambda: program.controller.loading is None)
    assert program.controller.model is not None
    return program.controller.model.config.weight_format


def test_it_ends_with_predicted_and_measured(qtbot: QtBot, make_program: MakeProgram) -> None:
    """In words, for decode and the wait; the picture can be copied."""
    program = answered(make_program)
    dialog = raced(program, weight_format="int4")
    assert dialog.headline.text().startswith("Decode: predicted 1.")
    assert dialog.headline.text().endswith(", measured 1.60x")
    assert dialog.summary.text().startswith("83.3 before, 133 tok/s now.")
    assert "First token after 15.0 ms before, 15.0 ms now: measured 1.00x." in dialog.summary.text()
    assert "INT8 → INT4" in dialog.source.text()
    dialog.copy.click()
    assert QGuiApplication.clipboard().pixmap().size() == dialog.picture.size() * 2


def test_without_a_prediction_only_the_measured_is_said(
    qtbot: QtBot, make_program: MakeProgram
) -> None:
    """Sizes that cannot be read predict nothing."""
    program = answered(make_program)
    program.session.script.bad_paths[MODEL] = EngineError("Gone.", "Moved.", "Look.")
    dialog = opened(program)
    dialog.choose({"weight_format": "int4"})
    wait_until(lambda: "cannot be predicted" in dialog.summary.text())
    program.session.script.bad_paths.clear()
    dialog.start.click()
    wait_until(lambda: dialog.race.stage is Stage.DONE)
    assert dialog.headline.text() == "Decode: measured 1.60x"


def test_keep_and_back(qtbot: QtBot, make_program: MakeProgram) -> None:
    """The buttons name both; one leaves what runs, the other loads what was there."""
    program = answered(make_program)
    dialog = raced(program, weight_format="int4")
    assert (dialog.keep.text(), dialog.back.text()) == ("Keep INT4", "Back to INT8")
    dialog.keep.click()
    wait_until(lambda: not program.window.findChildren(RaceDialog))
    assert weights(program) == "int4"
    ask(program)
    dialog = raced(program, weight_format="int8")
    dialog.back.click()
    assert weights(program) == "int4"


def test_the_earlier_run_is_drawn_behind_the_new_one(
    qtbot: QtBot, make_program: MakeProgram
) -> None:
    """In the panels and the race's plot; with the window it goes, and the chat's run is back."""
    program = answered(make_program)
    telemetry, plots = program.window.telemetry.model, program.window.panel.plots
    chat_run = telemetry.selected
    dialog = opened(program)
    program.session.script.hold_decode_at = 20
    dialog.choose({"weight_format": "int4"})
    dialog.start.click()
    wait_until(lambda: dialog.race.trace is not None and len(dialog.race.trace.tokens) == 20)
    wait_until(lambda: plots._ghost is chat_run)
    assert telemetry.selected is dialog.race.trace
    assert plots.time_range[1] >= (chat_run.end_s if chat_run and chat_run.end_s else 1e9)
    latencies, cache = dialog.plot.panes()
    assert chat_run is not None
    assert latencies.earlier[1].tolist() == chat_run.tokens["itl_ms"][1:].tolist()
    assert len(latencies.now[1]) == 19
    assert cache.now[1][-1] < cache.earlier[1][-1]
    assert dialog.headline.text() == f"INT4: token 20 of {len(chat_run.tokens)}"
    dialog.stop.click()
    wait_until(lambda: dialog.race.stage is Stage.DONE)
    assert "Stopped before the end." in dialog.summary.text()
    dialog.reject()
    assert telemetry.selected is chat_run
    assert plots._ghost is None


def test_what_does_not_fit_is_said(qtbot: QtBot, make_program: MakeProgram) -> None:
    """The headline names it, the summary says why; nothing is offered to be kept."""
    program = answered(make_program)
    dialog = opened(program)
    program.session.script.available_bytes = 300_000_000
    dialog.choose({"weight_format": "fp32"})
    dialog.start.click()
    wait_until(lambda: dialog.race.stage is Stage.DONE)
    assert dialog.headline.text() == "FP32 did not run"
    assert "not fit in memory" in dialog.summary.text()
    assert not dialog.keep.isVisible()
    wait_until(lambda: program.controller.model is not None)
    assert weights(program) == "int8"


def test_it_begins_with_a_change_only(qtbot: QtBot, make_program: MakeProgram) -> None:
    """The same again is no race; while a chat answers it waits."""
    program = answered(make_program)
    dialog = opened(program)
    assert not dialog.start.isEnabled()
    dialog.choose({"threads": 1})
    assert dialog.start.isEnabled()
    program.session.script.hold_decode_at = 5
    program.window.conversations.send("Meanwhile?")
    dialog.start.click()
    assert dialog.summary.text().startswith("A chat is answering")
    assert dialog.race.stage is Stage.IDLE
    program.session.release()
    wait_until(lambda: not program.controller.active_requests)


def test_a_suggestion_is_raced(qtbot: QtBot, make_program: MakeProgram) -> None:
    """The button beside it begins at once; the gain that the card told is the predicted one."""
    words = "one two three four five six seven eight nine ten " * 8
    program = make_program(Script(answer=words, itl_ms=95.0, bandwidth=6e9, is_even=True))
    load(program, weight_format="fp32", threads=1)
    ask(program)
    answer = program.window.conversations.current.chat.messages[-1]
    wait_until(lambda: answer.note is not None)
    assert answer.note is not None
    assert "about 3.1x faster" in answer.note.text
    program.session.script.itl_ms_as = {"int8": 95.0 / 3.125}
    action = next(each for each in answer.note.actions if each.label == "Race INT8")
    program.window.chat_view.action_requested.emit(action.id)
    [dialog] = program.window.findChildren(RaceDialog)
    wait_until(lambda: dialog.race.stage is Stage.DONE)
    assert dialog.headline.text().startswith("Decode: predicted 3.07x")
    assert ", measured 3.1" in dialog.headline.text()
    assert weights(program) == "int8"


def test_an_answer_offers_it(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Its own menu has the entry, and it opens the window; an unknown run says why not."""
    program = answered(make_program)
    view = program.window.chat_view.findChildren(MessageList)[0]
    index = view.model().index(1, 0)
    entries = row_entries(index, view._delegate.content(index, view._width), None)
    hit = next(hit for label, hit in entries if label == "Race…")
    assert hit.target is Target.RACE
    view._trigger(index, hit)
    assert program.window.findChildren(RaceDialog)
    program.window.instruments.races.runs._runs.clear()
    assert program.window.instruments.races.open() is None
    assert program.window.cards.card("race") is not None
