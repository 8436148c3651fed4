"""The virtual environment: made, repaired after an interruption, and filled by pip.

Standard library only, and readable by older Pythons than the project needs.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import system_libraries

HEARTBEAT_S = 20.0


class SetupError(Exception):
    """Set-up cannot go on; the message says in a sentence what is missing and what mends it."""


def say(line: str) -> None:
    """Write a progress line."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def venv_python(venv: Path) -> Path:
    """The interpreter inside an environment."""
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def usable(python: Path) -> bool:
    """Whether `python` runs, is of our own version and has a working pip."""
    code = "import sys, pip; print(*sys.version_info[:2])"
    try:
        answer = subprocess.run(
            [str(python), "-c", code], capture_output=True, text=True, check=False
        )
    except OSError:
        return False
    return answer.returncode == 0 and answer.stdout.split() == list(map(str, sys.version_info[:2]))


def make_venv(venv: Path) -> None:
    """Make the environment anew unless a usable one is there. Raises SetupError."""
    if usable(venv_python(venv)):
        repair(venv)
        return
    require_ensurepip()
    command = [sys.executable, "-m", "venv", "--clear", str(venv)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        reason = (answer.stderr + answer.stdout).strip().splitlines() or ["no reason given"]
        raise SetupError(f"The virtual environment could not be made: {reason[-1]}")


def require_ensurepip() -> None:
    """Debian keeps the module that brings pip in a package of its own. Raises SetupError."""
    if importlib.util.find_spec("ensurepip") is not None:
        return
    package = "python{}.{}-venv".format(*sys.version_info[:2])
    if not system_libraries.may_use_apt():
        raise SetupError(
            "This Python lacks the module ensurepip, which makes virtual environments: "
            f"`{system_libraries.apt_command([package])}` brings it."
        )
    say(f"  installing {package} (about 6 MB)")
    apt_install([package])


def repair(venv: Path) -> None:
    """Remove what an interrupted pip left: it writes RECORD last, so a package without is half.

    pip would otherwise take such a package for installed.
    """
    for site in site_packages(venv):
        for info in site.glob("*.dist-info"):
            if not (info / "RECORD").exists():
                shutil.rmtree(info)
        for leftover in site.glob("~*"):
            if leftover.is_dir():
                shutil.rmtree(leftover)


def site_packages(venv: Path) -> list[Path]:
    """The folders that hold an environment's packages."""
    return [*venv.glob("lib/python*/site-packages"), *venv.glob("Lib/site-packages")]


def pip_install(venv: Path, what: str, arguments: list[str]) -> None:
    """Run one quiet `pip install`, with a sign of life now and then. Raises SetupError."""
    say(f"  installing {what}")
    log = venv / "bootstrap.log"
    options = ["--quiet", "--no-input", "--disable-pip-version-check"]
    command = [str(venv_python(venv)), "-m", "pip", "install", *options, *arguments]
    with log.open("w", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            code = wait_with_heartbeat(process, what)
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if code != 0:
        reason = pip_reason(log.read_text(encoding="utf-8", errors="replace"))
        raise SetupError(
            f"pip could not install {what}: {reason} "
            "Check the network and pip's configuration; the same command goes on from here. "
            f"The whole story is in {log.parent.name}/{log.name}."
        )


def pip_uninstall(venv: Path, project: str) -> None:
    """Remove a package if it is there. Raises SetupError."""
    say(f"  removing the present {project}")
    command = [str(venv_python(venv)), "-m", "pip", "uninstall", "--yes", "--quiet", project]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise SetupError(f"pip could not remove {project}: {pip_reason(answer.stderr)}")


def wait_with_heartbeat(process: subprocess.Popen[bytes], what: str) -> int:
    """Wait for `process`, saying every `HEARTBEAT_S` that it is still at work."""
    started = time.monotonic()
    while True:
        try:
            return process.wait(timeout=HEARTBEAT_S)
        except subprocess.TimeoutExpired:
            say(f"    still installing {what}, {time.monotonic() - started:.0f} s")


def pip_reason(log: str) -> str:
    """pip's own last error as one sentence."""
    errors = re.findall(r"^(?:ERROR|error): *(.+)$", log, flags=re.MULTILINE)
    lines = errors or log.strip().splitlines() or ["it gave no reason"]
    return lines[-1].strip().rstrip(".") + "."


def apt_install(packages: list[str]) -> None:
    """Install system packages. Raises SetupError with the command to type."""
    try:
        system_libraries.apt_install(packages)
    except system_libraries.AptError as failure:
        raise SetupError(
            f"apt-get could not install system packages ({failure}): try "
            f"`{system_libraries.apt_command(packages)}`."
        ) from failure


def pip_versions(venv: Path, project: str) -> str:
    """The versions of `project` that pip's index offers, as pip prints them; "" if it cannot."""
    options = ["--disable-pip-version-check", "--retries", "0", "--timeout", "20"]
    query = [str(venv_python(venv)), "-m", "pip", "index", "versions", project, *options]
    answer = subprocess.run(
        query, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    return answer.stdout


def installed_distributions(venv: Path) -> list[str]:
    """The names of the metadata folders in an environment."""
    return [info.name for site in site_packages(venv) for info in site.glob("*.dist-info")]


def missing_qt_libraries(venv: Path) -> set[str]:
    """Shared libraries that the Qt in this environment asks for in vain."""
    missing: set[str] = set()
    for site in site_packages(venv):
        missing |= system_libraries.missing_libraries(site / "PySide6")
    return missing
