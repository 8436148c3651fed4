"""The last net: what nobody caught goes to the log file and is told in the window."""

from __future__ import annotations

import logging
import sys
import threading
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType

from PySide6.QtCore import (
    QMessageLogContext,
    QObject,
    QtMsgType,
    Signal,
    qInstallMessageHandler,
)

log = logging.getLogger("app.crash")
qt_log = logging.getLogger("app.qt")

LOG_BYTES = 1_000_000
LOG_FILES = 3
_QT_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}


class CrashReporter(QObject):
    """Catches what slots and threads let through. Make one, before the window.

    Signals:
        error_caught(str): one line about an uncaught exception, from whichever thread.
    """

    error_caught = Signal(str)

    def install(self) -> None:
        """Take over the hooks of the interpreter, of its threads and of Qt's messages."""
        sys.excepthook = self._on_exception
        threading.excepthook = self._on_thread_exception
        qInstallMessageHandler(_on_qt_message)

    def uninstall(self) -> None:
        """Give the hooks back."""
        sys.excepthook = sys.__excepthook__
        threading.excepthook = threading.__excepthook__
        qInstallMessageHandler(None)

    def _on_exception(
        self,
        kind: type[BaseException],
        error: BaseException,
        trace: TracebackType | None,
    ) -> None:
        log.error("uncaught exception", exc_info=(kind, error, trace))
        self.error_caught.emit(f"{kind.__name__}: {error}")

    def _on_thread_exception(self, args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            self._on_exception(args.exc_type, args.exc_value, args.exc_traceback)


def start_logging(folder: Path, *, debug: bool) -> Path | None:
    """Log to a file in `folder` (and to stderr with `debug`); None when it cannot be written."""
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    for area in ("app", "engine") if debug else ():
        logging.getLogger(area).setLevel(logging.DEBUG)
    layout = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    if debug:
        root.addHandler(logging.StreamHandler())
    file = folder / "phasescope.log"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handler = RotatingFileHandler(file, maxBytes=LOG_BYTES, backupCount=LOG_FILES)
    except OSError:
        # Without any handler Python would write warnings to stderr, among the answers.
        root.addHandler(logging.NullHandler())
        return None
    handler.setFormatter(layout)
    root.addHandler(handler)
    return file


def _on_qt_message(kind: QtMsgType, _context: QMessageLogContext, message: str | None) -> None:
    qt_log.log(_QT_LEVELS.get(kind, logging.INFO), "%s", message)
