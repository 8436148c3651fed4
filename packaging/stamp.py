"""Remembers what an environment was made from, so that an unchanged one costs nothing to check.

Standard library only, and readable by older Pythons than the project needs.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

STAMP_NAME = "phasescope-stamp.json"


@dataclass(frozen=True)
class Stamp:
    """What is in the environment: a hash of its recipe, the device of torch, the extras."""

    fingerprint: str
    device: str
    extras: tuple[str, ...]

    def covers(self, wanted: Stamp) -> bool:
        """Whether an environment with this stamp already holds everything of `wanted`."""
        return (
            self.fingerprint == wanted.fingerprint
            and self.device == wanted.device
            and set(wanted.extras) <= set(self.extras)
        )


def fingerprint(recipe: list[Path]) -> str:
    """SHA-256 over the recipe's files and the Python that runs now."""
    digest = hashlib.sha256()
    digest.update(repr((sys.implementation.name, sys.version_info[:3])).encode())
    for path in recipe:
        content = path.read_bytes()
        digest.update(f"{path.name}:{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


def read_stamp(venv: Path) -> Stamp | None:
    """The stamp of an environment; None where there is none or it cannot be understood."""
    try:
        fields = json.loads((venv / STAMP_NAME).read_text(encoding="utf-8"))
        return Stamp(str(fields["fingerprint"]), str(fields["device"]), tuple(fields["extras"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_stamp(venv: Path, stamp: Stamp) -> None:
    """Write the stamp in one move, so that a half-written one never exists."""
    partial = venv / (STAMP_NAME + ".part")
    partial.write_text(json.dumps(asdict(stamp)), encoding="utf-8")
    os.replace(partial, venv / STAMP_NAME)


def remove_stamp(venv: Path) -> None:
    """Declare the environment unfinished: from now until `write_stamp` it is being changed."""
    (venv / STAMP_NAME).unlink(missing_ok=True)
