"""Which device and which build of torch set-up takes, and what it says that costs."""

from __future__ import annotations

from pathlib import Path

import pytest

import downloads
from stamp import Stamp

VERSION = "2.13.0"
PYPI_LIKE = "torch (2.15.0)\nAvailable versions: 2.15.0, 2.13.0, 2.12.1\n"
WITH_CPU_BUILD = "torch (2.15.0)\nAvailable versions: 2.15.0, 2.13.0+cpu, 2.13.0\n"


@pytest.mark.parametrize(
    ("platform", "nvidia_smi", "driver", "device"),
    [
        ("linux", None, False, "cpu"),
        ("linux", "nvidia-smi", False, "cuda"),
        ("linux", None, True, "cuda"),
        ("win32", "nvidia-smi.exe", False, "cuda"),
        ("darwin", "nvidia-smi", True, "cpu"),
    ],
)
def test_device_is_guessed_from_the_driver(
    platform: str, nvidia_smi: str | None, driver: bool, device: str
) -> None:
    """An NVIDIA driver means CUDA, except on a Mac."""
    assert downloads.guess_device(platform, nvidia_smi, driver) == device


def test_a_device_once_chosen_stays() -> None:
    """Asked for beats made for, which beats the guess: DEVICE=cpu need not be repeated."""
    made_for_cpu = Stamp("f", "cpu", ())
    assert downloads.choose_device("cuda", made_for_cpu, "cpu") == "cuda"
    assert downloads.choose_device("", made_for_cpu, "cuda") == "cpu"
    assert downloads.choose_device("", None, "cuda") == "cuda"


def test_pinned_version_is_read_from_the_constraints() -> None:
    """The pin is the line that begins with torch==, not a comment about it."""
    assert downloads.pinned_torch("# torch==1.0\ntorch==2.13.0\nother==1\n") == "2.13.0"
    with pytest.raises(ValueError, match="pins no torch"):
        downloads.pinned_torch("numpy==2.0\n")


def test_cuda_does_not_accept_a_cpu_build_of_the_same_version() -> None:
    """Only `===` keeps pip from preferring "2.13.0+cpu" on a machine with a GPU."""
    assert downloads.torch_requirement(VERSION, "cuda", index_given=False) == "torch===2.13.0"
    assert downloads.torch_requirement(VERSION, "cpu", index_given=False) == "torch==2.13.0"
    assert downloads.torch_requirement(VERSION, "cuda", index_given=True) == "torch==2.13.0"


@pytest.mark.parametrize(
    ("device", "platform", "offered", "index", "build"),
    [
        ("cpu", "linux", WITH_CPU_BUILD, None, "cpu"),
        ("cpu", "linux", PYPI_LIKE, None, "cuda"),
        ("cpu", "linux", "", None, "cuda"),
        ("cpu", "linux", "2.13.0+cpuX", None, "cuda"),
        ("cuda", "linux", WITH_CPU_BUILD, None, "cuda"),
        ("cpu", "darwin", PYPI_LIKE, None, "cpu"),
        ("cuda", "win32", PYPI_LIKE, None, "cpu"),
        ("cpu", "linux", PYPI_LIKE, "an index", "cpu"),
    ],
)
def test_build_that_will_come(
    device: str, platform: str, offered: str, index: str | None, build: str
) -> None:
    """The announced cost is that of the build pip will really take."""
    assert downloads.torch_build(VERSION, device, platform, offered, index) == build


def test_announcement_adds_up_what_is_still_to_come() -> None:
    """Each part has a line, and the first line holds their sum."""
    lines = downloads.announcement(downloads.parts(VERSION, "cpu", ()))
    assert lines[0].startswith("About 458 MB will be downloaded")
    assert [line.split()[-2] for line in lines[1:]] == ["200", "80", "80", "98"]
    assert "3,000 MB" in downloads.announcement(downloads.parts(VERSION, "cuda", ()))[1]


def test_installed_parts_are_not_announced() -> None:
    """A second set-up does not promise a download that will not happen."""
    installed = ["torch-2.13.0+cpu.dist-info", "PySide6_Essentials-6.11.3.dist-info"]
    coming = downloads.still_to_come(downloads.parts(VERSION, "cpu", ()), installed)
    assert [part.label.split()[0] for part in coming] == ["other", "starter"]
    assert "Everything large is here" in downloads.announcement([])[0]


def test_cpu_build_does_not_count_as_the_cuda_build() -> None:
    """A GPU machine that has the CPU build is told of the download; the reverse needs none."""
    wanted = downloads.parts(VERSION, "cuda", ())[:1]
    assert downloads.still_to_come(wanted, ["torch-2.13.0+cpu.dist-info"]) == wanted
    assert downloads.still_to_come(wanted, ["torch-2.13.0.dist-info"]) == []
    assert downloads.still_to_come(wanted, ["torch-2.13.0+cu130.dist-info"]) == []
    cpu = downloads.parts(VERSION, "cpu", ())[:1]
    assert downloads.still_to_come(cpu, ["torch-2.13.0.dist-info"]) == []


def test_the_constraints_hold_the_two_pins() -> None:
    """The contract's pins: torch exactly, and PySide6 below the release that aborts."""
    text = (Path(__file__).parents[2] / "packaging" / "constraints.txt").read_text()
    assert downloads.pinned_torch(text) == VERSION
    assert "PySide6-Essentials<6.12" in text.splitlines()
