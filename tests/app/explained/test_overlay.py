"""The card and its pointer: where they stand, what they say, and that they go away."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from PySide6.QtCore import QLocale, QObject, QPoint, QRect, Qt, Signal
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.appearance import Appearance
from app.engine_link.controller import EngineState
from app.explained.anchors import Anchors
from app.explained.card import StepCard
from app.explained.card_parts import Paragraphs
from app.explained.explanation import explain
from app.explained.overlay import Overlay
from app.explained.pointer import leader
from app.explained.reading import Reading
from app.explained.story import Step
from app.explained.texts import Language
from app.settings.schema import EXPLAIN, EXPLAIN_LANGUAGE, EXPLAIN_OFFERED
from app.telemetry.dock import MINIMUM_WIDTH, TelemetryPanel
from app.telemetry.telemetry_model import TelemetryModel
from app.theme import Theme
from tests.app.conftest import MakeProgram
from tests.app.explained.test_texts import variants
from tests.app.telemetry.story import Clock, Story
from tests.fakes.fake_session import Script
from tests.fakes.window import FakeProgram, settle, wait_until

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")

SIGNAL = "2events_played(PyObject)"
QUESTION = "Why is the first token slow and the rest fast?"


class Player(QObject):
    """Says recorded events, as the engine or a replay does."""

    events_played = Signal(object)


@pytest.fixture
def player(qtbot: QtBot) -> Player:
    """A silent player."""
    return Player()


@pytest.fixture
def overlay(qtbot: QtBot, theme: Theme, model: TelemetryModel, player: Player) -> Iterator[Overlay]:
    """An overlay over panels without a window or a conversation, as in a replay."""
    panel = TelemetryPanel(theme, model)
    qtbot.addWidget(panel)
    panel.resize(MINIMUM_WIDTH, 800)
    panel.show()
    overlay = Overlay(theme, model, player.events_played, Anchors(panel), "en")
    yield overlay
    overlay.close()


def tell(story: Story, model: TelemetryModel, player: Player, clock: Clock) -> None:
    """Let an answer happen to the panels and to whoever listens."""
    story.tell(model, clock)
    player.events_played.emit(story.events())
    model.changed.emit()


def running(make_program: MakeProgram, tokens: int = 40, **size: int) -> FakeProgram:
    """A window in which an answer is under way, its explanations switched on before."""
    program = make_program(Script(hold_decode_at=tokens), **size)
    program.load()
    program.settings.set(EXPLAIN_LANGUAGE, "en")
    program.settings.set(EXPLAIN, True)
    assert program.window.conversations.send(QUESTION)
    trace = program.window.telemetry.model
    wait_until(lambda: trace.selected is not None and len(trace.selected.tokens) >= tokens)
    wait_until(lambda: overlay_of(program).reading is not None)
    return program


def overlay_of(program: FakeProgram) -> Overlay:
    """What is shown in a window."""
    overlay = program.window.explained.overlay
    assert overlay is not None
    return overlay


def turn_to(overlay: Overlay, step: Step) -> None:
    """Press Next until a step is shown."""
    wait_until(lambda: overlay.reading is not None and overlay.reading.story.reached >= step)
    while overlay.reading is not None and overlay.reading.shown < step:
        overlay.card.next_pressed.emit()
    overlay.arrange()


# --- the card ---------------------------------------------------------------------------------


@pytest.fixture(params=[1.0, 1.5])
def styled(request: pytest.FixtureRequest, qapp: QApplication) -> Iterator[Theme]:
    """The dark theme on the whole program, at two text sizes."""
    appearance = Appearance(qapp, "dark", request.param)
    yield appearance.theme
    appearance.deleteLater()
    qapp.setStyleSheet("")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_text_fits_into_the_narrowest_panel(
    qtbot: QtBot, styled: Theme, language: Language
) -> None:
    """At 360 px, the dock's least width, no text of any story is cut or beside the card."""
    theme, page = styled, QWidget()
    qtbot.addWidget(page)
    page.resize(theme.px(MINIMUM_WIDTH), 900)
    card = StepCard(theme)
    card.setParent(page)
    card.set_language(language)
    page.show()
    width = theme.px(MINIMUM_WIDTH) - 28
    for story in variants().values():
        reading = Reading(story)
        for reading.shown in Step:
            reading.following = False  # where the answer runs, this shows the widest row of buttons
            card.tell_step([explain(story, step, language) for step in Step], reading, language)
            card.resize(width, card.height_at(width))
            card.layout().activate()
            for button in card.findChildren(QPushButton):
                assert button.isHidden() or button.sizeHint().width() <= button.width() + 1
            title = card.findChildren(QLabel)[0]
            body = card.findChildren(Paragraphs)[0]
            assert title.sizeHint().width() <= title.width() + 1, title.text()
            assert body.height_of(body.text, body.width()) <= body.height(), body.text


