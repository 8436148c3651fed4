"""With the cache and without: what is run, what is shown, and that the chat stays as it was."""

from __future__ import annotations

import numpy as np
import pytest
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from app.cache_comparison.dialog import ComparisonDialog
from app.cache_comparison.run import Stage
from app.chat.bubble_layout import Target
from app.chat.message_list import MessageList
from app.chat.row_menu import row_entries
from app.latency_overlay import LatencyLine, LatencyOverlay
from app.telemetry.format import three_digits
from app.theme import Theme, load_theme
from tests.app.conftest import MakeProgram
from tests.fakes.fake_session import Script
from tests.fakes.window import FakeProgram, wait_until

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")


@pytest.fixture
def theme() -> Theme:
    return load_theme("dark")


def answered(make_program: MakeProgram, **script: object) -> FakeProgram:
    """A window with one finished answer."""
    program = make_program(Script(**script))  # type: ignore[arg-type]
    program.load()
    assert program.window.conversations.send("Why?")
    wait_until(lambda: not program.window.conversations.generating_chats())
    return program


def opened(program: FakeProgram) -> ComparisonDialog:
    program.window.actions_table["chat.compare_cache"].trigger()
    [dialog] = program.window.findChildren(ComparisonDialog)
    return dialog


def finished(dialog: ComparisonDialog) -> None:
    wait_until(lambda: dialog.run.stage is Stage.DONE)


def test_the_stored_run_is_compared_with_one_without_cache(
    qtbot: QtBot, make_program: MakeProgram
) -> None:
    """One request goes out: the same but for the cache; the stored latencies are its partner."""
    program = answered(make_program)
    before = program.session.requests[0]
    stored = program.window.telemetry.model.request(before.request_id)
    assert stored is not None
    dialog = opened(program)
    dialog.tokens.setValue(40)
    dialog.start.click()
    finished(dialog)
    [_, request] = program.session.requests
    assert not request.use_cache
    assert request.ignore_eos
    assert request.max_tokens == 40
    assert request.messages == before.messages
    assert request.sampling.seed is not None
    assert request.sampling.temperature == before.sampling.temperature
    run = dialog.run
    assert run.cached_ms == pytest.approx(stored.tokens["itl_ms"][1:40])
    assert len(run.uncached_ms) == 39
    first, last = run.uncached_ms[:10].mean(), run.uncached_ms[-10:].mean()
    assert last > first, "it rises with every token"
    totals = run.totals_ms
    assert totals == pytest.approx((run.cached_ms.sum(), run.uncached_ms.sum()))
    assert totals is not None
    assert f" {three_digits(totals[1] / totals[0])}x " in dialog.headline.text()


