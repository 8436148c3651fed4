"""Polls the sensors away from the GUI thread: often while an answer runs, seldom when idle."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from PySide6.QtCore import QObject, Signal

from engine.sensors import Sensors, SensorSample

BUSY_PERIOD_S = 0.2
IDLE_PERIOD_S = 2.0
STOP_TIMEOUT_S = 1.0

_log = logging.getLogger("app.telemetry")


class SensorSource(Protocol):
    """What the thread polls: `engine.sensors.Sensors`, or a fake one."""

    def read(self) -> SensorSample:
        """One reading of everything."""
        ...

    def close(self) -> None:
        """Let go of the device."""
        ...


class SamplerThread(QObject):
    """Owns the sensors and reads them in its own thread, for a driver may take its time.

    Begins with `start()` and ends with `stop()`; both belong to the GUI thread, as do the
    setters. The thread is Python's, not a QThread: one that hangs in a driver can be left
    behind, where Qt would end the whole program for it.

    Signals:
        sampled(SensorSample): one reading, delivered in the receiver's thread.
    """

    sampled = Signal(object)

    def __init__(
        self,
        make_sensors: Callable[[str | None], SensorSource] = Sensors,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._thread = threading.Thread(target=self._run, name="sensor sampler", daemon=True)
        self._make_sensors = make_sensors
        self._device_uuid: str | None = None
        self._device_changed = True
        self._busy = False
        self._stopping = False
        self._wake = threading.Event()

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def is_running(self) -> bool:
        """Whether the thread has begun and not ended."""
        return self._thread.is_alive()

    def set_busy(self, busy: bool) -> None:
        """Poll five times a second while an answer runs, else every two seconds.

        Either change takes a reading at once, so that a short answer has its samples too.
        """
        if busy != self._busy:
            self._busy = busy
            self._wake.set()

    def watch_device(self, device_uuid: str | None) -> None:
        """Watch this GPU from now on (`ModelLoaded.device_uuid`), None for no GPU."""
        if device_uuid != self._device_uuid:
            self._device_uuid = device_uuid
            self._device_changed = True
            self._wake.set()

    def stop(self) -> None:
        """End the thread and wait for it; a driver that hangs is left behind, with a warning."""
        self._stopping = True
        self._wake.set()
        if not self._thread.is_alive():
            return
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            _log.warning("the sensors did not answer in time and were left behind")

    def _run(self) -> None:
        sensors: SensorSource | None = None
        while True:
            # Cleared before the flags are read: what is set from here on wakes the wait below.
            self._wake.clear()
            if self._stopping:
                break
            if sensors is None or self._device_changed:
                self._device_changed = False
                if sensors is not None:
                    sensors.close()
                sensors = self._make_sensors(self._device_uuid)
            sample = sensors.read()
            # Whoever listened may be gone when a driver answers too late.
            if not self._stopping:
                self.sampled.emit(sample)
            self._wake.wait(BUSY_PERIOD_S if self._busy else IDLE_PERIOD_S)
        if sensors is not None:
            sensors.close()
