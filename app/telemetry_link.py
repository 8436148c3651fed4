"""Brings engine events, sensor samples and paint times to the panels and to the recorder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, QTimer, Signal
from PySide6.QtWidgets import QWidget

from app import folders
from app.engine_link.controller import EngineController
from app.replay.session_recorder import SessionRecorder
from app.settings.schema import RECORD, RECORD_FOLDER
from app.settings.store import Settings
from app.slowdown import slowdown_text
from app.telemetry.own_cost import OWN_COST
from app.telemetry.recorder import CsvRecorder, RecordProblem
from app.telemetry.sampler_thread import SamplerThread
from app.telemetry.telemetry_model import TelemetryModel
from engine.events import Event, LoadEvent, ModelLoaded, TokenEvent
from engine.sensors import SensorSample


class TelemetryLink(QObject):
    """Owns the panels' model, the sampler thread and the recorders of this session.

    Signals:
        recording_changed(bool): continuous recording was switched.
        problem_occurred(RecordProblem): recording failed.
        slowdown_changed(str): what holds the machine back by now; empty: nothing.
        sampled(SensorSample): a reading of the sensors.
    """

    recording_changed = Signal(bool)
    problem_occurred = Signal(object)
    slowdown_changed = Signal(str)
    sampled = Signal(object)

    def __init__(
        self,
        controller: EngineController,
        settings: Settings,
        clock: Callable[[], int] = time.perf_counter_ns,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._controller = controller
        self._settings = settings
        self.model = TelemetryModel(clock, self)
        self._clock = clock
        session_id = datetime.now().strftime("%Y%m%d-%H%M%S")
        self.recorder = CsvRecorder(None, session_id, clock, self)
        self.recorder.problem_occurred.connect(self.problem_occurred)
        self.session = SessionRecorder(clock)
        self._sampler = SamplerThread(parent=self)
        self._sampler.sampled.connect(self.handle_sample)
        self._slowdown = ""
        self._unpainted: dict[str, int] = {}
        self._after_paint = QTimer(self, interval=0, singleShot=True)
        self._after_paint.timeout.connect(self._note_painted)
        controller.events_received.connect(self._on_events)
        controller.model_loaded.connect(self._on_model_loaded)
        controller.model_unloaded.connect(self._on_model_dropped)
        controller.load_failed.connect(self._on_load_failed)
        controller.state_changed.connect(self._on_state_changed)
        settings.changed.connect(self._on_setting_changed)

    @property
    def recording(self) -> bool:
        """Whether metrics are written as they come."""
        return self.recorder.folder is not None

    def start(self) -> None:
        """Begin to poll the sensors, and to record if the person left that on."""
        self._sampler.start()
        self._follow_setting()

    def watch_painting(self, viewport: QWidget) -> None:
        """Measure paint latency on this widget: the one that shows the answer's text."""
        viewport.installEventFilter(self)

    def request_sent(self, request_id: str, t_ns: int) -> None:
        """Send was pressed at `t_ns`."""
        self.model.request_sent(request_id, t_ns)
        self.recorder.request_sent(request_id, t_ns)
        self.session.request_sent(request_id, t_ns)

    @OWN_COST.counted("recording")
    def handle_sample(self, sample: SensorSample) -> None:
        """Bring a reading of the sensors to whoever wants it."""
        OWN_COST.add("sensors", sample.cost_ms or 0.0)
        OWN_COST.mark()
        self.model.handle_sample(sample)
        self.recorder.handle_sample(sample)
        self.session.handle_sample(sample)
        self._note_slowdown(sample)
        self.sampled.emit(sample)

    def export(self, folder: Path) -> RecordProblem | None:
        """Write everything measured so far; gives what went wrong."""
        return self.recorder.export(folder)

    def close(self) -> None:
        """End the sampler and write what is left."""
        self._sampler.stop()
        self.recorder.close()
        self.session.close()

    @OWN_COST.counted("recording")
    def _on_events(self, events: Sequence[Event | LoadEvent]) -> None:
        self.model.handle_events(events)
        self.recorder.handle_events(events)
        self.session.handle_events(events)
        shown = self.model.selected.request_id if self.model.selected else None
        for event in events:
            if isinstance(event, TokenEvent) and event.request_id == shown:
                self._unpainted[event.request_id] = event.index

    def _on_model_loaded(self, loaded: ModelLoaded) -> None:
        self._sampler.watch_device(loaded.device_uuid)
        self.model.handle_events([loaded])
        self.recorder.handle_events([loaded])
        self.session.handle_events([loaded])

    def _note_slowdown(self, sample: SensorSample) -> None:
        text = slowdown_text(sample)
        if text != self._slowdown:
            self._slowdown = text
            self.slowdown_changed.emit(text)

    def _on_load_failed(self) -> None:
        if self._controller.model is None:
            self._on_model_dropped()

    def _on_model_dropped(self) -> None:
        self.model.model_dropped()
        self.session.model_dropped()

    def _on_state_changed(self) -> None:
        self._sampler.set_busy(bool(self._controller.active_requests))

    def _on_setting_changed(self, key: str) -> None:
        if key in (RECORD.key, RECORD_FOLDER.key):
            self._follow_setting()

    def _follow_setting(self) -> None:
        chosen = self._settings.get(RECORD_FOLDER)
        folder = Path(chosen) if chosen else folders.recordings_folder()
        self.recorder.set_folder(folder if self._settings.get(RECORD) else None)
        self.recording_changed.emit(self.recording)

    def _note_painted(self) -> None:
        now_ns = self._clock()
        for request_id, index in self._unpainted.items():
            self.model.request_painted(request_id, index, now_ns)
            self.recorder.request_painted(request_id, index, now_ns)
            self.session.request_painted(request_id, index, now_ns)
        self._unpainted.clear()

    # Qt overrides

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        # The filter sees the event before the painting; the timer fires after it.
        if event.type() == QEvent.Type.Paint and self._unpainted:
            self._after_paint.start()
        return super().eventFilter(watched, event)
