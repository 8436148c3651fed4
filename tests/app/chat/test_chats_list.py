"""The list of chats: groups, search, selection, rename, delete and undo."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QLineEdit, QPushButton
from pytestqt.modeltest import ModelTester
from pytestqt.qtbot import QtBot

from app.chat.chat_rows import PACE_ROLE, ChatRowsModel, Group, group_of, grouped_rows
from app.chat.chats_list import ChatsList
from app.chat.store import Chat
from app.theme import Theme

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")

TODAY = date(2026, 3, 10)


def _chat(title: str, days_ago: int = 0) -> Chat:
    moment = datetime.now(UTC) - timedelta(days=days_ago)
    return Chat(f"id{title}", title, moment, moment)


@pytest.fixture
def chats(qtbot: QtBot, theme: Theme) -> ChatsList:
    chats = ChatsList(theme)
    qtbot.addWidget(chats)
    chats.resize(220, 500)
    chats.set_chats([_chat("Quicksort"), _chat("KV cache", 3), _chat("Letter", 40)])
    chats.show()
    return chats


def _titles(chats: ChatsList) -> list[str]:
    return [str(chats._rows.index(row).data()) for row in range(chats._rows.rowCount())]


def _click(qtbot: QtBot, chats: ChatsList, row: int) -> None:
    rect = chats._list.visualRect(chats._rows.index(row))
    viewport = chats._list.viewport()
    qtbot.mouseClick(viewport, Qt.MouseButton.LeftButton, pos=rect.center())


def test_chats_stand_under_their_days(chats: ChatsList) -> None:
    """Headings name how long ago a chat was used."""
    assert _titles(chats) == ["Today", "Quicksort", "Last week", "KV cache", "Earlier", "Letter"]


@pytest.mark.parametrize(
    ("days", "group"),
    [
        (-1, Group.TODAY),
        (0, Group.TODAY),
        (1, Group.YESTERDAY),
        (2, Group.LAST_WEEK),
        (7, Group.LAST_WEEK),
        (8, Group.EARLIER),
    ],
)
def test_groups(days: int, group: Group) -> None:
    """The borders between the groups are whole days."""
    assert group_of(TODAY - timedelta(days=days), TODAY) is group


@given(st.lists(st.tuples(st.text(max_size=9), st.integers(0, 30)), max_size=12), st.text())
def test_every_matching_chat_is_shown_once(used: list[tuple[str, int]], search: str) -> None:
    """No chat is lost or doubled, no heading is empty, the newest is first."""
    chats = [_chat(f"{number}{title}", days) for number, (title, days) in enumerate(used)]
    rows = grouped_rows(chats, search, datetime.now().date())
    shown = [row.chat_id for row in rows if not row.is_heading]
    wanted = search.casefold().strip()
    expected = sorted(chats, key=lambda chat: chat.updated_at, reverse=True)
    assert shown == [chat.id for chat in expected if wanted in chat.title.casefold()]
    assert not rows or not rows[-1].is_heading
    assert not any(one.is_heading and two.is_heading for one, two in pairwise(rows))
    assert len({row.text for row in rows if row.is_heading}) == sum(r.is_heading for r in rows)


def test_the_model_keeps_qts_rules(qtmodeltester: ModelTester) -> None:
    """Qt's own model tester finds nothing."""
    model = ChatRowsModel()
    model.set_rows(grouped_rows([_chat("a"), _chat("b", 3)], "", date.today()))
    qtmodeltester.check(model)


def test_a_click_selects_a_chat_and_a_heading_does_not(chats: ChatsList, qtbot: QtBot) -> None:
    """Only chats can be selected, and each once."""
    with qtbot.waitSignal(chats.chat_selected) as selected:
        _click(qtbot, chats, 3)
    assert selected.args == ["idKV cache"]
    with qtbot.assertNotEmitted(chats.chat_selected):
        _click(qtbot, chats, 2)
        _click(qtbot, chats, 3)


def test_search_narrows_the_list(chats: ChatsList, qtbot: QtBot) -> None:
    """Typing filters titles without regard to case and says when nothing is left."""
    qtbot.keyClicks(chats._search, "kv")
    assert _titles(chats) == ["Last week", "KV cache"]
    qtbot.keyClicks(chats._search, "zz")
    assert chats._nothing.isVisible()
    chats._search.clear()
    assert len(_titles(chats)) == 6


