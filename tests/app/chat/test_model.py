"""The list model of a conversation: rows, roles and signals."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtCore import Qt
from pytestqt.modeltest import ModelTester
from pytestqt.qtbot import QtBot

from app.chat.model import ChatModel, ChatRole
from app.chat.store import AnswerStats, Chat, ErrorAction


@pytest.fixture
def model(qtbot: QtBot) -> ChatModel:
    return ChatModel(Chat.new())


def _value(model: ChatModel, row: int, role: int) -> Any:
    return model.data(model.index(row), role)


def test_the_model_keeps_qts_rules(model: ChatModel, qtmodeltester: ModelTester) -> None:
    """Qt's own model tester finds nothing, through a whole conversation."""
    qtmodeltester.check(model)
    model.append_user("Hi")
    answer = model.begin_answer()
    model.append_text(answer, "Hello")
    model.finish(answer, "done", AnswerStats(), (1, 2))
    model.append_error("What.", "Why.", "Next.", [ErrorAction("retry", "Try again")])
    model.remove_from(answer)
    model.set_chat(Chat.new())
    qtmodeltester.check(model)


def test_text_arrives_in_pieces_and_names_its_roles(model: ChatModel, qtbot: QtBot) -> None:
    """A piece of text changes the text and the revision of one row, and says so."""
    model.append_user("Hi")
    answer = model.begin_answer()
    revision = _value(model, 1, ChatRole.REVISION)
    with qtbot.waitSignal(model.dataChanged) as changed:
        model.append_text(answer, "Hel")
    assert changed.args is not None
    assert changed.args[0].row() == changed.args[1].row() == 1
    assert set(changed.args[2]) == {int(ChatRole.TEXT), int(ChatRole.REVISION)}
    model.append_text(answer, "lo")
    assert _value(model, 1, ChatRole.TEXT) == "Hello"
    assert _value(model, 1, ChatRole.REVISION) == revision + 2


def test_finish_keeps_figures_and_token_ids(model: ChatModel, qtbot: QtBot) -> None:
    """What the engine measured and sampled is kept with the answer, and worth saving."""
    answer = model.begin_answer()
    model.set_progress(answer, "Reading the prompt, 39 %")
    assert _value(model, 0, ChatRole.PROGRESS) == "Reading the prompt, 39 %"
    stats = AnswerStats(ttft_ms=182.0)
    with qtbot.waitSignal(model.chat_changed):
        model.finish(answer, "stopped", stats, (5, 6))
    assert _value(model, 0, ChatRole.STATE) == "stopped"
    assert _value(model, 0, ChatRole.STATS) == stats
    assert _value(model, 0, ChatRole.PROGRESS) == ""
    assert model.chat.messages[0].token_ids == (5, 6)


def test_remove_from_drops_the_tail(model: ChatModel) -> None:
    """Regenerating removes the answer and what followed, and keeps the question."""
    model.append_user("one")
    answer = model.begin_answer()
    model.append_notice("note")
    model.remove_from(answer)
    assert [message.text for message in model.chat.messages] == ["one"]
    with pytest.raises(KeyError):
        model.append_text(answer, "late")


def test_screen_readers_hear_who_speaks(model: ChatModel) -> None:
    """The accessible text is words, with the speaker, not an object's name."""
    model.append_user("Hi")
    model.append_error("It failed.", "No memory.", "Load less.", [])
    role = Qt.ItemDataRole.AccessibleTextRole
    assert _value(model, 0, role) == "You: Hi"
    assert _value(model, 1, role) == "Error: It failed. No memory. Load less."
    model.finish(model.begin_answer(), "done", AnswerStats(completion_tokens=7), None)
    assert _value(model, 2, Qt.ItemDataRole.AccessibleDescriptionRole) == "7 tokens"


def test_the_first_user_message_names_the_chat(model: ChatModel) -> None:
    """A chat made by sending gets its title at once."""
    model.append_user("Why is the first token slow?")
    assert model.chat.title == "Why is the first token slow?"


def test_one_divider_moves_through_the_chat(
    model: ChatModel, qtmodeltester: ModelTester, qtbot: QtBot
) -> None:
    """It stands before a message, is there once, has a tooltip, and goes without a trace."""
    qtmodeltester.check(model)
    model.append_user("one")
    first = model.begin_answer()
    second = model.append_user("two")
    model.show_divider(first, "gone", "because")
    assert [m.role for m in model.chat.messages] == ["user", "divider", "assistant", "user"]
    assert _value(model, 1, Qt.ItemDataRole.ToolTipRole) == "because"
    with qtbot.waitSignal(model.dataChanged):
        model.show_divider(first, "more is gone", "because")
    model.show_divider(second, "even more", "because")
    assert [m.text for m in model.chat.messages] == ["one", "", "even more", "two"]
    model.remove_divider()
    model.remove_divider()
    assert [m.role for m in model.chat.messages] == ["user", "assistant", "user"]
