"""The sampler polls off the GUI thread, faster while an answer runs, and ends when told."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from app.telemetry import sampler_thread
from app.telemetry.sampler_thread import SamplerThread
from engine.sensors import SensorSample


class FakeSensors:
    """Counts readings and remembers which thread asked."""

    made: list[FakeSensors]

    def __init__(self, device_uuid: str | None) -> None:
        self.device_uuid = device_uuid
        self.reads = 0
        self.threads: set[int] = set()
        self.closed = False

    def read(self) -> SensorSample:
        self.reads += 1
        self.threads.add(threading.get_ident())
        return SensorSample(self.reads, None, None, None, None, 1.0, 1)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def made() -> list[FakeSensors]:
    """The sensors that were made, in order."""
    return []


@pytest.fixture
def sampler(qtbot: QtBot, made: list[FakeSensors]) -> Iterator[SamplerThread]:
    """A sampler over fake sensors; stopped at the end of the test."""

    def make(device_uuid: str | None) -> FakeSensors:
        made.append(FakeSensors(device_uuid))
        return made[-1]

    sampler = SamplerThread(make)
    yield sampler
    sampler.stop()


def collect(sampler: SamplerThread) -> list[SensorSample]:
    """Everything it reports from now on."""
    samples: list[SensorSample] = []
    sampler.sampled.connect(samples.append)
    return samples


def test_reads_in_its_own_thread(
    qtbot: QtBot, sampler: SamplerThread, made: list[FakeSensors]
) -> None:
    """A slow driver must not hold the window: no reading is taken in the GUI thread."""
    with qtbot.waitSignal(sampler.sampled):
        sampler.start()
    assert threading.get_ident() not in made[0].threads


def test_idle_is_slow_and_busy_is_fast(
    qtbot: QtBot, sampler: SamplerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Idle takes one reading and rests; while an answer runs the readings come by themselves."""
    monkeypatch.setattr(sampler_thread, "BUSY_PERIOD_S", 0.01)
    monkeypatch.setattr(sampler_thread, "IDLE_PERIOD_S", 60.0)
    samples = collect(sampler)
    sampler.start()
    qtbot.waitUntil(lambda: len(samples) == 1)
    with qtbot.assertNotEmitted(sampler.sampled, wait=60):
        pass
    sampler.set_busy(True)
    qtbot.waitUntil(lambda: len(samples) >= 5)


def test_periods_are_those_promised() -> None:
    """Five readings a second while generating, one in two seconds when idle."""
    assert 1 / sampler_thread.BUSY_PERIOD_S == 5
    assert 1 / sampler_thread.IDLE_PERIOD_S == 0.5


def test_the_end_of_an_answer_is_read_at_once(
    qtbot: QtBot, sampler: SamplerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer shorter than a period still has a reading at its end."""
    monkeypatch.setattr(sampler_thread, "BUSY_PERIOD_S", 60.0)
    samples = collect(sampler)
    sampler.set_busy(True)
    sampler.start()
    qtbot.waitUntil(lambda: len(samples) == 1)
    sampler.set_busy(False)
    qtbot.waitUntil(lambda: len(samples) == 2)


def test_another_device_is_watched_from_then_on(
    qtbot: QtBot, sampler: SamplerThread, made: list[FakeSensors]
) -> None:
    """A model on another GPU: the old sensors are closed, the new ones know its UUID."""
    samples = collect(sampler)
    sampler.start()
    qtbot.waitUntil(lambda: len(samples) == 1)
    sampler.watch_device("uuid-2")
    qtbot.waitUntil(lambda: len(samples) == 2)
    assert [s.device_uuid for s in made] == [None, "uuid-2"]
    assert made[0].closed


@pytest.mark.parametrize("wait_for_first", [True, False])
def test_stop_ends_at_once_and_closes(
    qtbot: QtBot,
    sampler: SamplerThread,
    made: list[FakeSensors],
    wait_for_first: bool,
) -> None:
    """Stop interrupts the rest between readings, before the first one as well."""
    if wait_for_first:
        with qtbot.waitSignal(sampler.sampled):
            sampler.start()
    else:
        sampler.start()
    sampler.stop()
    assert not sampler.is_running()
    assert all(s.closed for s in made)


def test_stop_without_start_is_harmless(sampler: SamplerThread) -> None:
    """A window that closes before it ever sampled does not hang."""
    sampler.stop()
    assert not sampler.is_running()


def test_hanging_driver_is_left_behind(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, expected_log: list[str]
) -> None:
    """Stop comes back though a reading does not, and its late answer reaches nobody."""
    monkeypatch.setattr(sampler_thread, "STOP_TIMEOUT_S", 0.05)
    expected_log.append("the sensors did not answer in time")
    entered, released = threading.Event(), threading.Event()

    class Hanging(FakeSensors):
        def read(self) -> SensorSample:
            entered.set()
            released.wait(30)
            return super().read()

    sensors = Hanging(None)
    sampler = SamplerThread(lambda _: sensors)
    samples = collect(sampler)
    sampler.start()
    assert entered.wait(5)
    sampler.stop()
    assert sampler.is_running()
    released.set()
    qtbot.waitUntil(lambda: not sampler.is_running())
    assert samples == []
    assert sensors.closed
