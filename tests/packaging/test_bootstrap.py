"""Set-up as a person meets it: one sentence for what is missing, nothing twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import bootstrap
import environment
import system_libraries
from stamp import Stamp, fingerprint, write_stamp

ROOT = Path(__file__).parents[2]


def test_an_old_python_is_told_which_one_is_needed() -> None:
    """One sentence with both versions and the command; a new enough Python hears nothing."""
    sentence = bootstrap.python_too_old((3, 9, 2))
    assert sentence is not None
    assert "3.11 or newer" in sentence
    assert "this is 3.9" in sentence
    assert "PYTHON=python3.11" in sentence
    assert bootstrap.python_too_old((3, 11, 0)) is None
    assert bootstrap.python_too_old((4, 0)) is None


def test_recipe_names_every_file_that_decides() -> None:
    """A change to any of these must lead to a new set-up."""
    names = {path.name for path in bootstrap.recipe(ROOT)}
    assert {"pyproject.toml", "constraints.txt", "bootstrap.py", "environment.py"} <= names
    assert all(path.exists() for path in bootstrap.recipe(ROOT))


def test_missing_libraries_sentence_names_the_command() -> None:
    """Known packages come as a command, unknown libraries by their names."""
    sentence = bootstrap.missing_libraries_sentence(["libegl1", "libgl1"], ["libstrange.so.9"])
    assert "`sudo apt-get install libegl1 libgl1`" in sentence
    assert "libstrange.so.9" in sentence
    assert sentence.count(".\n") == 0
    assert sentence.endswith(".")


def test_finished_environment_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a stamp that covers the wish no program is started and nothing is said."""
    python = environment.venv_python(tmp_path)
    python.parent.mkdir()
    python.touch()
    write_stamp(tmp_path, Stamp(fingerprint(bootstrap.recipe(ROOT)), "cpu", ("dev", "test")))
    monkeypatch.setattr(bootstrap, "VENV", tmp_path)
    monkeypatch.setattr(subprocess, "Popen", None)
    assert bootstrap.main(["--extras", "test"]) == 0
    assert bootstrap.main(["--device", "cpu"]) == 0
    assert capsys.readouterr().out == ""


def test_failed_set_up_is_one_sentence_and_leaves_no_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 and the reason on stderr; the next call starts set-up again."""

    def fail(venv: Path) -> None:
        raise environment.SetupError("Something is missing.")

    write_stamp(tmp_path, Stamp("an older recipe", "cpu", ()))
    monkeypatch.setattr(bootstrap, "VENV", tmp_path)
    monkeypatch.setattr(environment, "make_venv", fail)
    assert bootstrap.main([]) == 1
    assert capsys.readouterr().err == "Something is missing.\n"
    assert list(tmp_path.iterdir()) == []


def test_half_installed_packages_are_removed(tmp_path: Path) -> None:
    """pip writes RECORD last: without one the package must be installed again."""
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    for folder in ("whole-1.dist-info", "half-1.dist-info", "~orch", "whole"):
        (site / folder).mkdir(parents=True)
    (site / "whole-1.dist-info" / "RECORD").touch()
    environment.repair(tmp_path)
    assert sorted(p.name for p in site.iterdir()) == ["whole", "whole-1.dist-info"]
    assert environment.installed_distributions(tmp_path) == ["whole-1.dist-info"]


def test_only_a_working_python_of_our_version_is_usable(tmp_path: Path) -> None:
    """A missing or broken interpreter means a new environment."""
    assert environment.usable(Path(sys.executable))
    assert not environment.usable(tmp_path / "python")
    broken = tmp_path / "broken"
    broken.write_text("")
    broken.chmod(0o755)
    assert not environment.usable(broken)


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("WARNING: x\nERROR: first\nERROR: No matching distribution found for a\n", "found for a."),
        ("something else went wrong.\n", "went wrong."),
        ("", "no reason."),
    ],
)
def test_pip_reason_is_its_last_error(log: str, reason: str) -> None:
    """The sentence ends in what pip said last, with one full stop."""
    assert environment.pip_reason(log).endswith(reason)


def test_missing_ensurepip_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian splits it off: without root the command is named."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(system_libraries, "may_use_apt", lambda: False)
    with pytest.raises(environment.SetupError, match=r"apt-get install python3\.\d+-venv`"):
        environment.require_ensurepip()


def test_failing_pip_is_told_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pip that fails gives its error, what to check and where its output lies."""
    pip = tmp_path / "pip"
    pip.write_text("#!/bin/sh\necho 'ERROR: the index is down' >&2\nexit 3\n")
    pip.chmod(0o755)
    monkeypatch.setattr(environment, "venv_python", lambda venv: pip)
    with pytest.raises(environment.SetupError, match=r"torch: the index is down\. Check"):
        environment.pip_install(tmp_path, "torch", ["torch"])
    assert (tmp_path / "bootstrap.log").read_text() == "ERROR: the index is down\n"


def test_long_steps_show_a_sign_of_life(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step that outlasts the heartbeat says that it is still at work."""
    monkeypatch.setattr(environment, "HEARTBEAT_S", 0.05)
    process = subprocess.Popen(["sleep", "0.2"])
    assert environment.wait_with_heartbeat(process, "torch") == 0
    assert "still installing torch" in capsys.readouterr().out


def test_the_bootstrap_can_be_parsed_by_older_pythons() -> None:
    """Without that it could not say which Python is needed."""
    import ast

    for path in sorted((ROOT / "packaging").glob("*.py")):
        ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
