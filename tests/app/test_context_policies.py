"""The chosen policy at the context limit: what is asked, and what the chat says is not seen."""

from __future__ import annotations

import pytest
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.chat.store import ChatMessage
from app.context_choice import ContextPolicyMenu, policy_effect
from app.draft_count import QUICK_CHARACTERS
from app.settings.schema import CONTEXT_POLICY
from engine.config import ContextPolicy, EngineConfig
from tests.app.conftest import MakeProgram
from tests.fakes.fake_session import Script
from tests.fakes.window import MODEL, FakeProgram, settle, wait_until

WORDS = "one two three four five six seven eight nine ten " * 8


def opened(make_program: MakeProgram, policy: ContextPolicy, context: int = 512) -> FakeProgram:
    """A window whose model has a short context."""
    program = make_program(Script(answer=WORDS))
    program.settings.set(CONTEXT_POLICY, policy)
    program.window.loading.load(EngineConfig(MODEL, context_length=context))
    wait_until(lambda: program.controller.model is not None and program.controller.loading is None)
    return program


def ask(program: FakeProgram, text: str) -> None:
    assert program.window.conversations.send(text)
    wait_until(lambda: not program.window.conversations.generating_chats())


def rows(program: FakeProgram) -> list[ChatMessage]:
    return program.window.conversations.current.chat.messages


def divider(program: FakeProgram) -> ChatMessage | None:
    return next((m for m in rows(program) if m.role == "divider"), None)


def test_stopping_leaves_nothing_out(qtbot: QtBot, make_program: MakeProgram) -> None:
    """The default: the answer ends with its card, and no divider appears."""
    program = opened(make_program, "stop", 128)
    assert CONTEXT_POLICY.default == "stop"
    ask(program, WORDS)
    assert program.session.requests[-1].on_context_full == "stop"
    assert [m.role for m in rows(program)] == ["user", "assistant", "error"]
    assert divider(program) is None


def test_old_turns_are_marked(qtbot: QtBot, make_program: MakeProgram) -> None:
    """The divider stands above the first turn that is still seen and moves on with the chat."""
    program = opened(make_program, "drop_turns", 384)
    for number in range(4):
        ask(program, f"question {number}")
    line = divider(program)
    assert line is not None
    above = rows(program).index(line)
    assert above in (2, 4)
    assert line.text == f"The model no longer sees the {above} messages above"
    assert "system prompt stays" in line.why
    assert len(rows(program)) == 9, "every turn is still in the chat"
    ask(program, "question 4")
    assert divider(program) is not None
    assert rows(program).index(divider(program) or line) > above
    assert [m.text for m in rows(program) if m.role == "user"] == [
        f"question {n}" for n in range(5)
    ]


def test_the_divider_goes_when_all_is_seen_again(qtbot: QtBot, make_program: MakeProgram) -> None:
    """After a load with a longer context the next answer sees the whole chat."""
    program = opened(make_program, "drop_turns", 256)
    for number in range(3):
        ask(program, f"question {number}")
    assert divider(program) is not None
    program.window.loading.load(EngineConfig(MODEL, context_length=8192))
    wait_until(lambda: (program.controller.model or program).config.context_length == 8192)  # type: ignore[union-attr]
    ask(program, "and now?")
    assert divider(program) is None


def test_a_sliding_answer_goes_on_and_says_so(qtbot: QtBot, make_program: MakeProgram) -> None:
    """The answer is whole; the divider's tooltip tells the tokens, the gauge what is left."""
    program = opened(make_program, "slide", 64)
    ask(program, "why?")
    question, line, answer = rows(program)
    assert (question.role, line.role, answer.text) == ("user", "divider", WORDS)
    gone = "the message above and part of the next"
    assert line.text == f"The model no longer sees {gone}"
    assert "first 16 tokens and the latest 32" in line.why
    gauge = program.window.composer._gauge
    assert int(gauge._numbers.text().split(" ")[0]) < 64
    trace = program.window.telemetry.model.selected
    assert trace is not None
    assert trace.slid_rows
    assert answer.token_ids is not None
    assert len(answer.token_ids) == len(trace.tokens)


def test_the_menu_chooses_and_follows(qtbot: QtBot, make_program: MakeProgram) -> None:
    """A choice is kept, a change elsewhere moves the mark; the gauge's tooltip tells the effect."""
    program = opened(make_program, "stop")
    [menu] = program.window.findChildren(ContextPolicyMenu)
    actions = {action.data(): action for action in menu.actions()}
    assert [policy for policy, each in actions.items() if each.isChecked()] == ["stop"]
    gauge = program.window.composer._gauge
    for policy in ("slide", "drop_turns"):
        actions[policy].trigger()
        assert program.settings.get(CONTEXT_POLICY) == policy
        assert gauge.toolTip().endswith(policy_effect(policy))
    program.settings.set(CONTEXT_POLICY, "stop")
    assert actions["stop"].isChecked()
    menus = [m for m in (program.window.menus._fills) if menu.menuAction() in m[0].actions()]
    assert len(menus) == 2, "under the Cache menu and under the toolbar's Context"


def test_the_gauge_follows_the_draft(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Typing counts, sending ends it; the fake counts a word as a token."""
    program = opened(make_program, "stop")
    gauge = program.window.composer._gauge
    QTest.keyClicks(program.window.composer.focusProxy(), "one two three")
    wait_until(lambda: gauge._numbers.text() == "3 / 512")
    program.window.composer.clear()
    assert gauge._numbers.text() == "0 / 512"


def test_a_long_draft_waits_for_the_answer(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Counting it would hold the engine's thread, so it is counted once the answer is there."""
    program = opened(make_program, "stop")
    program.session.script.hold_decode_at = 5
    gauge = program.window.composer._gauge
    assert program.window.conversations.send("why?")
    wait_until(lambda: gauge._numbers.text() == "15 / 512")
    words = QUICK_CHARACTERS // 5 + 1
    program.window.composer.set_text(" word" * words)
    settle(50)
    assert gauge._numbers.text() == "15 / 512"
    program.session.release()
    wait_until(lambda: f"Your draft adds {words:,}." in gauge.toolTip())


@pytest.mark.parametrize("policy", ["stop", "drop_turns"])
def test_a_full_context_says_what_comes_next(
    qtbot: QtBot, make_program: MakeProgram, policy: ContextPolicy
) -> None:
    """The card's advice is that of the policy."""
    program = opened(make_program, policy, 128)
    ask(program, WORDS)
    [card] = [m for m in rows(program) if m.role == "error"]
    assert ("oldest turns" in card.next_step) == (policy == "drop_turns")
