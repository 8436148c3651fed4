"""A driver library that crashes or hangs does so in a process of its own."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from engine.sensor_probe import nvml_answers

UUID = "8f3c2d1a-0000-1111-2222-333344445555"
WORKING = f"""
class NVMLError(Exception): pass
class Rates: gpu = 50
class Memory: used = 1
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetHandleByUUID(uuid):
    if uuid != "GPU-{UUID}": raise NVMLError("Not Found")
    return 1
def nvmlDeviceGetIndex(handle): return 0
def nvmlDeviceGetUtilizationRates(handle): return Rates
def nvmlDeviceGetMemoryInfo(handle): return Memory
def nvmlDeviceGetPowerUsage(handle): return 1000
"""
KILLED = f"import os\n{WORKING}def nvmlDeviceGetPowerUsage(handle): os.kill(os.getpid(), 11)\n"
HANGING = f"import time\n{WORKING}def nvmlDeviceGetPowerUsage(handle): time.sleep(60)\n"


@pytest.mark.parametrize(
    ("source", "device", "answers"),
    [
        (WORKING, UUID, True),
        (WORKING, "another", False),
        (WORKING + "def nvmlDeviceGetPowerUsage(handle): raise NVMLError('old')\n", UUID, True),
        ("raise ImportError", UUID, False),
        pytest.param(
            KILLED,
            UUID,
            False,
            marks=pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGSEGV to send"),
        ),
    ],
    ids=["works", "other device", "one call missing", "no library", "segfault"],
)
def test_only_a_library_that_reads_this_gpu_answers(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    expected_log: list[str],
    source: str,
    device: str,
    answers: bool,
) -> None:
    """A crash in a reading, not only at the start, is a no; a call that one card lacks is not."""
    install(monkeypatch, tmp_path, source)
    if source == KILLED:
        expected_log.append("NVML ended its process with")
    assert nvml_answers(device, timeout_s=30.0) is answers


def test_hanging_library_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, expected_log: list[str]
) -> None:
    """The probe comes back in about its time-out, with a no."""
    install(monkeypatch, tmp_path, HANGING)
    expected_log.append("NVML did not answer within")
    start = time.monotonic()
    assert not nvml_answers(UUID, timeout_s=1.0)
    assert time.monotonic() - start < 10


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, source: str) -> None:
    """Let every Python that is started from here find this pynvml."""
    (folder / "pynvml.py").write_text(source, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))
