"""The conversation on screen: following, sizes, clicks, keys, selection."""

from __future__ import annotations

import random

import pytest
from PySide6.QtCore import QPersistentModelIndex, QPoint, Qt, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication
from pytestqt.qtbot import QtBot

from app.chat import row_content
from app.chat.bubble_layout import Hit, Target
from app.chat.message_list import MessageList
from app.chat.model import ChatModel
from app.chat.row_menu import row_entries
from app.chat.selection import SelectionBrowser
from app.chat.store import AnswerNote, AnswerStats, Chat, ErrorAction
from app.chat.view import ChatView
from app.theme import Theme, load_theme
from engine.events import LoadProgress

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")

CODE_ANSWER = "See [here](https://example.org):\n\n```python\nfor x in y:\n    pass\n```\n\nDone."


@pytest.fixture
def view(qtbot: QtBot, theme: Theme) -> ChatView:
    view = ChatView(theme)
    qtbot.addWidget(view)
    view.resize(700, 500)
    view.show()
    return view


def _list(view: ChatView) -> MessageList:
    return view.findChild(MessageList)


def _answer(view: ChatView, text: str) -> str:
    answer = view.model.begin_answer()
    view.model.append_text(answer, text)
    view.model.finish(answer, "done", AnswerStats(completion_tokens=3), (1,))
    return answer


def _fill(view: ChatView, turns: int = 20) -> None:
    for turn in range(turns):
        view.model.append_user(f"Question {turn}")
        _answer(view, "An answer.\n\n" * 3)


def _place(view: ChatView, row: int, hit: Hit) -> QPoint:
    """The middle of a place of a row, in the list's viewport."""
    messages = _list(view)
    rect = messages.visualRect(view.model.index(row))
    geometry = messages.itemDelegate().content(view.model.index(row), rect.width()).geometry  # type: ignore[attr-defined]
    places = dict(geometry.controls)
    for number, block in enumerate(geometry.blocks):
        places[Hit(Target.TEXT, number)] = block.text
        if block.card:
            places[Hit(Target.COPY_CODE, number)] = block.card.copy
    return places[hit].center() + rect.topLeft()


def _click(qtbot: QtBot, view: ChatView, row: int, hit: Hit) -> None:
    viewport = _list(view).viewport()
    qtbot.mouseClick(viewport, Qt.MouseButton.LeftButton, pos=_place(view, row, hit))


def _at_end(messages: MessageList) -> bool:
    return messages.verticalScrollBar().value() == messages.verticalScrollBar().maximum()


def test_an_empty_chat_offers_examples(view: ChatView, qtbot: QtBot) -> None:
    """An example is one click away and makes room for the conversation."""
    view.set_model_name("SmolLM2-135M-Instruct")
    assert view.empty_state.isVisible()
    button = view.empty_state.findChildren(type(view._jump))[0]
    with qtbot.waitSignal(view.example_chosen) as chosen:
        qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    assert chosen.args == [button.text()]
    view.model.append_user(button.text())
    assert not view.empty_state.isVisible()
    assert _list(view).isVisible()


def test_loading_takes_the_place_of_the_empty_state(view: ChatView, qtbot: QtBot) -> None:
    """Loading says how far it is and can be cancelled; messages stay in view meanwhile."""
    view.loading_card.start("SmolLM2")
    view.set_loading(True)
    view.loading_card.update_progress(LoadProgress("reading", 50_000_000, 100_000_000, 0.5))
    assert view.loading_card.isVisible()
    assert not view.empty_state.isVisible()
    assert (
        view.loading_card._detail.accessibleName() == "50.0 of 100 MB   100 MB/s   under 1 s left"
    )
    with qtbot.waitSignal(view.loading_card.cancel_requested):
        view.loading_card._cancel.click()
    view.model.append_user("Hi")
    assert _list(view).isVisible()
    assert view.loading_card.isVisible()
    view.set_loading(False)
    assert not view.loading_card.isVisible()