def test_the_chat_and_the_panels_stay(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Its messages, the selected request and the gauge know nothing of the comparison."""
    program = answered(make_program)
    chats, telemetry = program.window.conversations, program.window.telemetry.model
    messages = [(m.id, m.text) for m in chats.current.chat.messages]
    numbers = program.window.composer._gauge._numbers
    wait_until(lambda: not numbers.text().startswith("0 "))
    selected, gauge = telemetry.selected, numbers.text()
    dialog = opened(program)
    dialog.start.click()
    finished(dialog)
    assert [(m.id, m.text) for m in chats.current.chat.messages] == messages
    assert telemetry.selected is selected
    assert numbers.text() == gauge


def test_more_tokens_than_the_answer_had_run_both(qtbot: QtBot, make_program: MakeProgram) -> None:
    """What is not known is measured: first with the cache, then without."""
    program = answered(make_program, answer="short and sweet")
    dialog = opened(program)
    assert dialog.tokens.value() == 3
    dialog.tokens.setValue(20)
    dialog.start.click()
    finished(dialog)
    assert [r.use_cache for r in program.session.requests] == [True, True, False]
    assert len(dialog.run.cached_ms) == len(dialog.run.uncached_ms) == 19


def test_an_answer_of_an_earlier_model_runs_both(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Latencies of another load say nothing about this one."""
    program = answered(make_program)
    model = program.controller.model
    program.begin_load("Other.gguf")
    wait_until(lambda: program.controller.model not in (None, model))
    dialog = opened(program)
    dialog.tokens.setValue(5)
    dialog.start.click()
    finished(dialog)
    assert [r.use_cache for r in program.session.requests[1:]] == [True, False]


def test_stop_keeps_what_there_is(qtbot: QtBot, make_program: MakeProgram) -> None:
    """The speed-up is then over the tokens that both have; other chats go on meanwhile."""
    program = answered(make_program)
    dialog = opened(program)
    program.session.script.hold_decode_at = 30
    dialog.start.click()
    wait_until(lambda: len(dialog.run.uncached_ms) == 29)
    assert dialog.headline.text() == f"Without the cache: token 30 of {dialog.tokens.value()}"
    assert program.window.conversations.send("Meanwhile?")
    wait_until(lambda: len(program.window.conversations.current.chat.messages[-1].text) > 10)
    dialog.stop.click()
    finished(dialog)
    run = dialog.run
    assert len(run.uncached_ms) == 29
    assert run.totals_ms == pytest.approx((run.cached_ms[:29].sum(), run.uncached_ms.sum()))
    assert "Stopped before the end." in dialog.summary.text()
    program.session.release()
    wait_until(lambda: not program.window.conversations.generating_chats())


def test_closing_ends_the_run(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Esc too: nothing goes on that nobody sees."""
    program = answered(make_program)
    dialog = opened(program)
    program.session.script.hold_decode_at = 10
    dialog.start.click()
    wait_until(lambda: len(dialog.run.uncached_ms) > 5)
    dialog.reject()
    wait_until(lambda: not program.controller.active_requests)
    wait_until(lambda: not program.window.findChildren(ComparisonDialog))


def test_the_picture_is_copied(qtbot: QtBot, make_program: MakeProgram) -> None:
    """One picture at twice its size, once there is something to show."""
    program = answered(make_program)
    dialog = opened(program)
    assert not dialog.copy.isEnabled()
    assert "a prompt of" not in dialog.source.text()
    dialog.tokens.setValue(10)
    dialog.start.click()
    finished(dialog)
    assert dialog.source.text().endswith(f"a prompt of {dialog.run.prompt_tokens} tokens")
    dialog.copy.click()
    assert QGuiApplication.clipboard().pixmap().size() == dialog.picture.size() * 2
    program.appearance.choose("light", 1.2)
    assert dialog._theme.name == "light"


def test_only_finished_answers_can_be_compared(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Their row menu has the entry, and it opens the dialog; a question's has not."""
    program = answered(make_program)
    view = program.window.chat_view.findChildren(MessageList)[0]

    def hits(row: int) -> dict[Target, object]:
        index = view.model().index(row, 0)
        content = view._delegate.content(index, view._width)
        return {hit.target: hit for _, hit in row_entries(index, content, None)}

    assert Target.COMPARE not in hits(0)
    hit = hits(1)[Target.COMPARE]
    view._trigger(view.model().index(1, 0), hit)  # type: ignore[arg-type]
    assert program.window.findChildren(ComparisonDialog)
    program.window.conversations.new_chat()
    assert not program.window.actions_table["chat.compare_cache"].isEnabled()
    assert program.window.instruments.comparisons.open() is None


@pytest.mark.parametrize("num_known", [0, 1, 2, 50, 299])
def test_the_lines_stay_inside(qtbot: QtBot, theme: Theme, num_known: int) -> None:
    """Points lie in the area whatever is known; an outlier does not flatten the rest."""
    overlay = LatencyOverlay(theme)
    qtbot.addWidget(overlay)
    overlay.resize(600, 280)
    cached = np.full(299, 7.0)
    cached[5] = 900.0
    uncached = np.linspace(20.0, 300.0, 299)[:num_known]
    overlay.set_lines(
        300, [LatencyLine("with", "decode", cached), LatencyLine("without", "prefill", uncached)]
    )
    assert overlay.top_ms < 900.0
    area = overlay.rect().toRectF()
    for latencies in (cached, uncached):
        assert all(area.contains(point) for point in overlay._points(latencies, area))
    assert not overlay.grab().isNull()
