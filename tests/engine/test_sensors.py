"""Sensors give what the machine has and None for the rest."""

from __future__ import annotations

import time
from dataclasses import fields, replace

import psutil
import pytest

from engine.nvml.readings import GpuReading, NvmlAnswer
from engine.sensors import Sensors

WATCHED = GpuReading(3, "Fake GPU", 87.0, 5, 215.5, 7, 1980, 3201, 61, ("heat",), 12.5, 91.0)
OTHER = GpuReading(0, "Another GPU", 2.0)


class FakeLink:
    """Gives the answers it has, in order, and counts."""

    def __init__(self, *answers: NvmlAnswer) -> None:
        self.answers = list(answers)
        self.watched: list[str] = []
        self.closed = 0

    def __call__(self, device_uuid: str) -> FakeLink:
        self.watched.append(device_uuid)
        return self

    def read(self) -> NvmlAnswer:
        return self.answers.pop(0)

    def close(self) -> None:
        self.closed += 1


def test_the_watched_gpu_fills_the_fields_and_the_others_are_beside() -> None:
    """Every field of a reading arrives under its name; NVML is asked for the loaded device."""
    link = FakeLink(NvmlAnswer(WATCHED, (OTHER,)))
    sensors = Sensors("uuid", clock=lambda: 42, link=link)
    sample = sensors.read()
    sensors.close()
    assert link.watched == ["uuid"]
    assert link.closed == 1
    assert sample.t_ns == 42
    assert sample.device_index == 3
    assert sample.other_gpus == (OTHER,)
    for field in fields(GpuReading)[2:]:
        assert getattr(sample, f"gpu_{field.name}") == getattr(WATCHED, field.name)
    assert sample.gpu == replace(WATCHED, name=None)


def test_a_gpu_that_does_not_answer_leaves_the_process_values() -> None:
    """No driver, or none for now: GPU fields are None, CPU and memory are still read."""
    sensors = Sensors("uuid", link=FakeLink(NvmlAnswer(problem="Driver Not Loaded")))
    sample = sensors.read()
    assert sample.gpu_problem == "Driver Not Loaded"
    assert sample.gpu == GpuReading()
    assert sample.process_rss_bytes is not None
    assert sample.process_rss_bytes > 1_000_000


def test_without_a_gpu_nvml_is_never_touched() -> None:
    """device_uuid None must not wake any GPU: no reader is made."""
    link = FakeLink()
    sensors = Sensors(None, link=link)
    sensors.read()
    sensors.close()
    assert link.watched == []


def test_a_reading_knows_its_own_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """This thread's processor time and what the reader's process took since the last reading."""
    ticks = iter([0, 2_000_000, 10_000_000, 13_000_000])
    monkeypatch.setattr(time, "thread_time_ns", lambda: next(ticks))
    sensors = Sensors("uuid", link=FakeLink(NvmlAnswer(cpu_s=0.1), NvmlAnswer(cpu_s=0.104)))
    assert sensors.read().cost_ms == pytest.approx(102.0)
    assert sensors.read().cost_ms == pytest.approx(7.0)


def test_process_cpu_is_a_share_of_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """psutil's percent of one core becomes a percentage of the machine, never above 100."""
    raw = iter([0.0, 300.0, 1000.0])
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    monkeypatch.setattr(psutil.Process, "cpu_percent", lambda self, interval: next(raw))
    sensors = Sensors(None)
    assert sensors.read().cpu_util_pct == pytest.approx(75.0)
    assert sensors.read().cpu_util_pct == 100.0


def test_psutil_failure_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hardened machine may refuse /proc: the fields are None and nothing is raised."""

    def refuse(self: psutil.Process) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil.Process, "memory_info", refuse)
    assert Sensors(None).read().process_rss_bytes is None
