"""The line on stderr: written over on a terminal, silent elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from engine.progress_line import ProgressLine


class _Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_shorter_state_leaves_nothing_of_a_longer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Padded to what stood there; cleared at the end."""
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with ProgressLine() as line:
        line.show("layer 10 of 10")
        line.show("done")
    assert terminal.getvalue() == "\rlayer 10 of 10\rdone          \r    \r"


def test_a_pipe_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What scripts read there is only failures."""
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    with ProgressLine() as line:
        line.show("layer 1 of 10")
    assert pipe.getvalue() == ""
