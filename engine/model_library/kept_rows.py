"""Small JSON files of what was measured of models, kept from one start to the next.

A file that cannot be read counts as empty, one that cannot be written is told in the log: a
measured figure is worth having, not worth an error.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

log = logging.getLogger("engine.model_library")

T = TypeVar("T")
_FILE_VERSION = 1
_WEIGHT_SUFFIXES = (".gguf", ".safetensors")


class ModelFiles(NamedTuple):
    """Which files were measured: others under the same path are another model."""

    path: str
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, model_path: str) -> ModelFiles:
        """Of a file, or of the weights in a folder. Raises OSError when they are not there."""
        path = Path(model_path)
        files = [path] if path.is_file() else _weight_files(path)
        stats = [each.stat() for each in files]
        return cls(
            os.path.realpath(path),
            sum(stat.st_size for stat in stats),
            max((stat.st_mtime_ns for stat in stats), default=0),
        )


def read_rows(file: Path, parse: Callable[[dict[str, Any]], T]) -> list[T]:
    """The rows, oldest first. `parse` raises KeyError, TypeError, ValueError for what is none."""
    try:
        content = json.loads(file.read_text("utf-8"))
        if content["version"] != _FILE_VERSION:
            return []
        return [parse(row) for row in content["rows"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        log.info("%s is begun anew, it is unreadable: %s", file.name, error)
        return []


def write_rows(file: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Put `rows` in the place of the file's."""
    part = file.with_suffix(".part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps({"version": _FILE_VERSION, "rows": list(rows)}), "utf-8")
        os.replace(part, file)
    except OSError as error:
        log.info("%s is not kept: %s", file.name, error)


def _weight_files(folder: Path) -> list[Path]:
    files = [each for each in sorted(folder.iterdir()) if each.suffix in _WEIGHT_SUFFIXES]
    if not files:
        raise FileNotFoundError(f"no weights in {folder}")
    return files
