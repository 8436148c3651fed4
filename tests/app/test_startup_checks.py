"""What is said before Qt would abort the process."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from app.startup_checks import has_display, missing_library_sentence, problem_before_qt


def test_no_display_names_the_unattended_mode() -> None:
    """On a server the sentence says what is missing and what works there."""
    problem = problem_before_qt({}, "linux")
    assert problem is not None
    assert "no display" in problem
    assert "--exit-when-done" in problem


@pytest.mark.parametrize(
    "display", ["", ":", ":x", "nonsense", ":999999", "no-such-host.invalid:0"]
)
def test_unusable_displays(display: str) -> None:
    """A DISPLAY that nobody answers counts as none."""
    assert not has_display({"DISPLAY": display})


def test_wayland_socket_counts(tmp_path: Path) -> None:
    """A Wayland server that listens is a display."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(tmp_path / "wayland-0"))
        server.listen(1)
        assert has_display({"WAYLAND_DISPLAY": "wayland-0", "XDG_RUNTIME_DIR": str(tmp_path)})


@pytest.mark.parametrize("platform", ["offscreen", "minimal", "offscreen:enable_fonts"])
def test_offscreen_needs_no_display(platform: str) -> None:
    """The unattended mode is not stopped."""
    assert problem_before_qt({"QT_QPA_PLATFORM": platform}, "linux") is None


def test_other_systems_are_left_alone() -> None:
    """Windows and macOS have no DISPLAY."""
    assert problem_before_qt({}, "darwin") is None


def test_missing_library_names_its_package() -> None:
    """A loader's message becomes a command that mends it."""
    error = "libxcb-cursor.so.0: cannot open shared object file: No such file or directory"
    sentence = missing_library_sentence(error)
    assert sentence is not None
    assert "apt-get install libxcb-cursor0" in sentence
    assert missing_library_sentence(None) is None
    assert "libfoo.so.3" in (missing_library_sentence("libfoo.so.3: cannot open shared") or "")