def test_the_current_chat_stays_marked(chats: ChatsList) -> None:
    """Renewing the list, as each autosave does, keeps the mark, and asks for nothing."""
    chats.set_current("idLetter")
    chats.set_chats([_chat("New one"), _chat("Letter")])
    assert chats._list.currentIndex().data() == "Letter"
    chats.set_chats([_chat("New one")])
    assert not chats._list.currentIndex().isValid()


def test_rename_in_the_row(chats: ChatsList, qtbot: QtBot) -> None:
    """F2 opens the title in its row; Enter asks for the new one."""
    chats.set_current("idQuicksort")
    qtbot.keyClick(chats._list, Qt.Key.Key_F2)
    editor = chats._list.viewport().findChild(QLineEdit)
    assert editor.text() == "Quicksort"
    editor.setText("  Sorting\tin Python ")
    with qtbot.waitSignal(chats.rename_requested) as renamed:
        qtbot.keyClick(editor, Qt.Key.Key_Return)
    assert renamed.args == ["idQuicksort", "Sorting in Python"]


def test_renewing_the_list_leaves_an_open_title_alone(chats: ChatsList, qtbot: QtBot) -> None:
    """An answer that ends elsewhere while one renames takes nothing away."""
    chats.set_current("idQuicksort")
    chats.rename_current()
    editor = chats._list.viewport().findChild(QLineEdit)
    editor.setText("Half a ti")
    chats.set_chats([_chat("Quicksort"), _chat("Another")])
    assert chats._list.viewport().findChild(QLineEdit) is editor
    qtbot.keyClick(editor, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: "Another" in _titles(chats))


def test_an_unchanged_or_empty_title_asks_for_nothing(chats: ChatsList, qtbot: QtBot) -> None:
    """A chat cannot lose its title by accident."""
    index = chats._rows.index_of("idQuicksort")
    with qtbot.assertNotEmitted(chats.rename_requested):
        assert not chats._rows.setData(index, "  ")
        assert not chats._rows.setData(index, "Quicksort")


def test_delete_offers_a_way_back(chats: ChatsList, qtbot: QtBot) -> None:
    """Del deletes at once, without a question, and Undo asks the chat back."""
    chats.set_current("idKV cache")
    with qtbot.waitSignal(chats.delete_requested) as deleted:
        qtbot.keyClick(chats._list, Qt.Key.Key_Delete)
    assert deleted.args == ["idKV cache"]
    assert chats._undo_bar.isVisible()
    assert chats._undo_text.accessibleName() == "Deleted “KV cache”"
    with qtbot.waitSignal(chats.undo_delete_requested):
        qtbot.mouseClick(chats._undo, Qt.MouseButton.LeftButton)
    assert not chats._undo_bar.isVisible()


def test_the_way_back_closes_after_a_while(chats: ChatsList, qtbot: QtBot) -> None:
    """The undo bar goes by itself."""
    chats._undo_timer.setInterval(10)
    chats.set_current("idLetter")
    chats.delete_current()
    qtbot.waitUntil(lambda: not chats._undo_bar.isVisible())


def test_new_chat(chats: ChatsList, qtbot: QtBot) -> None:
    """The button asks for a new chat; an empty one is called so."""
    button = next(b for b in chats.findChildren(QPushButton) if b.text() == "+ New chat")
    with qtbot.waitSignal(chats.new_requested):
        qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    chats.set_chats([_chat("")])
    assert _titles(chats) == ["Today", "New chat"]


def test_an_answer_under_way_shows_its_pace_and_can_be_stopped(
    qtbot: QtBot, chats: ChatsList
) -> None:
    """The square at the right end stops that chat's answer and does not open the chat."""
    chats.set_current("idQuicksort")
    chats.set_paces({"idKV cache": "58.1 tok/s"})
    row = _titles(chats).index("KV cache")
    index = chats._rows.index(row)
    assert index.data(PACE_ROLE) == "58.1 tok/s"
    rect = chats._list.visualRect(index)
    opened: list[str] = []
    chats.chat_selected.connect(opened.append)
    with qtbot.waitSignal(chats.stop_requested) as stopped:
        qtbot.mouseClick(
            chats._list.viewport(),
            Qt.MouseButton.LeftButton,
            pos=QPoint(rect.right() - 12, rect.center().y()),
        )
    assert stopped.args == ["idKV cache"]
    assert opened == []
    assert chats._list.currentIndex().data() == "Quicksort"
    _click(qtbot, chats, row)
    assert opened == ["idKV cache"]
    chats.set_paces({})
    assert index.data(PACE_ROLE) is None