def test_the_card_keeps_its_height_from_step_to_step(
    overlay: Overlay, model: TelemetryModel, player: Player, clock: Clock
) -> None:
    """Next does not move away under the mouse."""
    tell(Story(), model, player, clock)
    heights = set()
    for step in Step:
        turn_to(overlay, step)
        settle(20)
        heights.add(overlay.card.height())
    assert len(heights) == 1


def test_the_keyboard_turns_pages_and_closes(
    qtbot: QtBot, overlay: Overlay, model: TelemetryModel, player: Player, clock: Clock
) -> None:
    """Arrow keys and Esc work from the card and from its buttons."""
    tell(Story(), model, player, clock)
    assert overlay.reading is not None
    next_button = overlay.card.findChildren(QPushButton)[-1]
    QTest.keyClick(overlay.card, Qt.Key.Key_Right)
    QTest.keyClick(next_button, Qt.Key.Key_Right)
    assert overlay.reading.shown is Step.PREFILL
    QTest.keyClick(next_button, Qt.Key.Key_Left)
    assert overlay.reading.shown is Step.EMBED
    with qtbot.waitSignal(overlay.closed):
        QTest.keyClick(overlay.card, Qt.Key.Key_Escape)


# --- over panels alone, as in a replay --------------------------------------------------------


def test_played_events_are_told(
    overlay: Overlay, model: TelemetryModel, player: Player, clock: Clock
) -> None:
    """Before any answer the card says what it is for; then it tells the answer's own figures."""
    assert "Send a message" in overlay.card.body
    tell(Story(prompt_tokens=300), model, player, clock)
    assert "became 300 tokens" in overlay.card.body
    turn_to(overlay, Step.PREFILL)
    assert "300 tokens in 3 chunks" in overlay.card.body


@pytest.mark.parametrize(
    ("step", "part"),
    [
        (Step.EMBED, "ribbon"),
        (Step.PREFILL, "plots.kv"),
        (Step.FIRST_TOKEN, "plots.itl"),
        (Step.DECODE, "plots.utilization"),
    ],
)
def test_each_step_points_at_its_panel(
    overlay: Overlay,
    model: TelemetryModel,
    player: Player,
    clock: Clock,
    step: Step,
    part: str,
) -> None:
    """The outline lies around what the step speaks of, and the line ends at it."""
    tell(Story(), model, player, clock)
    turn_to(overlay, step)
    settle(20)
    overlay.arrange()
    panel = overlay.pointer.over
    widget: QWidget = panel
    for name in part.split("."):
        widget = getattr(widget, name)
    center = widget.mapTo(panel, widget.rect().center())
    assert overlay.pointer.isVisible()
    assert overlay.pointer.region.contains(center)
    assert overlay.pointer.region.height() <= widget.height() + 8
    assert overlay.pointer.line[-1].x() == overlay.pointer.region.left()


def test_the_line_crosses_no_panel(
    overlay: Overlay, model: TelemetryModel, player: Player, clock: Clock
) -> None:
    """It goes along the panel's edge, left of everything that is drawn."""
    tell(Story(), model, player, clock)
    panel = overlay.pointer.over
    assert isinstance(panel, TelemetryPanel)
    for step in Step:
        turn_to(overlay, step)
        parts = (panel.ribbon, panel.plots, panel.block_map)
        drawn = [QRect(p.mapTo(panel, QPoint(0, 0)), p.size()) for p in parts if p.isVisible()]
        for start, end in pairwise(overlay.pointer.line):
            stretch = QRect(start, end).normalized()
            assert not any(stretch.intersects(part) for part in drawn), step


def test_closing_leaves_nothing_behind(
    qtbot: QtBot, theme: Theme, model: TelemetryModel, player: Player
) -> None:
    """Once closed, nobody listens to the events and the panel has its room again."""
    panel = TelemetryPanel(theme, model)
    qtbot.addWidget(panel)
    panel.show()
    children = len(panel.findChildren(QWidget))
    overlay = Overlay(theme, model, player.events_played, Anchors(panel), "en")
    assert player.receivers(SIGNAL) == 1
    overlay.close()
    settle(20)
    assert player.receivers(SIGNAL) == 0
    assert len(panel.findChildren(QWidget)) == children


