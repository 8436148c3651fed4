"""Windows over fake sessions, closed again after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from PySide6.QtWidgets import QApplication

from app.appearance import ThemeChoice
from tests.fakes.fake_session import Script
from tests.fakes.window import FakeProgram

MakeProgram = Callable[..., FakeProgram]


@pytest.fixture
def make_program(qapp: QApplication) -> Iterator[MakeProgram]:
    """Show a window over a fake session; `make_program(script, width, height)`."""
    programs: list[FakeProgram] = []

    def make(
        script: Script | None = None,
        width: int = 1440,
        height: int = 900,
        theme: ThemeChoice = "dark",
    ) -> FakeProgram:
        program = FakeProgram(qapp, script or Script(), theme)
        programs.append(program)
        program.show(width, height)
        return program

    yield make
    for program in programs:
        program.close()
    qapp.setStyleSheet("")
