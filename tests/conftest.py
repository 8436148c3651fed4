"""What every test gets: no screen, own folders, fresh seeds, and no leftovers afterwards."""

from __future__ import annotations

import logging
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")


@pytest.fixture(autouse=True)
def isolated_home(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Settings, chats and logs of a test lie in a folder of its own."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("PHASESCOPE_HOME", str(home))
    return home


@pytest.fixture(autouse=True)
def fresh_seeds() -> None:
    """Every test starts from the same random state, whatever ran before."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


class _Stray(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name}: {record.getMessage()}")


@pytest.fixture
def expected_log() -> list[str]:
    """Texts of warnings that the test provokes; each must occur, others still fail it."""
    return []


@pytest.fixture(autouse=True)
def no_stray_logs(request: pytest.FixtureRequest, expected_log: list[str]) -> Iterator[None]:
    """A warning or error in the log fails the test, unless it looks at the log itself."""
    if "caplog" in request.fixturenames:
        yield
        return
    handler = _Stray()
    root = logging.getLogger()
    root.addHandler(handler)
    yield
    root.removeHandler(handler)
    stray = [line for line in handler.lines if not any(text in line for text in expected_log)]
    missing = [text for text in expected_log if not any(text in line for line in handler.lines)]
    assert not stray, f"unexpected log records: {stray}"
    assert not missing, f"expected log records did not come: {missing}"


@pytest.fixture(autouse=True)
def no_dangling_qt(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """A test that uses Qt leaves no running thread, no active timer and no window behind."""
    if not {"qapp", "qtbot", "qtmodeltester"} & set(request.fixturenames):
        yield
        return
    from PySide6.QtCore import QThread, QTimer

    threads = _record_starts(QThread, monkeypatch)
    timers = _record_starts(QTimer, monkeypatch)
    yield
    _settle()
    from PySide6.QtWidgets import QApplication
    from shiboken6 import isValid

    running = [t for t in threads if isValid(t) and t.isRunning()]
    active = [t for t in timers if isValid(t) and t.isActive()]
    windows = [w for w in QApplication.topLevelWidgets() if isValid(w) and w.isVisible()]
    assert not running, f"threads still running: {running}"
    assert not active, f"timers still active: {[(t.interval(), t.parent()) for t in active]}"
    assert not windows, f"windows still shown: {windows}"


def _record_starts(kind: type, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    started: list[object] = []
    original: Callable[..., None] = kind.start  # type: ignore[attr-defined]

    def start(self: object, *args: object) -> None:
        started.append(self)
        original(self, *args)

    monkeypatch.setattr(kind, "start", start)
    return started


def _settle() -> None:
    from PySide6.QtCore import QCoreApplication, QEvent

    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    QCoreApplication.processEvents()
