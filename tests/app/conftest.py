"""Windows over fake sessions, closed again after each test; stand-ins for their commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication

from app.appearance import ThemeChoice
from tests.fakes.fake_session import Script
from tests.fakes.window import FakeProgram

MakeProgram = Callable[..., FakeProgram]
Play = Callable[[str], None]


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


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Let another program take the command's place: `play(its source)`."""

    def play_(source: str) -> None:
        script = tmp_path / "command.py"
        script.write_text(f"import json, sys\n{source}", encoding="utf-8")
        command = [sys.executable, str(script)]
        monkeypatch.setattr("app.command_job.own_command", lambda: command)

    return play_
