"""A comparison under way: sends the requests and gathers their inter-token latencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from uuid import uuid4

import numpy as np
from PySide6.QtCore import QObject, Signal

from app.engine_link.controller import EngineController
from app.telemetry.series import Array
from app.telemetry.telemetry_model import TelemetryModel
from engine.config import GenerationRequest
from engine.events import Event, GenerationFailed, GenerationFinished, PrefillDone, TokenEvent


class Stage(Enum):
    """What a comparison is doing."""

    IDLE = "idle"
    CACHED = "cached"
    UNCACHED = "uncached"
    DONE = "done"


class ComparisonRun(QObject):
    """Runs a prompt without the cache, and with it where its latencies are not known any more.

    The chat, its panels and its answers stay as they are: the requests belong to none of them.

    Attributes:
        stage, num_tokens: what is being done, and how many tokens either run is to have.
        prompt_tokens: how many come before them, once it is known.
        problem: why it ended early, in words; empty otherwise.

    Signals:
        changed(): something is new.
    """

    changed = Signal()

    def __init__(
        self,
        controller: EngineController,
        telemetry: TelemetryModel,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._controller, self._telemetry = controller, telemetry
        self._request: GenerationRequest | None = None
        self._running_id = ""
        self._cached: list[float] = []
        self._uncached: list[float] = []
        self.stage = Stage.IDLE
        self.num_tokens = 0
        self.prompt_tokens: int | None = None
        self.problem = ""
        controller.events_received.connect(self._on_events)

    @property
    def cached_ms(self) -> Array:
        """Inter-token latencies with the cache, shape [tokens - 1]."""
        return np.array(self._cached)

    @property
    def uncached_ms(self) -> Array:
        """Those without it; fewer while it runs."""
        return np.array(self._uncached)

    @property
    def totals_ms(self) -> tuple[float, float] | None:
        """From the first to the last token that both have, with the cache and without."""
        both = min(len(self._cached), len(self._uncached))
        if not both:
            return None
        return sum(self._cached[:both]), sum(self._uncached[:both])

    @property
    def is_running(self) -> bool:
        """Whether one of the two requests is under way."""
        return bool(self._running_id)

    def start(self, request: GenerationRequest, num_tokens: int) -> None:
        """Compare over so many tokens; `request` is the one whose answer is compared."""
        self.stop()
        self._request, self.num_tokens = request, num_tokens
        self._cached, self._uncached, self.problem = [], [], ""
        known = self._telemetry.request(request.request_id)
        if known and len(known.tokens) >= num_tokens:
            self._cached = known.tokens["itl_ms"][1:num_tokens].tolist()
            self._send(Stage.UNCACHED)
        else:
            self._send(Stage.CACHED)

    def stop(self) -> None:
        """End the run where it is; what there is stays."""
        if self._running_id:
            self._controller.stop(self._running_id)

    def _send(self, stage: Stage) -> None:
        assert self._request is not None
        request = replace(
            self._request,
            request_id=uuid4().hex,
            max_tokens=self.num_tokens,
            ignore_eos=True,  # and no stop strings: both are to have as many tokens
            sampling=replace(self._request.sampling, stop=()),
            use_cache=stage is Stage.CACHED,
        )
        self.stage, self._running_id = stage, request.request_id
        self._telemetry.note_request(request.request_id, self._telemetry.now_ns())
        if not self._controller.send(request):
            self._end(self.tr("No model is loaded."))
        self.changed.emit()

    def _on_events(self, events: Sequence[Event]) -> None:
        mine = [e for e in events if getattr(e, "request_id", "") == self._running_id]
        if not self._running_id or not mine:
            return
        latencies = self._cached if self.stage is Stage.CACHED else self._uncached
        for event in mine:
            if isinstance(event, PrefillDone):
                self.prompt_tokens = event.prompt_tokens
            elif isinstance(event, TokenEvent) and event.itl_ms is not None:
                latencies.append(event.itl_ms)
            elif isinstance(event, GenerationFailed):
                self._end(event.what)
            elif isinstance(event, GenerationFinished):
                self._on_finished(event)
        self.changed.emit()

    def _on_finished(self, event: GenerationFinished) -> None:
        if event.finish_reason == "context_full":
            self._end(self.tr("The context was full before the end."))
        elif event.finish_reason != "length":
            self._end(self.tr("Stopped before the end."))
        elif self.stage is Stage.CACHED:
            self._send(Stage.UNCACHED)
        else:
            self._end("")

    def _end(self, problem: str) -> None:
        self.stage, self._running_id, self.problem = Stage.DONE, "", problem
