"""Bounded, checked access to a checkpoint's files; every failure is told as a CheckpointError."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.events import LoadFailureKind
from engine.session import EngineError

MAX_JSON_BYTES = 64 * 2**20  # the largest index files known take 10 MB
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_WEB_PAGE = (b"<!doctype html", b"<html")
_ZIP = b"PK\x03\x04"
_PICKLE = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_NO_PICKLE = "Choose the model's safetensors or GGUF version."


class CheckpointError(EngineError):
    """A model that cannot be opened. `kind` is the LoadFailed kind it amounts to."""

    def __init__(self, kind: LoadFailureKind, what: str, why: str, next_step: str) -> None:
        super().__init__(what, why, next_step)
        self.kind: LoadFailureKind = kind


def bad_file(path: Path, why: str, next_step: str = "Download the file again.") -> CheckpointError:
    """The error for a file whose content is broken."""
    return CheckpointError("bad_file", f"{path.name} cannot be read.", why, next_step)


def unsupported(name: str, why: str, next_step: str) -> CheckpointError:
    """The error for a valid model that this program has no code for."""
    return CheckpointError("unsupported", f"{name} is not supported.", why, next_step)


def checked_size(path: Path) -> int:
    """Size in bytes of a regular file that has content of its own.

    Raises CheckpointError for a missing or unreadable file, an empty one, a Git LFS pointer, and a
    web page, an archive or a pickle under the file's name.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(64)
    except FileNotFoundError:
        raise CheckpointError(
            "not_found",
            f"{path.name} was not found.",
            f"There is no file {path}.",
            "Check the path, or choose another model.",
        ) from None
    except OSError as error:
        raise CheckpointError(
            "bad_file",
            f"{path.name} cannot be opened.",
            f"{error.strerror or error}.",
            "Check that the file can be read, or choose another model.",
        ) from error
    if not start:
        raise bad_file(path, "The file is empty.")
    if start.startswith(_LFS_POINTER):
        raise bad_file(
            path,
            "It is a Git LFS pointer: a note of where the file lies, not the file itself.",
            "Run `git lfs pull` in its folder, or download the file itself.",
        )
    if start.lstrip().lower().startswith(_WEB_PAGE):
        raise bad_file(path, "It is a web page saved under this name.")
    if start.startswith(_ZIP):
        raise bad_file(path, "It is a zip archive, as pickled PyTorch weights are.", _NO_PICKLE)
    if start.startswith(_PICKLE) and start[8:9] != b"{":  # else: the length of a safetensors header
        raise bad_file(path, "It is a pickle, and opening a pickle can run any code.", _NO_PICKLE)
    return size


def read_json(path: Path, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """The JSON object in a file. Raises CheckpointError when it is not one, or too large."""
    size = checked_size(path)
    if size > max_bytes:
        raise bad_file(path, f"It has {size:,} bytes; at most {max_bytes:,} make sense for it.")
    try:
        return parse_json_object(path.read_bytes())
    except (OSError, ValueError) as error:
        raise bad_file(path, f"It is not valid JSON: {error}.") from error


def read_json_if_present(path: Path) -> dict[str, Any]:
    """Like read_json, an empty object for a file that does not exist."""
    return read_json(path) if path.exists() else {}


def parse_json_object(data: bytes) -> dict[str, Any]:
    """A JSON object, no key of which may come twice. Raises ValueError, also for deep nesting."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique_keys)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it does not hold an object")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the name {key!r} comes twice")
            seen.add(key)
    return values


class Fields:
    """Checked reading of a metadata mapping; errors name the field and the file it is in."""

    def __init__(self, values: Mapping[str, Any], path: Path, prefix: str = "") -> None:
        self._values = values
        self._path = path
        self._prefix = prefix

    def __contains__(self, name: str) -> bool:
        return self._values.get(self._prefix + name) is not None

    def nested(self, value: Any, name: str) -> Fields:
        """The fields of an object within these. Raises CheckpointError when it is none."""
        if not isinstance(value, dict):
            raise self.error(name, "is not an object")
        return Fields(value, self._path)

    def raw(self, name: str) -> Any:
        """The value as it is, None when absent."""
        return self._values.get(self._prefix + name)

    def integer(self, name: str, high: int, default: int | None = None) -> int:
        """A whole number from 1 to `high`. Raises CheckpointError."""
        value = self._required(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= high:
            raise self.error(name, f"is {_short(value)}, not a whole number from 1 to {high:,}")
        return value

    def number(self, name: str, low: float, high: float, default: float | None = None) -> float:
        """A finite number above `low` and at most `high`. Raises CheckpointError."""
        value = self._required(name, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not low < value <= high:
            raise self.error(
                name, f"is {_short(value)}, not a number above {low:g} and up to {high:g}"
            )
        return float(value)

    def optional_number(self, name: str, low: float, high: float) -> float | None:
        """Like number, None when absent."""
        return self.number(name, low, high) if name in self else None

    def flag(self, name: str, default: bool) -> bool:
        """True or false. Raises CheckpointError."""
        value = self._required(name, default)
        if not isinstance(value, bool):
            raise self.error(name, f"is {_short(value)}, neither true nor false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A string. Raises CheckpointError."""
        value = self._required(name, default)
        if not isinstance(value, str):
            raise self.error(name, f"is {_short(value)}, not a text")
        return value

    def error(self, name: str, why: str) -> CheckpointError:
        """The error for a field that makes no sense."""
        return bad_file(self._path, f"Its field {self._prefix}{name} {why}.")

    def _required(self, name: str, default: Any) -> Any:
        value = self.raw(name)
        if value is None:
            value = default
        if value is None:
            raise self.error(name, "is missing")
        return value


def _short(value: object) -> str:
    text = repr(value) if not isinstance(value, list | dict) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else text[:37] + "..."
