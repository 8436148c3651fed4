"""A main window over a fake session, for tests and the contact sheet."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from PySide6.QtCore import QCoreApplication, QEvent, QEventLoop, QTimer
from PySide6.QtWidgets import QApplication

from app import folders
from app.appearance import Appearance, ThemeChoice
from app.engine_link.controller import EngineController
from app.main_window import MainWindow
from app.settings.store import Settings
from engine.sensors import SensorSample
from tests.fakes.fake_session import FakeClock, FakeSession, Script

MODEL = "SmolLM2-135M-Instruct.gguf"
WAIT_S = 10.0
POLL_MS = 5


class FakeProgram:
    """One window with its session; `close()` ends the threads."""

    def __init__(self, app: QApplication, script: Script, theme: ThemeChoice = "dark") -> None:
        self.clock = FakeClock()
        self.session = FakeSession(script, clock=self.clock)
        self.settings = Settings(folders.config_folder() / "settings.json")
        self.appearance = Appearance(app, theme)
        self.controller = EngineController(lambda: self.session)
        self.window = MainWindow(self.appearance, self.settings, self.controller, clock=self.clock)

    def show(self, width: int = 1440, height: int = 900) -> None:
        """Show the window and start the engine thread; nothing is loaded yet."""
        self.window.resize(width, height)
        self.window.show()
        self.controller.start()

    def load(self) -> None:
        """Load the model and wait for it."""
        self.begin_load()
        wait_until(lambda: self.controller.model is not None and self.controller.loading is None)

    def begin_load(self, path: str = MODEL) -> None:
        """Order a load."""
        self.window.loading.open(path)

    def sample(self, cpu_pct: float, **fields: Any) -> None:
        """Feed a sensor reading of this moment, as the sampler thread would."""
        sample = SensorSample(self.clock(), None, None, None, None, cpu_pct, 612_000_000)
        self.window.telemetry.handle_sample(replace(sample, **fields))

    def close(self) -> None:
        """Close the window and everything behind it."""
        self.window.close_at_once()
        for each in (self.window, self.appearance, self.controller):
            each.deleteLater()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        # Wrappers in cycles must not be collected while Qt restyles the next window's widgets.
        gc.collect()


def wait_until(condition: Callable[[], bool], seconds: float = WAIT_S) -> None:
    """Let the event loop run until `condition` holds. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    loop = QEventLoop()

    def look() -> None:
        if condition() or time.monotonic() > deadline:
            loop.quit()

    poll = QTimer(interval=POLL_MS)
    poll.timeout.connect(look)
    poll.start()
    loop.exec()
    poll.stop()
    if not condition():
        raise TimeoutError("the window did not get there")


def settle(milliseconds: int) -> None:
    """Let the event loop run this long, for coalesced redraws."""
    loop = QEventLoop()
    QTimer.singleShot(milliseconds, loop.quit)
    loop.exec()
