"""What nobody caught: into the log file, and told once to the window."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QTimer, qWarning
from pytestqt.exceptions import capture_exceptions
from pytestqt.qtbot import QtBot

from app.crash_log import CrashReporter, start_logging


@pytest.fixture
def reporter(qtbot: QtBot) -> Iterator[CrashReporter]:
    """An installed reporter; pytest's own hooks come back afterwards."""
    hook, thread_hook = sys.excepthook, threading.excepthook
    made = CrashReporter()
    made.install()
    yield made
    made.uninstall()
    sys.excepthook, threading.excepthook = hook, thread_hook


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[Path]:
    """Logging into a file, undone afterwards."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    file = start_logging(tmp_path / "log", debug=False)
    assert file is not None
    yield file
    for handler in set(root.handlers) - set(before):
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)


def test_exception_in_a_slot(
    qtbot: QtBot, reporter: CrashReporter, log_file: Path, expected_log: list[str]
) -> None:
    """A slot that raises does not end the program; the log has the traceback."""
    expected_log.append("uncaught exception")
    with qtbot.waitSignal(reporter.error_caught) as caught, capture_exceptions():
        reporter.install()
        QTimer.singleShot(0, lambda: 1 / 0)
    assert "ZeroDivisionError" in caught.args[0]
    assert "Traceback" in log_file.read_text()


def test_exception_in_a_thread(
    qtbot: QtBot, reporter: CrashReporter, log_file: Path, expected_log: list[str]
) -> None:
    """The same for a thread that is not Qt's."""
    expected_log.append("uncaught exception")

    def fail() -> None:
        raise RuntimeError("in the thread")

    with qtbot.waitSignal(reporter.error_caught) as caught:
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
    assert caught.args[0] == "RuntimeError: in the thread"


def test_qt_messages_reach_the_log(
    qtbot: QtBot, reporter: CrashReporter, log_file: Path, expected_log: list[str]
) -> None:
    """What Qt warns of is found in the same file."""
    expected_log.append("a warning of Qt")
    qWarning("a warning of Qt")
    assert "app.qt: a warning of Qt" in log_file.read_text()


def test_log_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """Without a log the program starts all the same."""
    (tmp_path / "file").write_text("")
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    assert start_logging(tmp_path / "file", debug=False) is None
    for handler in set(root.handlers) - set(before):
        root.removeHandler(handler)
    root.setLevel(level)
