"""What stands under an answer about its speed, and what its buttons do."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from app.chat.store import AnswerNote, ChatMessage
from engine.config import EngineConfig
from engine.session import EngineError
from tests.app.conftest import MakeProgram
from tests.fakes.fake_session import Script
from tests.fakes.window import MODEL, FakeProgram, wait_until

WORDS = "one two three four five six seven eight nine ten " * 8


def messages(program: FakeProgram) -> list[ChatMessage]:
    return program.window.conversations.current.chat.messages


def ask(program: FakeProgram, text: str = "Why?") -> AnswerNote:
    """Ask and wait for what is said about the answer."""
    assert program.window.conversations.send(text)
    wait_until(lambda: not program.window.conversations.generating_chats())
    wait_until(lambda: messages(program)[-1].note is not None)
    note = messages(program)[-1].note
    assert note is not None
    return note


def load(program: FakeProgram, **config: object) -> None:
    program.window.loading.load(EngineConfig(MODEL, **config))  # type: ignore[arg-type]
    wait_until(lambda: program.controller.model is not None and program.controller.loading is None)


def press(program: FakeProgram, note: AnswerNote, label: str) -> None:
    """Press a note's button and wait until the model is loaded so."""
    before = program.controller.model
    action = next(each for each in note.actions if each.label == label)
    program.window.chat_view.action_requested.emit(action.id)
    wait_until(lambda: program.controller.model not in (None, before))


def slow_stream(make_program: MakeProgram) -> FakeProgram:
    """FP32 on one thread of a machine with little bandwidth."""
    program = make_program(Script(answer=WORDS, itl_ms=95.0, bandwidth=6e9))
    load(program, weight_format="fp32", threads=1)
    return program


def test_a_fast_answer_says_what_limits_it(qtbot: QtBot, make_program: MakeProgram) -> None:
    """It is called fast, and the figures of its sentence are those of the answer."""
    program = make_program()
    program.load()
    note = ask(program)
    assert note.headline == "Fast. Streaming is limited by memory bandwidth."
    assert "Each token reads" in note.text
    assert note.tone == "decode"


def test_a_long_prompt_is_slow_to_start(qtbot: QtBot, make_program: MakeProgram) -> None:
    """4,000 tokens read slowly and a short answer."""
    program = make_program(Script(answer="Yes.", prefill_tok_s=300.0, matmul_flops=120e9))
    load(program, context_length=8192)
    note = ask(program, "one two three four five " * 800)
    assert note.headline.startswith("Slow to start")
    assert "4,009 tokens of the prompt were computed, 0 came from the cache" in note.text
    assert note.tone == "prefill"


def test_wide_weights_are_slow_to_stream(qtbot: QtBot, make_program: MakeProgram) -> None:
    """The sentence has bytes, gain and quality; the buttons say what they do."""
    program = slow_stream(make_program)
    note = ask(program)
    assert note.headline == "Slow to stream: each token reads all the weights."
    assert "INT8 would read 0." in note.text
    assert "x faster, quality not measured here." in note.text
    assert "Try INT8" in [each.label for each in note.actions]


def test_a_suggestion_is_applied_and_measured(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Pressed, it is loaded; the next answer says what was predicted and what was measured."""
    program = slow_stream(make_program)
    note = ask(program)
    answer = messages(program)[-1]
    press(program, note, "Try INT8")
    assert program.session.loads[-1].weight_format == "int8"
    assert answer.note is not None
    assert "tok/s predicted" in answer.note.text
    assert answer.note.actions == ()
    program.session.script.itl_ms = 33.0
    after = ask(program)
    assert after.text.startswith("INT8: 10.")
    assert "31.9 predicted, " in after.text
    assert "tok/s measured." in after.text
    assert answer.note is None
    assert " predicted, " not in ask(program).text


def test_another_change_drops_the_prediction(qtbot: QtBot, make_program: MakeProgram) -> None:
    """What is measured with something else is not held against it."""
    program = slow_stream(make_program)
    press(program, ask(program), "Try INT8")
    load(program, weight_format="bf16", threads=1)
    assert " measured." not in ask(program).text


def test_buttons_go_with_their_model(qtbot: QtBot, make_program: MakeProgram) -> None:
    """A suggestion for one model is not offered for the next."""
    program = slow_stream(make_program)
    assert ask(program).actions
    answer = messages(program)[-1]
    load(program, weight_format="bf16", threads=1)
    assert answer.note is not None
    assert answer.note.actions == ()


def test_loading_is_told_apart_once(qtbot: QtBot, make_program: MakeProgram) -> None:
    """The first answer of a load says what loading took, the second does not."""
    program = make_program()
    program.load()
    assert any("Loading took 900 ms" in line for line in ask(program).details)
    assert not any("Loading took" in line for line in ask(program).details)


def test_busy_and_idle_at_once_is_explained(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Utilization near 100 % beside an MFU of 7 %: waiting for memory counts as busy."""
    program = make_program(Script(hold_decode_at=30))
    program.load()
    assert program.window.conversations.send("Why?")
    trace = program.window.telemetry.model.selected
    assert trace is not None
    wait_until(lambda: len(trace.tokens) >= 30)
    program.sample(96.0)
    program.session.release()
    wait_until(lambda: messages(program)[-1].note is not None)
    note = messages(program)[-1].note
    assert note is not None
    assert any("busy: a core that waits for memory" in line for line in note.details)


def test_company_is_told(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Two chats at once: each is told that the other took part of its time."""
    program = make_program(Script(answer=WORDS, itl_ms=60.0, hold_decode_at=2))
    program.load()
    chats = program.window.conversations
    assert chats.send("First")
    first = chats.current
    wait_until(lambda: bool(first.chat.messages[-1].text))
    chats.new_chat()
    assert chats.send("Second")
    wait_until(lambda: len(messages(program)) == 2 and bool(messages(program)[-1].text))
    program.session.release()
    wait_until(lambda: messages(program)[-1].note is not None)
    note = messages(program)[-1].note
    assert note is not None
    assert note.headline == "Slow to stream: other chats ran in the same steps."
    assert note.actions == ()


def test_what_cannot_be_read_leaves_the_verdict(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Without sizes there is a verdict, and nothing to try."""
    program = make_program(Script(answer=WORDS, itl_ms=95.0))
    load(program)
    program.session.script.bad_paths[MODEL] = EngineError("Gone.", "Moved.", "Look.")
    note = ask(program)
    assert note.headline.startswith("Slow to stream")
    assert note.actions == ()


def test_the_newest_answer_has_it(qtbot: QtBot, make_program: MakeProgram) -> None:
    """One note a chat; it is not saved, nor copied with the chat."""
    program = make_program()
    program.load()
    ask(program)
    ask(program)
    assert [m.note is not None for m in messages(program)] == [False, False, False, True]
    program.window.conversations.regenerate(messages(program)[1].id)
    assert messages(program)[0].note is None


@pytest.mark.parametrize("gone", ["regenerate", "delete"])
def test_an_answer_that_went_is_left_alone(
    qtbot: QtBot, make_program: MakeProgram, gone: str
) -> None:
    """Made anew or deleted, its buttons have nowhere to be, and nothing breaks."""
    program = make_program()
    program.load()
    note = ask(program)
    chats = program.window.conversations
    if gone == "regenerate":
        program.window.actions_table["chat.regenerate"].trigger()
    else:
        chats.delete(chats.current.chat.id)
    for action in note.actions:
        program.window.chat_view.action_requested.emit(action.id)
    wait_until(lambda: not chats.generating_chats())
