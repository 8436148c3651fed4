"""The window driven once without a person: load, ask, stream, export, picture, exit code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal

from engine.events import LoadFailed, ModelLoaded

if TYPE_CHECKING:
    from app.main_window import MainWindow

# The last paint and the last redraw of the plots come after the last token.
SETTLE_MS = 400


@dataclass(frozen=True, slots=True)
class UnattendedJob:
    """What to do once the model is loaded."""

    prompt: str
    export: Path | None = None
    report: Path | None = None
    screenshot: Path | None = None
    exit_when_done: bool = False


class UnattendedRun(QObject):
    """Does one job in the real window.

    Signals:
        ended(int code, str reason): 0 and "", or 1 and a sentence; only with exit_when_done.
    """

    ended = Signal(int, str)

    def __init__(self, window: MainWindow, job: UnattendedJob) -> None:
        super().__init__(window)
        self._window = window
        self._job = job
        self._asked = False
        self._settle = QTimer(self, interval=SETTLE_MS, singleShot=True)
        self._settle.timeout.connect(self._on_settled)
        window.controller.model_loaded.connect(self._on_loaded)
        window.controller.load_failed.connect(self._on_load_failed)
        window.conversations.activity_changed.connect(self._on_activity)

    def _on_loaded(self, _loaded: ModelLoaded) -> None:
        if not self._asked:
            self._asked = True
            if not self._window.conversations.send(self._job.prompt):
                self._end("The prompt is empty.")

    def _on_load_failed(self, failure: LoadFailed) -> None:
        self._end(_line(failure.what, failure.why, failure.next))

    def _on_activity(self) -> None:
        if self._asked and not self._window.conversations.generating_chats():
            self._settle.start()

    def _on_settled(self) -> None:
        self._end(self._failure() or self._write_down())

    def _failure(self) -> str:
        last = self._window.conversations.current.chat.messages[-1:]
        if last and last[0].role == "error" and last[0].state == "failed" and not self._answer():
            return _line(last[0].text, last[0].why, last[0].next_step)
        return ""

    def _answer(self) -> bool:
        messages = self._window.conversations.current.chat.messages
        return any(m.role == "assistant" and m.stats is not None for m in messages)

    def _write_down(self) -> str:
        job = self._job
        if job.export:
            problem = self._window.telemetry.export(job.export)
            if problem:
                return _line(problem.what, problem.why, problem.next)
        if job.report:
            try:
                self._window.instruments.exports.write_report_now(job.report)
            except OSError as error:
                return f"The report could not be written to {job.report}: {error.strerror}."
        empty = self._window.empty_curves()
        if job.screenshot:
            job.screenshot.parent.mkdir(parents=True, exist_ok=True)
            if not self._window.grab().save(str(job.screenshot)):
                return f"The picture could not be written to {job.screenshot}."
        return f"Nothing was plotted for: {', '.join(empty)}." if empty else ""

    def _end(self, reason: str) -> None:
        if self._job.exit_when_done:
            self.ended.emit(1 if reason else 0, reason)


def _line(*sentences: str) -> str:
    return " ".join(" ".join(filter(None, sentences)).split())
