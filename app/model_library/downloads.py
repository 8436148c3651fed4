"""Looking up and downloading in a thread of their own; one at a time."""

from __future__ import annotations

import logging

from PySide6.QtCore import QObject, QThread, Signal, Slot

from app.engine_link.worker import EngineProblem
from engine.model_library.hub import Hub, HubChoice, HubModel
from engine.model_library.hub_download import DownloadStopped, HubDownload
from engine.session import EngineError

log = logging.getLogger("app.model_library")

# A server that stalls is given up after its time-out, 10 s; the window does not wait for that.
CLOSE_MS = 1_000


class _Worker(QObject):
    """Lives in the download thread, where huggingface_hub is imported when first used."""

    found = Signal(int, object)
    progressed = Signal(object)
    ended = Signal(object)

    @Slot(int, object, str)
    def find(self, ticket: int, hub: Hub, text: str) -> None:
        try:
            self.found.emit(ticket, hub.find(text))
        except EngineError as error:
            self.found.emit(ticket, _problem(error))
        except Exception as error:
            log.exception("looking up a model failed")
            self.found.emit(ticket, _unexpected(error))

    @Slot(object)
    def download(self, job: HubDownload) -> None:
        try:
            self.ended.emit(job.run())
        except DownloadStopped:
            self.ended.emit(None)
        except EngineError as error:
            self.ended.emit(_problem(error))
        except Exception as error:
            log.exception("a download failed")
            self.ended.emit(_unexpected(error))


class Downloads(QObject):
    """Orders to the download thread, and what it says. GUI thread only.

    Signals:
        found(HubModel | EngineProblem): the answer to the newest look-up.
        progressed(DownloadProgress)
        ended(str path | EngineProblem | None): None when it was stopped.
    """

    found = Signal(object)
    progressed = Signal(object)
    ended = Signal(object)

    _find_ordered = Signal(int, object, str)
    _download_ordered = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._ticket = 0
        self._job: HubDownload | None = None
        self._thread = QThread(self)
        self._thread.setObjectName("downloads")
        self._worker = _Worker()
        self._worker.moveToThread(self._thread)
        self._thread.finished.connect(self._worker.deleteLater)
        self._find_ordered.connect(self._worker.find)
        self._download_ordered.connect(self._worker.download)
        self._worker.found.connect(self._on_found)
        self._worker.progressed.connect(self.progressed)
        self._worker.ended.connect(self._on_ended)

    @property
    def running(self) -> bool:
        """Whether a download is under way."""
        return self._job is not None

    def find(self, hub: Hub, text: str) -> None:
        """Ask for `found`; answers to earlier questions are dropped."""
        self._start()
        self._ticket += 1
        self._find_ordered.emit(self._ticket, hub, text)

    def download(self, hub: Hub, model: HubModel, choice: HubChoice) -> None:
        """Begin a download; the present one must have ended."""
        if self._job is not None:
            raise RuntimeError("a download is under way")
        self._start()
        self._job = HubDownload(hub, model, choice, self._worker.progressed.emit)
        self._download_ordered.emit(self._job)

    def stop(self) -> None:
        """Stop the download; what has come is kept."""
        if self._job is not None:
            self._job.stop()

    def close(self) -> bool:
        """Stop and end the thread; False when a silent server still holds it."""
        self.stop()
        self._thread.quit()
        return not self._thread.isRunning() or self._thread.wait(CLOSE_MS)

    # --- private --------------------------------------------------------------------------

    def _start(self) -> None:
        if not self._thread.isRunning():
            self._thread.start()

    @Slot(int, object)
    def _on_found(self, ticket: int, answer: object) -> None:
        if ticket == self._ticket:
            self.found.emit(answer)

    @Slot(object)
    def _on_ended(self, outcome: object) -> None:
        self._job = None
        self.ended.emit(outcome)


def _problem(error: EngineError) -> EngineProblem:
    return EngineProblem(error.what, error.why, error.next_step)


def _unexpected(error: Exception) -> EngineProblem:
    return EngineProblem(
        "The download did not work.",
        f"{type(error).__name__}: {error}",
        "The details are in the log. Try again.",
    )
