"""Keeps how fast the loaded model really ran, so that its prediction is not needed again."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from PySide6.QtCore import QObject

from app.engine_link.controller import EngineController
from engine.events import Event, GenerationFailed, GenerationFinished, ModelLoaded
from engine.model_library.measured import MeasuredSpeeds, SpeedKey

log = logging.getLogger("app.model_library")


class SpeedRecorder(QObject):
    """Writes the speeds of answers that ran alone; those beside others say nothing about one."""

    def __init__(
        self, controller: EngineController, speeds: MeasuredSpeeds, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._controller = controller
        self._speeds = speeds
        self._key: SpeedKey | None = None
        self._had_company: set[str] = set()
        controller.model_loaded.connect(self._on_model_loaded)
        controller.events_received.connect(self._on_events)

    def _on_model_loaded(self, loaded: ModelLoaded) -> None:
        try:
            self._key = SpeedKey.of(loaded.config, loaded.device_name, loaded.threads)
        except OSError as error:
            log.info("speeds of %s are not kept: %s", loaded.model.name, error)
            self._key = None

    def _on_events(self, events: Sequence[Event]) -> None:
        ended = [e for e in events if isinstance(e, GenerationFinished | GenerationFailed)]
        # Those that end with these events are not among the active ones any more.
        together = {*self._controller.active_requests, *(e.request_id for e in ended)}
        if len(together) > 1:
            self._had_company |= together
        for event in ended:
            alone = event.request_id not in self._had_company
            self._had_company.discard(event.request_id)
            if isinstance(event, GenerationFinished) and alone and self._key is not None:
                self._speeds.add(self._key, event.metrics)