# --- in the window ----------------------------------------------------------------------------


def test_esc_in_the_card_does_not_stop_the_answer(make_program: MakeProgram) -> None:
    """Esc is the window's Stop, except where the focus is in the card."""
    program = running(make_program)
    button = overlay_of(program).card.findChildren(QPushButton)[-1]
    button.setFocus()
    QTest.keyClick(button, Qt.Key.Key_Escape)
    assert program.window.explained.overlay is None
    request = program.controller.active_requests[0]
    assert program.controller.phase(request) is EngineState.DECODING


@pytest.mark.parametrize(("system", "title"), [("zh_CN", "一次回答"), ("de_DE", "What happens")])
def test_the_first_language_is_the_desktops(
    make_program: MakeProgram, monkeypatch: pytest.MonkeyPatch, system: str, title: str
) -> None:
    """Chinese on a Chinese desktop, English on any other."""
    monkeypatch.setattr(QLocale, "system", lambda: QLocale(system))
    program = make_program()
    program.settings.set(EXPLAIN, True)
    assert overlay_of(program).card.title.startswith(title)


def test_off_nothing_is_there(make_program: MakeProgram) -> None:
    """Switched off, which it is at first, there is neither card nor listener."""
    program = make_program()
    assert program.window.explained.overlay is None
    assert not program.window.findChildren(StepCard)


def test_the_menu_switches_it_and_the_card_switches_it_off(make_program: MakeProgram) -> None:
    """Menu, setting and card say the same."""
    program = make_program()
    action = program.window.actions_table["view.explain"]
    action.trigger()
    assert program.settings.get(EXPLAIN)
    overlay_of(program).closed.emit()
    assert program.window.explained.overlay is None
    assert (action.isChecked(), program.settings.get(EXPLAIN)) == (False, False)


def test_the_language_is_switched_and_kept(make_program: MakeProgram) -> None:
    """The card goes on in the other language, and so does the next one."""
    program = running(make_program)
    assert overlay_of(program).card.title.startswith("Tokenize")
    overlay_of(program).card.language_pressed.emit()
    assert overlay_of(program).card.title.startswith("分词")
    assert program.settings.get(EXPLAIN_LANGUAGE) == "zh"


def test_offered_once_in_an_empty_chat(make_program: MakeProgram) -> None:
    """Taken or passed by, the line does not come again."""
    program = make_program()
    program.load()
    state = program.window.chat_view.empty_state
    offers = [b for b in state.findChildren(QPushButton) if "step by step" in b.text()]
    assert [b.isVisible() for b in offers] == [True]
    offers[0].click()
    assert program.settings.get(EXPLAIN)
    assert program.settings.get(EXPLAIN_OFFERED)
    assert not offers[0].isVisible()


def test_the_offer_goes_when_the_menu_was_faster(make_program: MakeProgram) -> None:
    """What is on already is not offered."""
    program = make_program()
    program.load()
    program.settings.set(EXPLAIN, True)
    offered = program.window.chat_view.empty_state.findChildren(QPushButton)[-1]
    assert not offered.isVisible()


def test_an_offer_passed_by_is_not_made_again(make_program: MakeProgram) -> None:
    """Who sends a message has seen the line."""
    program = make_program()
    program.load()
    assert program.window.conversations.send(QUESTION)
    wait_until(lambda: not program.controller.active_requests)
    assert program.settings.get(EXPLAIN_OFFERED)
    assert not program.settings.get(EXPLAIN)


@pytest.mark.parametrize("size", [(1440, 900), (1280, 720), (1093, 614), (620, 600)])
def test_the_card_covers_nothing(make_program: MakeProgram, size: tuple[int, int]) -> None:
    """Its place is its own: in the panel, or over the strip where the panel is folded."""
    program = running(make_program, width=size[0], height=size[1])
    overlay, window = overlay_of(program), program.window
    wait_until(lambda: overlay.card.isVisible())
    settle(50)
    card = QRect(overlay.card.mapTo(window, QPoint(0, 0)), overlay.card.size())
    parts = [window.panel.cards, window.panel.ribbon, window.panel.plots, window.panel.block_map]
    parts += [window.strip, window.chat_view, window.composer, window.status]
    for part in parts:
        place = QRect(part.mapTo(window, QPoint(0, 0)), part.size())
        assert not part.isVisible() or not place.intersects(card), type(part).__name__
    assert window.rect().contains(card)


