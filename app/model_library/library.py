"""The window's side of the list of models: found at once, surveyed one by one in the background."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import QObject, QThread, Signal, Slot

from app.engine_link.controller import EngineController
from engine.config import EngineConfig
from engine.model_library.entries import ModelEntry
from engine.model_library.listing import list_models

CLOSE_MS = 5_000


class _Worker(QObject):
    """Lives in the library thread: walks folders, and has headers read where torch already is.

    It never imports torch itself: the engine thread does, and only then is there a session to ask.
    """

    entry_found = Signal(int, object)
    listing_ended = Signal(int)
    surveyed = Signal(int, str, object)

    def __init__(self, controller: EngineController) -> None:
        super().__init__()
        self._controller = controller
        # Set from the GUI thread: orders of an older number are not worth finishing.
        self.wanted_ticket = 0

    @Slot(int, object, object)
    def list_models(self, ticket: int, added: Sequence[str], remembered: Sequence[str]) -> None:
        for entry in list_models(added, remembered, lambda: ticket == self.wanted_ticket):
            self.entry_found.emit(ticket, entry)
        self.listing_ended.emit(ticket)

    @Slot(int, object)
    def survey(self, ticket: int, config: EngineConfig) -> None:
        if ticket == self.wanted_ticket:
            self.surveyed.emit(ticket, config.model_path, self._controller.survey(config))


class Library(QObject):
    """Lists the models on this machine and then surveys each, in a thread of its own.

    Neither the window nor a running answer waits for it: a survey reads headers only, beside the
    engine thread. One order is under way at a time, so that another choice counts at once.

    Signals:
        entry_found(ModelEntry)
        listing_ended(): all entries are out; surveys may still come.
        surveyed(str path, ModelSurvey | EngineProblem)
    """

    entry_found = Signal(object)
    listing_ended = Signal()
    surveyed = Signal(str, object)

    _list_ordered = Signal(int, object, object)
    _survey_ordered = Signal(int, object)

    def __init__(self, controller: EngineController, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine_is_up = False
        self._ticket = 0
        self._config: EngineConfig | None = None
        self._waiting: deque[str] = deque()
        self._is_asking = False
        self._thread = QThread(self)
        self._thread.setObjectName("library")
        self._worker = _Worker(controller)
        self._worker.moveToThread(self._thread)
        self._thread.finished.connect(self._worker.deleteLater)
        self._list_ordered.connect(self._worker.list_models)
        self._survey_ordered.connect(self._worker.survey)
        self._worker.entry_found.connect(self._on_entry_found)
        self._worker.listing_ended.connect(self._on_listing_ended)
        self._worker.surveyed.connect(self._on_surveyed)
        controller.engine_started.connect(self._on_engine_started)

    def refresh(
        self, added: Sequence[str], remembered: Sequence[str], config: EngineConfig
    ) -> None:
        """List anew; `config` says as what each model is surveyed, its path aside."""
        self._begin(config)
        if not self._thread.isRunning():
            self._thread.start()
        self._list_ordered.emit(self._ticket, tuple(added), tuple(remembered))

    def survey_again(self, paths: Sequence[str], config: EngineConfig) -> None:
        """Survey models that are listed already as another config."""
        self._begin(config)
        self._waiting.extend(paths)
        self._ask_next()

    def rest(self) -> None:
        """Leave what is under way: nobody looks any more."""
        self._config = None
        self._waiting.clear()
        self._set_ticket()

    def close(self) -> None:
        """End the thread."""
        self.rest()
        self._thread.quit()
        self._thread.wait(CLOSE_MS)

    # --- private --------------------------------------------------------------------------

    def _begin(self, config: EngineConfig) -> None:
        self.rest()
        self._config = config

    def _set_ticket(self) -> None:
        self._ticket += 1
        self._worker.wanted_ticket = self._ticket
        self._is_asking = False

    def _ask_next(self) -> None:
        if self._engine_is_up and self._waiting and self._config and not self._is_asking:
            self._is_asking = True
            config = replace(self._config, model_path=self._waiting.popleft())
            self._survey_ordered.emit(self._ticket, config)

    @Slot()
    def _on_engine_started(self) -> None:
        self._engine_is_up = True
        self._ask_next()

    @Slot(int, object)
    def _on_entry_found(self, ticket: int, entry: ModelEntry) -> None:
        if ticket != self._ticket:
            return
        self.entry_found.emit(entry)
        if not entry.problem:
            self._waiting.append(entry.path)
            self._ask_next()

    @Slot(int)
    def _on_listing_ended(self, ticket: int) -> None:
        if ticket == self._ticket:
            self.listing_ended.emit()

    @Slot(int, str, object)
    def _on_surveyed(self, ticket: int, path: str, answer: object) -> None:
        if ticket == self._ticket:
            self._is_asking = False
            self.surveyed.emit(path, answer)
            self._ask_next()
