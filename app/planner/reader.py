"""Reads what a plan needs, headers and free memory, in a thread of its own."""

from __future__ import annotations

from PySide6.QtCore import QObject, QThread, Signal, Slot

from app.engine_link.controller import EngineController

CLOSE_MS = 5_000


class _Worker(QObject):
    """Lives in the reader's thread."""

    answered = Signal(str, object)

    def __init__(self, controller: EngineController) -> None:
        super().__init__()
        self._controller = controller

    @Slot(str, str, object)
    def read(self, model: str, device: str, threads: int | None) -> None:
        self.answered.emit(model, self._controller.planning(model, device, threads))


class PlanReader(QObject):
    """Asks the session beside the engine's own thread: an answer under way keeps its pace.

    Signals:
        answered(str model, Planning | EngineProblem)
    """

    answered = Signal(str, object)

    _ordered = Signal(str, str, object)

    def __init__(self, controller: EngineController, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._thread = QThread(self)
        self._thread.setObjectName("planner")
        self._worker = _Worker(controller)
        self._worker.moveToThread(self._thread)
        self._thread.finished.connect(self._worker.deleteLater)
        self._ordered.connect(self._worker.read)
        self._worker.answered.connect(self.answered)

    def ask(self, model: str, device: str, threads: int | None) -> None:
        """Read a model by path or built-in name; `answered` follows."""
        if not self._thread.isRunning():
            self._thread.start()
        self._ordered.emit(model, device, threads)

    def close(self) -> None:
        """End the thread."""
        self._thread.quit()
        self._thread.wait(CLOSE_MS)
