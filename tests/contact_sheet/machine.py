"""A run that the machine held up: what the sensors showed stands under the answer."""

from __future__ import annotations

from engine.config import EngineConfig
from tests.fakes.fake_session import Script
from tests.fakes.window import MODEL, FakeProgram, wait_until

HELD_UP = Script(
    answer="Because every token reads all the weights anew, and something else reads along. " * 3,
    itl_ms=190.0,
    bandwidth=6e9,
    hold_decode_at=20,
)


def held_up(program: FakeProgram) -> None:
    """Half the pace that bytes allow, beside other programs and with power saving on."""
    config = EngineConfig(MODEL, weight_format="fp32", threads=1)
    program.window.loading.load(config)
    wait_until(lambda: program.controller.model is not None)
    chat = program.window.conversations.current
    assert program.window.conversations.send("Why is it so slow today?")
    wait_until(lambda: bool(chat.chat.messages[-1].text))
    for others_pct in (58.0, 66.0):
        program.sample(34.0, others_cpu_pct=others_pct, power_saving=True, on_battery=True)
    program.session.release()
    wait_until(lambda: chat.chat.messages[-1].note is not None)
    chat.toggle_note(chat.chat.messages[-1].id)
