"""What holds the machine back is said in words, and only while it does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pytestqt.qtbot import QtBot

from app.slowdown import slowdown_text
from app.status_line import StatusLine
from app.theme import load_theme
from engine.nvml.readings import SLOWDOWNS
from engine.power_state import PowerState
from engine.sensors import SensorSample
from tests.app.conftest import MakeProgram

SAMPLE = SensorSample(0, None, None, None, None, 1.0, 1)


@pytest.mark.parametrize(
    ("sample", "text"),
    [
        (SAMPLE, ""),
        (replace(SAMPLE, gpu_slowed_by=(), on_battery=True, power_saving=False), ""),
        (replace(SAMPLE, gpu_slowed_by=("heat", "power limit")), "GPU slowed: heat, power limit"),
        (replace(SAMPLE, power_saving=True), "Power saving is on"),
        (replace(SAMPLE, power_saving=True, on_battery=True), "Power saving, on battery"),
        (
            replace(SAMPLE, gpu_slowed_by=("heat",), power_saving=True),
            "GPU slowed: heat · Power saving is on",
        ),
    ],
)
def test_slowdown_in_words(sample: SensorSample, text: str) -> None:
    """A battery alone slows nothing; unknown states are not reported."""
    assert slowdown_text(sample) == text


@pytest.mark.parametrize("words", SLOWDOWNS.values())
def test_every_reason_can_be_said(words: str) -> None:
    """What the engine may report appears in the line."""
    assert words in slowdown_text(replace(SAMPLE, gpu_slowed_by=(words,)))


def test_status_line_shows_and_drops_it(qtbot: QtBot) -> None:
    """It comes with the first such reading and goes with the last."""
    status = StatusLine(load_theme("dark"))
    qtbot.addWidget(status)
    status.resize(1400, 24)
    status.show()
    assert not status.slowdown.isVisible()
    status.set_slowdown("Power saving is on")
    assert status.slowdown.isVisible()
    status.set_slowdown("")
    assert not status.slowdown.isVisible()


def test_sensors_reach_the_status_line(
    qtbot: QtBot, make_program: MakeProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a reading in the sampler's thread to the words in the window."""
    monkeypatch.setattr("engine.sensors.read_power_state", lambda: PowerState(True, True))
    program = make_program()
    program.window.telemetry.start()
    slowdown = program.window.status.slowdown
    qtbot.waitUntil(lambda: slowdown.text() == "Power saving, on battery")
    for width in (1280, 900):
        program.window.resize(width, 620)
        assert slowdown.isVisible()
