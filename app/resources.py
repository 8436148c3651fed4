"""Read access to the files in `resources/`, wherever the program is installed."""

from __future__ import annotations

import importlib.resources
from contextlib import AbstractContextManager
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath


def read_text(name: str) -> str:
    """Text of a resource, e.g. "themes/dark.toml". Raises ValueError outside of `resources/`."""
    return read_bytes(name).decode("utf-8")


def read_bytes(name: str) -> bytes:
    """Bytes of a resource. Raises ValueError for a name that leads outside of `resources/`."""
    return _entry(name).read_bytes()


def as_file(name: str) -> AbstractContextManager[Path]:
    """A resource as a file for as long as it is needed, also where it lies in an archive."""
    return importlib.resources.as_file(_entry(name))


def names(folder: str, *suffixes: str) -> list[str]:
    """The resources of a folder that end in one of `suffixes`, sorted, e.g. "styles/00.qss"."""
    entries = files("resources").joinpath(folder).iterdir()
    return sorted(f"{folder}/{entry.name}" for entry in entries if entry.name.endswith(suffixes))


def _entry(name: str) -> Traversable:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"not a resource name: {name!r}")
    return files("resources").joinpath(*path.parts)
