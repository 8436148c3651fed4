"""The states of the explanations: three steps, in both languages, and a cached prefix."""

from __future__ import annotations

from collections.abc import Callable

from app.explained.story import Step
from app.explained.texts import Language
from app.settings.schema import EXPLAIN, EXPLAIN_LANGUAGE
from tests.fakes.window import FakeProgram, wait_until

FIRST_QUESTION = (
    "Explain how a language model answers me. What is a KV cache, and why does it grow with every "
    "token? Where does the time before the first word go, and what decides how fast the words "
    "come after it? Please keep to plain words, and give an example with figures. 缓存是什么？"
)
QUESTION = "And why is the first token slow and the rest fast?"


def at_step(step: Step, language: Language) -> Callable[[FakeProgram], None]:
    """An answer under way, and the card of this step."""

    def take_steps(program: FakeProgram) -> None:
        program.load()
        program.settings.set(EXPLAIN_LANGUAGE, language)
        program.settings.set(EXPLAIN, True)
        program.session.script.hold_decode_at = 48
        assert program.window.conversations.send(FIRST_QUESTION)
        program.sample(96.0)
        _wait_for_tokens(program, 48)
        _turn_to(program, step)

    return take_steps


def cached(program: FakeProgram) -> None:
    """The second turn, most of whose prompt the cache had; turned to after the end."""
    program.load()
    for question in (FIRST_QUESTION, QUESTION):
        assert program.window.conversations.send(question)
        wait_until(lambda: not program.controller.active_requests)
        program.sample(90.0)
    program.settings.set(EXPLAIN_LANGUAGE, "en")
    program.settings.set(EXPLAIN, True)
    _turn_to(program, Step.PREFILL)


def _turn_to(program: FakeProgram, step: Step) -> None:
    overlay = program.window.explained.overlay
    assert overlay is not None
    while overlay.reading is None or overlay.reading.shown < step:
        overlay.card.next_pressed.emit()


def _wait_for_tokens(program: FakeProgram, tokens: int) -> None:
    def there() -> bool:
        trace = program.window.telemetry.model.selected
        return trace is not None and len(trace.tokens) >= tokens

    wait_until(there)
