"""GPU values come from a process of their own, and nothing that happens there reaches ours."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from engine.nvml import link as nvml_link
from engine.nvml.link import RESTART_DELAYS_S, NvmlLink, reader_command
from engine.nvml.readings import NvmlAnswer
from tests.engine.nvml.fake import use_fake_nvml

ROOT = Path(__file__).parents[3]


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


OpenLink = Callable[[str], NvmlLink]


def problem_of(answer: NvmlAnswer) -> str:
    """Why the answer has no value of any GPU."""
    assert replace(answer, cpu_s=0.0, problem="") == NvmlAnswer()
    assert answer.problem
    return answer.problem


@pytest.fixture
def clock() -> Clock:
    """The links' own."""
    return Clock()


@pytest.fixture
def open_link(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Iterator[OpenLink]:
    """Opens links to readers with the fake pynvml; none may leave a process or a thread."""
    links: list[NvmlLink] = []
    before = set(psutil.Process().children())

    def opened(mode: str) -> NvmlLink:
        use_fake_nvml(monkeypatch, mode)
        links.append(NvmlLink("bbbb", clock))
        return links[-1]

    yield opened
    for link in links:
        link.close()
    assert not set(psutil.Process().children()) - before, "a reader is left over"
    assert not [t for t in threading.enumerate() if t.name == "NVML answers"]


def test_both_gpus_come_through_the_pipe(open_link: OpenLink) -> None:
    """The watched one and the other; memory is told of our process, not of the reader's."""
    link = open_link("")
    link.read()
    answer = link.read()
    assert answer.watched is not None
    assert answer.watched.process_mem_bytes == 4_000_000_000
    assert answer.watched.slowed_by == ("power limit", "heat (hardware)")
    assert answer.watched.dram_active_pct == 91.0
    assert [gpu.index for gpu in answer.others] == [0]
    assert answer.cpu_s > 0


def test_what_a_driver_prints_is_no_answer(open_link: OpenLink) -> None:
    """Native libraries write to stdout as they like: the answers have a pipe of their own."""
    link = open_link("prints")
    for _ in range(3):
        watched = link.read().watched
        assert watched is not None
        assert watched.util_pct == 86.0


def test_a_refused_field_is_logged_once(
    open_link: OpenLink, caplog: pytest.LogCaptureFixture
) -> None:
    """WSL has no utilization: the log says so a single time, the rest is read."""
    caplog.set_level(logging.INFO, "engine.sensors")
    link = open_link("nvmlDeviceGetUtilizationRates")
    for _ in range(3):
        watched = link.read().watched
        assert watched is not None
        assert watched.power_w == 215.5
    assert [r.getMessage() for r in caplog.records] == ["no value for gpu_util_pct: Not Supported"]


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        pytest.param(
            "segfault",
            "crashed (Segmentation fault)",
            marks=pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGSEGV to send"),
        ),
        ("no driver", "Driver Not Loaded"),
    ],
)
def test_a_reader_that_fails_is_started_again_ever_later_and_then_no_more(
    open_link: OpenLink,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    why: str,
) -> None:
    """A crash or a missing driver: one start at each delay, whatever is asked in between."""
    caplog.set_level(logging.INFO, "engine.sensors")
    started: list[float] = []
    start = subprocess.Popen

    def counted(*args: object, **kwargs: object) -> object:
        started.append(clock.now_s)
        return start(*args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", counted)
    link = open_link(mode)
    while clock.now_s < 2 * sum(RESTART_DELAYS_S):
        assert why in problem_of(link.read())
        clock.now_s += 0.5
    assert started == [0.0, 1.0, 6.0, 36.0, 156.0]
    assert len(caplog.records) == len(started)
    assert all(why in record.getMessage() for record in caplog.records)
    assert "left alone" in caplog.text


def test_a_missing_library_costs_the_values_only(
    monkeypatch: pytest.MonkeyPatch, open_link: OpenLink, tmp_path: Path
) -> None:
    """No pynvml at all."""
    link = open_link("")
    (tmp_path / "pynvml.py").write_text("raise ImportError('no pynvml')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "no pynvml; tried again in 1 s" in problem_of(link.read())


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGSEGV to send")
def test_a_crash_later_in_the_session_is_got_over(open_link: OpenLink, clock: Clock) -> None:
    """The second reading crashes: no values, and after the delay there are some again."""
    link = open_link("segfault later")
    assert link.read().watched is not None
    assert "tried again in 1 s" in problem_of(link.read())
    clock.now_s += RESTART_DELAYS_S[0]
    answer = link.read()
    assert answer.watched is not None
    assert answer.problem == ""


def test_a_driver_that_goes_away_comes_back(
    open_link: OpenLink, clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As while it is updated: values, none, and values again without a new load."""
    gone = tmp_path / "gone"
    monkeypatch.setenv("FAKE_NVML_GONE", str(gone))
    link = open_link("gone")
    assert link.read().watched is not None
    gone.touch()
    for delay_s in RESTART_DELAYS_S[:2]:
        assert link.read().watched is None
        clock.now_s += delay_s
    gone.unlink()
    answer = link.read()
    assert answer.watched is not None
    assert answer.cpu_s > 0


@pytest.mark.parametrize(("mode", "good"), [("hang", 0), ("hang later", 1)])
def test_a_driver_that_hangs_is_given_up_after_the_time_out(
    open_link: OpenLink, monkeypatch: pytest.MonkeyPatch, mode: str, good: int
) -> None:
    """At the start or at a reading: no values, and its process is gone."""
    monkeypatch.setattr(nvml_link, "START_TIMEOUT_S", 1.0 if mode == "hang" else 15.0)
    monkeypatch.setattr(nvml_link, "READ_TIMEOUT_S", 0.3)
    link = open_link(mode)
    for _ in range(good):
        assert link.read().watched is not None
    began = time.monotonic()
    assert "gave no answer within" in problem_of(link.read())
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "output",
    [
        "print('no json')",
        "print('5')",
        "print('null')",
        "print('[]')",
        "print('{}')",
        'print(\'{"watched":{},"others":[],"cpu_s":0,"missing":{}}\')',
        'print(\'{"watched":null,"others":5,"cpu_s":0,"missing":{}}\')',
        'print(\'{"watched":null,"others":[],"cpu_s":"x","missing":{}}\')',
        'print(\'{"watched":null,"others":[],"cpu_s":0,"missing":5}\')',
        r"import os; os.write(1, b'\xff\xfe\x00\n')",
    ],
)
def test_garbage_is_no_reading(
    open_link: OpenLink, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    """Whatever comes instead of an answer costs the values and raises nothing."""
    link = open_link("")
    program = f"import sys; sys.stdin.readline(); {output}"
    monkeypatch.setattr(nvml_link, "reader_command", lambda: [sys.executable, "-c", program])
    assert problem_of(link.read())


def test_a_program_that_cannot_be_started_costs_the_values_only(
    open_link: OpenLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interpreter that was deleted meanwhile."""
    link = open_link("")
    monkeypatch.setattr(nvml_link, "reader_command", lambda: ["/no/such/program"])
    assert "/no/such/program" in problem_of(link.read())


def test_closed_means_no_more_values(open_link: OpenLink) -> None:
    """Closing twice is harmless, and no reading starts the process again."""
    link = open_link("")
    link.read()
    link.close()
    link.close()
    assert link.read().watched is None


@pytest.mark.parametrize("mode", ["", "hang"])
def test_the_reader_ends_when_its_program_dies(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Killed without a word: stdin's end ends the reader; where the driver hangs, its own watch."""
    use_fake_nvml(monkeypatch, mode)
    patch = "from engine.nvml import reader; reader.START_TIMEOUT_S = reader._SLACK_S = 0.5; "
    reader = ["-c", f"import sys; {patch}sys.exit(reader.main(['bbbb', '1']))"]
    program = (
        "import os, subprocess, sys; "
        f"child = subprocess.Popen([sys.executable, *{reader!r}], stdin=subprocess.PIPE); "
        "child.stdin.write(b'\\n'); child.stdin.flush(); os.kill(os.getpid(), 9)"
    )
    path = os.pathsep.join((os.environ["PYTHONPATH"], str(ROOT)))
    # The reader has this program's stdout: its end is waited for, and not to come is an error.
    subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
        timeout=30,
        check=False,
    )


def test_a_bundle_starts_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frozen, there is no interpreter to give a module to: the program's own command is used."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert reader_command() == [sys.executable, "read-nvml"]


def test_the_program_knows_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a bundle is started with reaches the reader."""
    use_fake_nvml(monkeypatch)
    path = os.pathsep.join((os.environ["PYTHONPATH"], str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "app.main", "read-nvml", "bbbb", "1"],
        input=b"\n",
        capture_output=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith(b'{"watched": {"index": 1,')
