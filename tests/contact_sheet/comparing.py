"""Pinned runs side by side: what a person sees before, with two of them, and with six."""

from __future__ import annotations

from engine.config import EngineConfig
from tests.fakes.fake_session import Script
from tests.fakes.window import MODEL, FakeProgram, settle, wait_until

QUESTION = "Why is the first token slow and the rest fast?"
PACES = {"fp32": 21.0, "bf16": 12.1, "fp16": 12.6, "int8": 9.6, "int4": 6.4, "as-stored": 7.1}
SCRIPT = Script(itl_ms_as=PACES)


def pin(program: FakeProgram, weights: str, question: str = QUESTION) -> None:
    """Ask in a new chat of the model in this format, and pin the answer's run."""
    window = program.window
    window.loading.load(EngineConfig(MODEL, weight_format=weights))
    wait_until(lambda: program.controller.model is not None and program.controller.loading is None)
    window.conversations.new_chat()
    assert window.conversations.send(question)
    wait_until(lambda: not program.controller.active_requests)
    window.actions_table["chat.pin"].trigger()


def empty(program: FakeProgram) -> None:
    """Nothing is pinned: the window says how it is done."""
    program.load()
    program.window.instruments.pinned.open()
    settle(50)


def two(program: FakeProgram) -> None:
    """The same prompt in two formats."""
    pin(program, "int8")
    pin(program, "int4")
    program.window.instruments.pinned.open()
    settle(50)


def six(program: FakeProgram) -> None:
    """As many as there can be, one of another prompt."""
    for weights in PACES:
        pin(program, weights, "What is a block table?" if weights == "fp16" else QUESTION)
    pinned = program.window.instruments.pinned
    pinned.open().choose([run.id for run in reversed(pinned.pins.runs)])
    settle(50)
