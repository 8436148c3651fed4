"""Small files that must survive a crash: written whole or not at all, damaged ones kept aside."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Write so that the file holds either the old or the new content. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def set_aside(path: Path) -> Path:
    """Rename a damaged file to one that ends in `.bad`, and give its new name. Raises OSError."""
    target = path.with_suffix(".bad")
    number = 2
    while target.exists():
        target = path.with_suffix(f".{number}.bad")
        number += 1
    return path.replace(target)
