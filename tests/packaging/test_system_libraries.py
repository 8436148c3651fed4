"""What Qt lacks is read from the linker's answer and translated into packages."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from hypothesis import given
from hypothesis import strategies as st

import system_libraries

LDD = """\
libqxcb.so:
\tlinux-vdso.so.1 (0x00007ffd)
\tlibGL.so.1 => not found
\tlibxcb-cursor.so.0 => not found
\tlibc.so.6 => /lib/libc.so.6 (0x00007f)
libqoffscreen.so:
\tlibGL.so.1 => not found
\tlibstrange.so.9 => not found
"""


def test_unresolved_libraries_are_those_not_found() -> None:
    """Only lines that say so count, each library once."""
    expected = {"libGL.so.1", "libxcb-cursor.so.0", "libstrange.so.9"}
    assert system_libraries.unresolved(LDD) == expected


@given(st.text())
def test_any_linker_output_is_read_without_failing(output: str) -> None:
    """Whatever a strange ldd prints gives a set of names without blanks."""
    assert all(not set(name) & set(" \t\n") for name in system_libraries.unresolved(output))


def test_packages_and_unknown_libraries_are_told_apart() -> None:
    """Known libraries become packages, each once; the rest is named as it is."""
    missing = {"libglib-2.0.so.0", "libgthread-2.0.so.0", "libEGL.so.1", "libstrange.so.9"}
    assert system_libraries.packages_for(missing) == (
        ["libegl1", "libglib2.0-0"],
        ["libstrange.so.9"],
    )


def test_the_program_and_its_set_up_name_the_same_packages() -> None:
    """The window's own sentence about a missing library agrees with set-up's."""
    from app.startup_checks import DEBIAN_PACKAGES

    assert DEBIAN_PACKAGES.items() <= system_libraries.PACKAGES.items()


def test_one_font_of_each_group_is_enough() -> None:
    """Another font for the same scripts counts; nothing installed asks for one of each group."""
    assert (
        system_libraries.missing_fonts(
            {"fonts-noto-core", "fonts-noto-cjk", "fonts-noto-color-emoji"}
        )
        == []
    )
    assert system_libraries.missing_fonts(set()) == [g[0] for g in system_libraries.FONT_GROUPS]


def test_no_linker_and_no_qt_means_nothing_to_report(tmp_path: Path) -> None:
    """Systems without ldd, or without that layout of Qt, are not held up."""
    assert system_libraries.missing_libraries(tmp_path) == set()


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux linker")
def test_the_files_asked_about_exist_and_are_satisfied() -> None:
    """Set-up asks about files of the installed Qt, and this machine has what they need."""
    import PySide6

    pyside = Path(PySide6.__file__).parent
    assert [name for name in system_libraries.QT_FILES if not (pyside / name).exists()] == []
    assert system_libraries.missing_libraries(pyside) == set()


def test_apt_command_can_be_typed_as_it_is() -> None:
    """The sentence names a command, not a task."""
    assert system_libraries.apt_command(["a", "b"]) == "sudo apt-get install a b"


def test_apt_refreshes_its_lists_only_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh machine has no package lists: install, update, install; else one call is enough."""
    calls: list[str] = []
    results = iter([100, 0, 0])

    def fake_apt(command: list[str]) -> CompletedProcess[str]:
        calls.append("update" if "update" in command else "install")
        return CompletedProcess(command, next(results), "", "E: no such package")

    monkeypatch.setattr(system_libraries, "_apt", fake_apt)
    system_libraries.apt_install(["libegl1"])
    assert calls == ["install", "update", "install"]


def test_apt_failure_tells_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """What apt-get said last is the reason that is shown."""
    monkeypatch.setattr(
        system_libraries, "_apt", lambda command: CompletedProcess(command, 100, "", "x\nE: no\n")
    )
    with pytest.raises(system_libraries.AptError, match=r"^E: no$"):
        system_libraries.apt_install(["libegl1"])