def test_it_follows_the_window_folding_and_growing(make_program: MakeProgram) -> None:
    """From the panel to the strip and back, with text size and theme changed on the way."""
    program = running(make_program)
    overlay, window = overlay_of(program), program.window
    turn_to(overlay, Step.DECODE)
    assert window.panel.isAncestorOf(overlay.card)
    window.resize(1000, 600)
    wait_until(lambda: not window.panel.isAncestorOf(overlay.card))
    wait_until(lambda: overlay.pointer.isVisible() and window.strip.isVisible())
    strip = QRect(window.strip.mapTo(window, QPoint(0, 0)), window.strip.size())
    wait_until(lambda: strip.contains(overlay.pointer.region.center()))
    program.appearance.choose("light", 1.2)
    window.resize(1440, 1000)
    wait_until(lambda: window.panel.isAncestorOf(overlay.card))
    program.appearance.choose("dark", 1.0)
    wait_until(overlay.pointer.isVisible)


def test_it_goes_with_panels_that_float(make_program: MakeProgram) -> None:
    """The line is drawn over the window that the card is in; what is elsewhere has a stand-in."""
    program = running(make_program)
    overlay, window = overlay_of(program), program.window
    window.parts.dock.setFloating(True)
    wait_until(lambda: overlay.pointer.over is window.parts.dock)
    turn_to(overlay, Step.DETOKENIZE)
    assert overlay.pointer.isVisible()
    itl = window.panel.plots.itl
    assert overlay.pointer.region.contains(itl.mapTo(window.parts.dock, itl.rect().center()))
    window.parts.dock.setFloating(False)
    wait_until(lambda: overlay.pointer.over is window)


def test_the_text_of_the_answer_is_pointed_at(make_program: MakeProgram) -> None:
    """The last step speaks of the words in the conversation, the first of the question."""
    program = running(make_program)
    overlay, window = overlay_of(program), program.window
    view = window.chat_view
    for step in (Step.DETOKENIZE, Step.TOKENIZE):
        turn_to(overlay, step)
        while overlay.reading is not None and overlay.reading.shown > step:
            overlay.card.back_pressed.emit()
        overlay.arrange()
        region = overlay.pointer.region
        assert QRect(view.mapTo(window, QPoint(0, 0)), view.size()).contains(region)


def test_it_goes_on_by_itself_once_read(
    make_program: MakeProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the engine at the decode loop, the card arrives there without a key."""
    monkeypatch.setattr("app.explained.overlay.reading_s", lambda *_: 0.01)
    program = running(make_program)
    overlay = overlay_of(program)
    wait_until(lambda: overlay.reading is not None and overlay.reading.shown is Step.DECODE)
    assert "Token 40" in overlay.card.body


def test_another_chat_has_its_own_story(make_program: MakeProgram) -> None:
    """The card tells of the answer that the panels show."""
    program = running(make_program)
    first = overlay_of(program).reading
    program.window.conversations.new_chat()
    assert program.window.conversations.send("Hi")
    wait_until(lambda: overlay_of(program).reading is not first)
    second = overlay_of(program).reading
    assert first is not None
    assert second is not None
    assert second.story.request_id != first.story.request_id


def test_switched_on_after_the_answer(make_program: MakeProgram) -> None:
    """All six steps can be turned to, from what the panels know."""
    program = make_program()
    program.load()
    assert program.window.conversations.send(QUESTION)
    wait_until(lambda: not program.controller.active_requests)
    program.settings.set(EXPLAIN_LANGUAGE, "en")
    program.settings.set(EXPLAIN, True)
    turn_to(overlay_of(program), Step.DETOKENIZE)
    assert "the answer was complete" in overlay_of(program).card.body


# --- the line ---------------------------------------------------------------------------------


def test_a_line_goes_round_by_its_lane() -> None:
    """Out at the card's side, along the lane, in at the region's side; never through either."""
    card, right = QRect(28, 300, 400, 100), QRect(500, 50, 200, 80)
    left = leader(card, QRect(10, 50, 300, 80), 5)
    assert [(p.x(), p.y()) for p in left] == [(28, 320), (5, 320), (5, 89), (10, 89)]
    assert [p.x() for p in leader(card, right, 480)] == [427, 480, 480, 500]


def test_a_line_between_what_lies_one_above_the_other() -> None:
    """Straight, from edge to edge."""
    line = leader(QRect(0, 100, 300, 50), QRect(100, 200, 80, 40), None)
    assert [point.x() for point in line] == [120, 120]
    assert (line[0].y(), line[1].y()) == (149, 200)
