"""What Qt needs of the system: finds what is missing and gets it where that is allowed.

The dynamic linker itself is asked, on the very files that were installed; the table only
translates its answer into the names of Debian's packages. Standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

# Shared library -> the package of Debian and Ubuntu that brings it.
PACKAGES = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libGLX.so.0": "libglx0",
    "libOpenGL.so.0": "libopengl0",
    "libX11.so.6": "libx11-6",
    "libX11-xcb.so.1": "libx11-xcb1",
    "libdbus-1.so.3": "libdbus-1-3",
    "libfontconfig.so.1": "libfontconfig1",
    "libfreetype.so.6": "libfreetype6",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libgthread-2.0.so.0": "libglib2.0-0",
    "libgssapi_krb5.so.2": "libgssapi-krb5-2",
    "libstdc++.so.6": "libstdc++6",
    "libxcb.so.1": "libxcb1",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-render.so.0": "libxcb-render0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-shm.so.0": "libxcb-shm0",
    "libxcb-sync.so.1": "libxcb-sync1",
    "libxcb-util.so.1": "libxcb-util1",
    "libxcb-xfixes.so.0": "libxcb-xfixes0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libxkbcommon.so.0": "libxkbcommon0",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
    "libz.so.1": "zlib1g",
    "libzstd.so.1": "libzstd1",
}

# Any package of a group will do; the first is the one to install. Latin text and code come with
# the program: these are for emoji, for Chinese, Japanese and Korean, and for everything else.
FONT_GROUPS = (
    ("fonts-dejavu-core", "fonts-noto-core"),
    ("fonts-noto-color-emoji",),
    ("fonts-wqy-microhei", "fonts-noto-cjk", "fonts-wqy-zenhei", "fonts-droid-fallback"),
)

# Loaded by Qt at run time: the window itself, unattended runs, and the modules that we import.
QT_FILES = (
    "Qt/plugins/platforms/libqxcb.so",
    "Qt/plugins/platforms/libqoffscreen.so",
    "QtGui.abi3.so",
    "QtWidgets.abi3.so",
    "QtSvg.abi3.so",
)


class AptError(Exception):
    """apt-get did not install; the message is its last line."""


def unresolved(ldd_output: str) -> set[str]:
    """The libraries that `ldd` reports as not found."""
    return set(re.findall(r"^\s*(\S+) => not found", ldd_output, flags=re.MULTILINE))


def missing_libraries(pyside: Path) -> set[str]:
    """Libraries that Qt, installed in `pyside`, asks for in vain. Empty where ldd is unknown."""
    ldd = shutil.which("ldd")
    files = [str(pyside / name) for name in QT_FILES if (pyside / name).exists()]
    if ldd is None or not files:
        return set()
    answer = subprocess.run([ldd, *files], capture_output=True, text=True, check=False)
    return unresolved(answer.stdout)


def packages_for(libraries: set[str]) -> tuple[list[str], list[str]]:
    """Packages that bring `libraries`, and the libraries that no package is known for; sorted."""
    known = sorted({PACKAGES[name] for name in libraries if name in PACKAGES})
    return known, sorted(name for name in libraries if name not in PACKAGES)


def missing_fonts(installed: set[str]) -> list[str]:
    """The font package to install for each group of which nothing is `installed`."""
    return [group[0] for group in FONT_GROUPS if not installed.intersection(group)]


def installed_packages(names: list[str]) -> set[str] | None:
    """Those of `names` that dpkg has installed; None where there is no dpkg."""
    query = shutil.which("dpkg-query")
    if query is None:
        return None
    answer = subprocess.run(
        [query, "-W", "-f", "${Package} ${db:Status-Status}\n", *names],
        capture_output=True,
        text=True,
        check=False,  # 1 when a name is unknown, the others are answered all the same
    )
    return {line.split()[0] for line in answer.stdout.splitlines() if line.endswith(" installed")}


def fonts_to_install() -> list[str]:
    """Font packages this Debian or Ubuntu lacks; empty on other systems."""
    installed = installed_packages([name for group in FONT_GROUPS for name in group])
    return [] if installed is None else missing_fonts(installed)


def may_use_apt() -> bool:
    """Whether packages can be installed without asking anybody: root, and apt-get present."""
    return hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get") is not None


def apt_command(packages: list[str]) -> str:
    """The command a person types to install `packages`."""
    return "sudo apt-get install " + " ".join(packages)


def apt_install(packages: list[str]) -> None:
    """Install packages, the package lists refreshed only if that is needed. Raises AptError."""
    wait = "DPkg::Lock::Timeout=120"  # another apt may be at work
    install = ["apt-get", "-qq", "-y", "-o", wait, "--no-install-recommends", "install", *packages]
    if _apt(install).returncode == 0:
        return
    _apt(["apt-get", "-qq", "update"])
    answer = _apt(install)
    if answer.returncode != 0:
        lines = (answer.stderr.strip() or answer.stdout.strip()).splitlines()
        raise AptError(lines[-1] if lines else f"apt-get ended with {answer.returncode}")


def _apt(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env=environment,
    )
