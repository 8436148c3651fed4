"""Plays a recording: tells a model what the live one was told, at another pace or from anywhere."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject, QTimer, Signal

from app.replay.items import Item, ModelDropped, RequestPainted, RequestSent, Told
from app.replay.recording import Recording
from app.telemetry.telemetry_model import TelemetryModel
from engine.events import PrefillProgress
from engine.sensors import SensorSample

SPEEDS = (0.1, 1.0, 10.0)
TICK_MS = 33


class Player(QObject):
    """Moves through a recording and keeps `model` at what was known at that moment.

    It stands at the first Send; what lies before is told at once. `clock`, in ns, paces it.

    Signals:
        events_played(list[Told]): these were told to the model.
        position_changed(int t_ns): on the recording's clock.
        playing_changed(bool)
        restarted(): the model was told nothing now; what comes begins with the first event.
        jumped(): the model was brought to another moment at once.
    """

    events_played = Signal(list)
    position_changed = Signal(object)  # an int of Qt has 32 bits
    playing_changed = Signal(bool)
    restarted = Signal()
    jumped = Signal()

    def __init__(
        self,
        recording: Recording,
        clock: Callable[[], int] = time.perf_counter_ns,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self.recording = recording
        self._clock = clock
        self._times = [told.t_ns for told in recording.items]
        sends = (t.t_ns for t in recording.items if isinstance(t.item, RequestSent))
        self.start_ns = next(sends, recording.t0_ns)
        self.end_ns = recording.end_ns
        self._position_ns = recording.t0_ns
        self._next = 0  # the first item that is not told yet
        self._speed = 1.0
        self._last_tick_ns = 0
        self.model = TelemetryModel(lambda: self._position_ns, self)
        self._timer = QTimer(self, interval=TICK_MS)
        self._timer.timeout.connect(self.tick)
        self._advance(self.start_ns)

    @property
    def position_ns(self) -> int:
        """Where it stands, on the recording's clock."""
        return self._position_ns

    @property
    def is_playing(self) -> bool:
        """Whether it moves."""
        return self._timer.isActive()

    @property
    def speed(self) -> float:
        """Seconds of the recording a second."""
        return self._speed

    @property
    def told(self) -> Sequence[Told]:
        """Everything that has happened so far."""
        return self.recording.items[: self._next]

    def play(self) -> None:
        """Go on; from the beginning when it is at the end."""
        if self.is_playing:
            return
        if self._position_ns >= self.end_ns:
            self.seek(self.start_ns)
        self._last_tick_ns = self._clock()
        self._timer.start()
        self.playing_changed.emit(True)

    def pause(self) -> None:
        """Stand still."""
        if self.is_playing:
            self._timer.stop()
            self.playing_changed.emit(False)

    def set_speed(self, speed: float) -> None:
        """Play at another pace from now on: one of SPEEDS."""
        if self.is_playing:
            self.tick()
        self._speed = speed

    def seek(self, t_ns: int) -> None:
        """Go to a moment; one outside the recording is its nearest end."""
        t_ns = min(max(t_ns, self.start_ns), self.end_ns)
        if t_ns < self._position_ns:
            self.model.clear()
            self._next = 0
            self.restarted.emit()
        self._last_tick_ns = self._clock()
        self._advance(t_ns)
        self.model.changed.emit()
        self.jumped.emit()

    def tick(self) -> None:
        """Move by the time that has passed; a timer does this while it plays."""
        now_ns = self._clock()
        passed = round((now_ns - self._last_tick_ns) * self._speed)
        self._last_tick_ns = now_ns
        self._advance(min(self._position_ns + passed, self.end_ns))
        if self._position_ns == self.end_ns:
            self.pause()

    def _advance(self, t_ns: int) -> None:
        until = bisect_right(self._times, t_ns)
        due = self.recording.items[self._next : until]
        self._next, self._position_ns = until, t_ns
        for told in due:
            tell(self.model, told.item)
        if due:
            self.events_played.emit(list(due))
        self.position_changed.emit(t_ns)


def tell(model: TelemetryModel, item: Item) -> None:
    """Let a model know an item, by the door that the live one was told through."""
    match item:
        case RequestSent():
            model.request_sent(item.request_id, item.t_ns)
        case RequestPainted():
            model.request_painted(item.request_id, item.index, item.t_ns)
        case ModelDropped():
            model.model_dropped()
        case SensorSample():
            model.handle_sample(item)
        case PrefillProgress() if model.request(item.request_id) is None:
            # Sent by no chat, as the runs of a comparison are: the panels stay where they are.
            model.note_request(item.request_id, item.t_send_ns)
            model.handle_events([item])
        case _:
            model.handle_events([item])
