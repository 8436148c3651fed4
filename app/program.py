"""One run of the window: logging, appearance, settings, engine link, and the event loop."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QSocketNotifier
from PySide6.QtWidgets import QApplication

from app import folders
from app.appearance import Appearance, theme_choice
from app.crash_log import CrashReporter, start_logging
from app.engine_link.controller import EngineController
from app.main_window import MainWindow
from app.settings.schema import FONT_SCALE, THEME
from app.settings.store import Settings
from app.unattended import UnattendedJob, UnattendedRun
from engine.config import SamplingParams
from engine.session import create_session

if TYPE_CHECKING:
    from engine.session import Session

log = logging.getLogger("app")


# The interpreter changes threads this often. At its default of 5 ms a piece of window code keeps
# the engine's thread from its next operation for that long; measured on two cores, a token then
# takes 7 % longer than without a window, at 20 us 5 %.
THREAD_SWITCH_S = 0.00002


class Program(QObject):
    """Builds the window and runs the application once."""

    def __init__(
        self,
        app: QApplication,
        args: argparse.Namespace,
        given: dict[str, Any],
        chats_folder: Path | None,
        factory: Callable[[], Session] | None,
    ) -> None:
        super().__init__()
        self._app = app
        self._given = given
        self._code, self._reason = 0, ""
        app.setApplicationName("Phasescope")
        app.setDesktopFileName("phasescope")
        start_logging(folders.log_folder(), debug=args.debug)
        self._reporter = CrashReporter(self)
        settings_file = folders.config_folder() / "settings.json"
        self._settings = Settings(settings_file, read_only=args.exit_when_done, parent=self)
        choice = theme_choice(self._settings.get(THEME))
        self._appearance = Appearance(app, choice, self._settings.get(FONT_SCALE))
        self.controller = EngineController(
            factory or partial(create_session, spare_core=True), self
        )
        self.window = MainWindow(self._appearance, self._settings, self.controller, chats_folder)
        self._reporter.error_caught.connect(self.window.tell_crash)
        if args.prompt is not None:
            self._prepare_job(args)

    def run(self) -> tuple[int, str]:
        """Show the window and run until it is closed; exit code, and why when it is not 0."""
        self._reporter.install()
        sys.setswitchinterval(THREAD_SWITCH_S)
        watch = SignalWatch(self.window.close_at_once)
        self.window.show()
        # Paint first: importing torch in the engine thread holds the interpreter for a while.
        self._app.processEvents()
        self.window.start(self._given)
        self._app.exec()
        watch.close()
        return self._end()

    def _prepare_job(self, args: argparse.Namespace) -> None:
        self.window.conversations.set_base(SamplingParams(), args.max_tokens)
        job = UnattendedJob(
            args.prompt, args.export, args.report, args.screenshot, args.exit_when_done
        )
        run = UnattendedRun(self.window, job)
        run.ended.connect(self._on_ended)

    def _on_ended(self, code: int, reason: str) -> None:
        self._code, self._reason = code, reason
        self.window.close_at_once()

    def _end(self) -> tuple[int, str]:
        self._reporter.uninstall()
        engine_ended = self.controller.shutdown()
        if not engine_ended or not self.window.finding.close():
            # A thread that still runs would crash the interpreter's own end: native code in the
            # engine's, a server that does not answer in the downloads'.
            logging.shutdown()
            os._exit(self._code or int(not engine_ended))
        self.window.deleteLater()
        self._app.processEvents()
        return self._code, self._reason


class SignalWatch(QObject):
    """Closes the window on Ctrl+C and SIGTERM: Qt's loop would not let Python hear of them."""

    def __init__(self, close: Callable[[], object]) -> None:
        super().__init__()
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._before_fd = signal.set_wakeup_fd(self._write.fileno())
        self._before = {
            each: signal.signal(each, self._ignore) for each in (signal.SIGINT, signal.SIGTERM)
        }
        self._notifier = QSocketNotifier(self._read.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(lambda: close())

    def close(self) -> None:
        """Give the signals back."""
        self._notifier.setEnabled(False)
        signal.set_wakeup_fd(self._before_fd)
        for each, handler in self._before.items():
            signal.signal(each, handler)
        self._read.close()
        self._write.close()

    def _ignore(self, _number: int, _frame: FrameType | None) -> None:
        """The wake-up byte does the work; Python only must not raise KeyboardInterrupt."""
