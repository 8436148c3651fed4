"""The panels' fixtures: a standing clock, a model on it, the dark theme with its fonts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.appearance import register_fonts
from app.telemetry.telemetry_model import TelemetryModel
from app.theme import Theme, load_theme
from tests.app.telemetry.story import Clock


@pytest.fixture
def clock() -> Clock:
    """The engine's clock, standing at one second."""
    return Clock()


@pytest.fixture
def model(qtbot: QtBot, clock: Clock) -> Iterator[TelemetryModel]:
    """An empty model; its timers end with the test."""
    model = TelemetryModel(clock)
    yield model
    model.select(None)
    model.deleteLater()


@pytest.fixture(scope="session", autouse=True)
def bundled_fonts(qapp: QApplication) -> None:
    """Widths are those of the fonts the program ships."""
    register_fonts()


@pytest.fixture
def theme() -> Theme:
    """The dark colour set."""
    return load_theme("dark")
