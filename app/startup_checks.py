"""What must be there before Qt is asked for a window: Qt aborts the process when it is not."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

# Where a library that Qt needs comes from on Debian and Ubuntu.
DEBIAN_PACKAGES = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libGLX.so.0": "libglx0",
    "libOpenGL.so.0": "libopengl0",
    "libxkbcommon.so.0": "libxkbcommon0",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
    "libdbus-1.so.3": "libdbus-1-3",
    "libfontconfig.so.1": "libfontconfig1",
    "libfreetype.so.6": "libfreetype6",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libX11.so.6": "libx11-6",
    "libX11-xcb.so.1": "libx11-xcb1",
    "libxcb.so.1": "libxcb1",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-render.so.0": "libxcb-render0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-shm.so.0": "libxcb-shm0",
    "libxcb-sync.so.1": "libxcb-sync1",
    "libxcb-util.so.1": "libxcb-util1",
    "libxcb-xfixes.so.0": "libxcb-xfixes0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
}
UNATTENDED = (
    "Without one, run unattended: QT_QPA_PLATFORM=offscreen phasescope --prompt TEXT "
    "--export DIR --screenshot FILE.png --exit-when-done."
)
CONNECT_S = 2.0


def problem_before_qt(environment: Mapping[str, str], platform: str = sys.platform) -> str | None:
    """One sentence about a missing display or system library; None when a window can open."""
    if not platform.startswith("linux") or _needs_no_display(environment):
        return None
    if not has_display(environment):
        return f"There is no display to open a window on. {UNATTENDED}"
    if "WAYLAND_DISPLAY" in environment:
        return None
    return missing_library_sentence(_load_error_of_xcb_plugin())


def has_display(environment: Mapping[str, str]) -> bool:
    """Whether a Wayland or X server named in the environment answers."""
    wayland = environment.get("WAYLAND_DISPLAY")
    if wayland:
        folder = environment.get("XDG_RUNTIME_DIR", "")
        if _answers(socket.AF_UNIX, str(Path(folder, wayland))):
            return True
    match = re.fullmatch(r"([^:]*):(\d+)(\.\d+)?", environment.get("DISPLAY", ""))
    if match is None:
        return False
    host, number = match[1], int(match[2])
    if host in ("", "unix"):
        place = f"/tmp/.X11-unix/X{number}"
        return _answers(socket.AF_UNIX, place) or _answers(socket.AF_UNIX, "\0" + place)
    return _answers(socket.AF_INET, (host, 6000 + number))


def missing_library_sentence(error: str | None) -> str | None:
    """The sentence for a loader's "libfoo.so.1: cannot open shared object file"."""
    if not error:
        return None
    match = re.search(r"(lib[\w.+-]+\.so[.\d]*): cannot open shared object", error)
    if match is None:
        return f"Qt cannot start: {error}"
    package = DEBIAN_PACKAGES.get(match[1])
    cure = f"apt-get install {package}" if package else "install the package it belongs to"
    return f"Qt needs the system library {match[1]}, which is missing; on Debian or Ubuntu: {cure}."


def _needs_no_display(environment: Mapping[str, str]) -> bool:
    platform = environment.get("QT_QPA_PLATFORM", "").partition(":")[0]
    return platform in ("offscreen", "minimal", "vnc", "linuxfb", "eglfs")


def _answers(family: socket.AddressFamily, address: str | tuple[str, int]) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.settimeout(CONNECT_S)
            connection.connect(address)
    except OSError:
        return False
    return True


def _load_error_of_xcb_plugin() -> str | None:
    spec = importlib.util.find_spec("PySide6")
    for folder in spec.submodule_search_locations or () if spec else ():
        plugin = Path(folder, "Qt", "plugins", "platforms", "libqxcb.so")
        if not plugin.exists():
            continue
        try:
            ctypes.CDLL(str(plugin), mode=os.RTLD_LAZY)
        except OSError as error:
            return str(error)
    return None