def test_the_list_follows_the_stream(view: ChatView, qtbot: QtBot) -> None:
    """A reader at the end sees each new line."""
    _fill(view)
    answer = view.model.begin_answer()
    messages = _list(view)
    for _ in range(30):
        view.model.append_text(answer, "more words\n")
        qtbot.waitUntil(lambda: _at_end(messages))
    assert messages.following


def test_the_list_leaves_a_reader_alone(view: ChatView, qtbot: QtBot) -> None:
    """Who scrolled up is not pulled down by the stream, and has a button to come back."""
    _fill(view)
    messages = _list(view)
    qtbot.waitUntil(lambda: _at_end(messages) and messages.verticalScrollBar().maximum() > 0)
    answer = view.model.begin_answer()
    messages.verticalScrollBar().setValue(messages.verticalScrollBar().maximum() // 2)
    top = messages.indexAt(QPoint(300, 5))
    row, offset = top.row(), messages.visualRect(top).top()
    for _ in range(20):
        view.model.append_text(answer, "more words\n")
        QGuiApplication.processEvents()
    assert messages.visualRect(view.model.index(row)).top() == offset
    assert view._jump.isVisible()
    qtbot.mouseClick(view._jump, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: _at_end(messages))
    assert not view._jump.isVisible()


def test_sending_brings_the_reader_to_the_end(view: ChatView, qtbot: QtBot) -> None:
    """One's own message is always seen."""
    _fill(view)
    messages = _list(view)
    messages.verticalScrollBar().setValue(0)
    view.model.append_user("New question")
    qtbot.waitUntil(lambda: messages.following and _at_end(messages))


def test_only_rows_on_screen_are_laid_out(
    view: ChatView, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a long chat lays out what is seen, not hundreds of answers."""
    other = ChatModel(Chat.new(), view)
    for turn in range(100):
        other.append_user(f"Question {turn}")
        other.finish(other.begin_answer(), "done", None, None)
    parsed = []
    original = row_content.parse_answer
    monkeypatch.setattr(
        row_content, "parse_answer", lambda text: parsed.append(text) or original(text)
    )
    view.set_model(other)
    messages = _list(view)
    qtbot.waitUntil(lambda: _at_end(messages) and messages.verticalScrollBar().maximum() > 0)
    assert 0 < len(parsed) < 20


def test_scrolling_up_holds_what_is_read(view: ChatView, qtbot: QtBot) -> None:
    """Rows with guessed heights come in above without moving the text under the eyes."""
    chat = Chat.new()
    builder = ChatModel(chat)
    for turn in range(30):
        builder.append_user(f"Question {turn}")
        answer = builder.begin_answer()
        builder.append_text(answer, "```\na\nb\n```\n\n# Title\n\n" * (turn % 4))
        builder.finish(answer, "done", None, None)
    view.model.set_chat(chat)
    messages = _list(view)
    bar = messages.verticalScrollBar()
    qtbot.waitUntil(lambda: _at_end(messages) and bar.maximum() > 0)
    for _ in range(25):
        rows = messages._visible_rows()
        watched, before = rows[len(rows) // 2], messages.visualRect(rows[len(rows) // 2]).top()
        bar.triggerAction(bar.SliderAction.SliderSingleStepSub)
        assert messages.visualRect(watched).top() == before + bar.singleStep()


def test_streaming_appends_and_finishing_renders(view: ChatView, qtbot: QtBot) -> None:
    """While it streams an answer is plain text in one document; then it is Markdown."""
    answer = view.model.begin_answer()
    index = view.model.index(0)
    delegate, width = _list(view)._delegate, _list(view).viewport().width()
    view.model.set_progress(answer, "Reading the prompt, 39 %")
    first = delegate.content(index, width)
    assert first.blocks[0].document.toPlainText() == "Reading the prompt, 39 %"
    view.model.append_text(answer, "**bo")
    live = delegate.content(index, width).blocks[0].document
    view.model.append_text(answer, "ld**")
    assert delegate.content(index, width).blocks[0].document is live
    assert live.toPlainText() == "**bold**"
    view.model.finish(answer, "done", None, None)
    assert delegate.content(index, width).blocks[0].document.toPlainText() == "bold"


def test_copy_gives_the_answer_as_it_was_written(view: ChatView, qtbot: QtBot) -> None:
    """The Copy under an answer copies Markdown, the one on a card copies the code."""
    _answer(view, CODE_ANSWER)
    _click(qtbot, view, 0, Hit(Target.COPY))
    assert QGuiApplication.clipboard().text() == CODE_ANSWER
    _click(qtbot, view, 0, Hit(Target.COPY_CODE, 1))
    assert QGuiApplication.clipboard().text() == "for x in y:\n    pass"


def test_only_the_last_answer_can_be_made_anew(view: ChatView, qtbot: QtBot) -> None:
    """Regenerating an earlier answer would take the later turns with it."""
    _answer(view, "one")
    view.model.append_user("and?")
    last = _answer(view, "two")
    with qtbot.assertNotEmitted(view.regenerate_requested):
        _click(qtbot, view, 0, Hit(Target.REGENERATE))
    with qtbot.waitSignal(view.regenerate_requested) as requested:
        _click(qtbot, view, 2, Hit(Target.REGENERATE))
    assert requested.args == [last]


def test_an_error_card_acts(view: ChatView, qtbot: QtBot) -> None:
    """The button of an error card, or Enter on it, does what it says."""
    actions = [ErrorAction("reload", "Load again"), ErrorAction("open", "Open another model…")]
    view.model.append_error("It failed.", "No memory.", "Load less.", actions)
    with qtbot.waitSignal(view.action_requested) as requested:
        _click(qtbot, view, 0, Hit(Target.ACTION, 1))
    assert requested.args == ["open"]
    messages = _list(view)
    messages.setCurrentIndex(view.model.index(0))
    with qtbot.waitSignal(view.action_requested) as requested:
        qtbot.keyClick(messages, Qt.Key.Key_Return)
    assert requested.args == ["reload"]


def test_the_menu_of_a_row_offers_all_that_the_mouse_can(view: ChatView, qtbot: QtBot) -> None:
    """What is painted on hover is also reached by keyboard."""
    answer = _answer(view, CODE_ANSWER)
    messages = _list(view)
    menu = messages._row_menu(QPersistentModelIndex(view.model.index(0)), None)
    assert [action.text() for action in menu.actions()] == [
        "Copy",
        "Copy code (python)",
        "Regenerate",
        "Compare with the cache off…",
        "Race…",
        "Pin this run",
    ]
    regenerate, compare, race, pin = menu.actions()[-4:]
    with qtbot.waitSignal(view.regenerate_requested) as requested:
        regenerate.trigger()
    assert requested.args == [answer]
    with qtbot.waitSignal(view.compare_requested) as requested:
        compare.trigger()
    assert requested.args == [answer]
    with qtbot.waitSignal(view.action_requested) as requested:
        race.trigger()
    assert requested.args == [f"race:{answer}"]
    with qtbot.waitSignal(view.action_requested) as requested:
        pin.trigger()
    assert requested.args == [f"pin:{answer}"]
    menu.close()


def test_a_note_acts_and_opens(view: ChatView, qtbot: QtBot) -> None:
    """Its buttons ask for what they say; its figures are shown on demand, and by the menu too."""
    view.model.append_user("Hello")
    answer = _answer(view, "An answer.")
    actions = (ErrorAction("try:1", "Try INT8"), ErrorAction("try:2", "Use 2 threads"))
    view.model.set_note(answer, AnswerNote("decode", "Slow.", "Why.", ("A figure",), actions))
    with qtbot.waitSignal(view.action_requested) as asked:
        _click(qtbot, view, 1, Hit(Target.SUGGESTION, 1))
    assert asked.args == ["try:2"]
    before = _list(view).visualRect(view.model.index(1)).height()
    _click(qtbot, view, 1, Hit(Target.DETAILS))
    note = view.model.message(1).note
    assert note is not None
    assert note.is_open
    qtbot.waitUntil(lambda: _list(view).visualRect(view.model.index(1)).height() > before)
    content = _list(view).itemDelegate().content(view.model.index(1), 700)  # type: ignore[attr-defined]
    labels = [label for label, _ in row_entries(view.model.index(1), content, None)]
    assert labels[:3] == ["Try INT8", "Use 2 threads", "Less"]
    described = view.model.index(1).data(Qt.ItemDataRole.AccessibleDescriptionRole)
    assert described.endswith("Slow. Why. A figure")


def test_keys_copy_and_scroll(view: ChatView, qtbot: QtBot) -> None:
    """Arrows choose a row, Ctrl+C copies it, Home and End scroll."""
    _fill(view)
    messages = _list(view)
    messages.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.keyClick(messages, Qt.Key.Key_Up)
    qtbot.keyClick(messages, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == "Question 19"
    qtbot.keyClick(messages, Qt.Key.Key_Home)
    assert messages.verticalScrollBar().value() == 0
    assert not messages.following
    qtbot.keyClick(messages, Qt.Key.Key_End)
    assert messages.following


def _drag(qtbot: QtBot, view: ChatView, start: QPoint, end: QPoint) -> SelectionBrowser:
    viewport = _list(view).viewport()
    qtbot.mousePress(viewport, Qt.MouseButton.LeftButton, pos=start)
    browser = viewport.findChild(SelectionBrowser)
    qtbot.mouseMove(viewport, end)
    qtbot.mouseRelease(viewport, Qt.MouseButton.LeftButton, pos=end)
    return browser


def test_text_is_selected_with_the_mouse(view: ChatView, qtbot: QtBot) -> None:
    """Dragging over a text selects it natively, and Ctrl+C copies the selection."""
    _answer(view, "Some words to be selected")
    middle = _place(view, 0, Hit(Target.TEXT, 0))
    row = _list(view).visualRect(view.model.index(0))
    browser = _drag(qtbot, view, QPoint(28, middle.y()), QPoint(row.right() - 40, middle.y()))
    assert browser.textCursor().selectedText() == "Some words to be selected"
    qtbot.keyClick(browser, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == "Some words to be selected"


def test_the_selecting_widget_covers_its_text_exactly(view: ChatView, qtbot: QtBot) -> None:
    """Clicking into a text does not move a letter of it."""
    _answer(view, "words " * 60)
    QGuiApplication.processEvents()
    before = _list(view).grab().toImage()
    _click(qtbot, view, 0, Hit(Target.TEXT, 0))
    browser = _list(view).viewport().findChild(SelectionBrowser)
    assert browser.document().toPlainText().strip() == ("words " * 60).strip()
    assert browser.verticalScrollBar().maximum() == 0
    assert _list(view).grab().toImage().size() == before.size()
    assert abs(browser.document().size().height() - browser.height()) < 1


def test_a_selection_lives_through_the_stream(view: ChatView, qtbot: QtBot) -> None:
    """Text can be selected while more of it arrives; finishing or Esc ends the selection."""
    answer = view.model.begin_answer()
    view.model.append_text(answer, "First words")
    middle = _place(view, 0, Hit(Target.TEXT, 0))
    browser = _drag(qtbot, view, QPoint(28, middle.y()), QPoint(300, middle.y()))
    view.model.append_text(answer, " and more\nand more")
    qtbot.waitUntil(lambda: browser.toPlainText() == "First words and more\nand more")
    assert browser.textCursor().selectedText() == "First words"
    view.model.finish(answer, "done", None, None)
    qtbot.waitUntil(lambda: not _list(view).viewport().findChildren(SelectionBrowser))
    _click(qtbot, view, 0, Hit(Target.TEXT, 0))
    qtbot.keyClick(_list(view).viewport().findChild(SelectionBrowser), Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: not _list(view).viewport().findChildren(SelectionBrowser))


def test_a_link_opens_in_the_browser(
    view: ChatView, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A click on a link opens it; the mouse shows that it will."""
    opened: list[QUrl] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", opened.append)
    _answer(view, "[a link that is long](https://example.org/x)")
    position = QPoint(60, _place(view, 0, Hit(Target.TEXT, 0)).y())
    viewport = _list(view).viewport()
    qtbot.mouseMove(viewport, position)
    assert viewport.cursor().shape() == Qt.CursorShape.PointingHandCursor
    qtbot.mouseClick(viewport, Qt.MouseButton.LeftButton, pos=position)
    assert opened == [QUrl("https://example.org/x")]


def test_another_conversation_streams_on_unseen(view: ChatView, qtbot: QtBot) -> None:
    """A chat that is not on show keeps what arrives for it."""
    hidden, answer = view.model, view.model.begin_answer()
    shown = ChatModel(Chat.new(), view)
    view.set_model(shown)
    assert view.empty_state.isVisible()
    hidden.append_text(answer, "late text")
    view.set_model(hidden)
    content = _list(view)._delegate.content(hidden.index(0), 600)
    assert content.blocks[0].document.toPlainText() == "late text"


def test_a_theme_or_size_change_lays_out_anew(view: ChatView, qtbot: QtBot) -> None:
    """Larger text makes taller rows at once."""
    _answer(view, "words " * 50)
    messages = _list(view)
    before = messages.visualRect(view.model.index(0)).height()
    view.set_theme(load_theme("light", 1.5))
    qtbot.waitUntil(lambda: messages.visualRect(view.model.index(0)).height() > before)


@pytest.mark.parametrize("width", [480, 640, 1200])
def test_rows_are_as_high_as_they_are_painted(view: ChatView, qtbot: QtBot, width: int) -> None:
    """The list's row and the painted content agree at each width."""
    _answer(view, CODE_ANSWER)
    view.resize(width, 500)
    messages = _list(view)
    index = view.model.index(0)

    def agrees() -> bool:
        row = messages.visualRect(index)
        return row.height() == messages._delegate.content(index, row.width()).geometry.height

    qtbot.waitUntil(agrees)


def test_removing_a_row_closes_its_selection(view: ChatView, qtbot: QtBot) -> None:
    """Regenerating an answer in which text is selected leaves nothing behind to trip over."""
    answer = _answer(view, "Some words")
    for change in (lambda: view.model.remove_from(answer), lambda: view.model.set_chat(Chat.new())):
        _click(qtbot, view, 0, Hit(Target.TEXT, 0))
        change()
        assert _list(view)._delegate.browser is None
        _answer(view, "Some words")
        _click(qtbot, view, 0, Hit(Target.TEXT, 0))
        assert _list(view)._delegate.browser is not None
        _list(view).close_selection()


def test_any_order_of_events_keeps_the_rows_right(view: ChatView, qtbot: QtBot) -> None:
    """Random sends, streams, clicks, scrolls and sizes: no error, and true heights on screen."""
    chance = random.Random(7)
    messages, model = _list(view), view.model
    answers: list[str] = []

    def step() -> None:
        match chance.randrange(9):
            case 0:
                model.append_user("word " * chance.randrange(1, 80))
            case 1 if not answers:
                answers.append(model.begin_answer())
            case 2 | 3 if answers:
                model.append_text(answers[-1], chance.choice(["a ", "line\n", "```\nx = 1\n```\n"]))
            case 4 if answers:
                model.finish(answers.pop(), "done", AnswerStats(), None)
            case 5 if model.rowCount() > 12:
                row = model.rowCount() - chance.randrange(1, 4)
                answers.clear()
                model.remove_from(model.message(row).id)
            case 6:
                view.resize(chance.randrange(480, 900), chance.randrange(300, 700))
            case 7:
                bar = messages.verticalScrollBar()
                bar.setValue(chance.randrange(bar.maximum() + 1))
            case 8:
                place = QPoint(chance.randrange(messages.width()), chance.randrange(300))
                qtbot.mouseClick(messages.viewport(), Qt.MouseButton.LeftButton, pos=place)

    for _ in range(120):
        step()
        QGuiApplication.processEvents()
        for index in messages._visible_rows():
            row = messages.visualRect(index)
            assert row.height() == messages._delegate.content(index, row.width()).geometry.height
