"""The file of a recorded session: JSON Lines, a header first, then `[kind, t_ns, fields]` each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from PySide6.QtCore import QCoreApplication

from app.replay.encoding import DamagedError, Json, decode, encode
from app.replay.items import KINDS, TEXT_FIELDS, Told, fault_of

FORMAT = "phasescope-recording"
VERSION = 1
SUFFIX = "phasescope"
# A day of decoding fits; what is larger was not written by this program.
MAX_LINE_BYTES = 16_000_000
MAX_BYTES = 1_000_000_000


class RecordingError(Exception):
    """A file that cannot be played, said in a sentence."""


@dataclass(frozen=True, slots=True)
class Header:
    """The first line. `t0_ns` is where the session began on the engine's clock."""

    format: str
    version: int
    started_at: str  # ISO 8601, UTC
    t0_ns: int
    has_text: bool


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded session; `items` in the order in which they happened."""

    header: Header
    items: tuple[Told, ...]

    @property
    def t0_ns(self) -> int:
        """Where it begins on its own clock."""
        return self.header.t0_ns

    @property
    def end_ns(self) -> int:
        """When the last thing happened."""
        return self.items[-1].t_ns


def line_of(kind: str, t_ns: int, fields: Json) -> bytes:
    """One line of the file."""
    return json.dumps([kind, t_ns, fields], separators=(",", ":")).encode() + b"\n"


def header_line(header: Header) -> bytes:
    """The first line of the file."""
    return json.dumps(encode(header), separators=(",", ":")).encode() + b"\n"


def read_recording(path: Path) -> Recording:
    """Read a recorded session. Raises RecordingError, a sentence, for whatever is wrong with it."""
    try:
        with path.open("rb") as file:
            return _read(file)
    except OSError as error:
        raise RecordingError(
            _tr("It cannot be read: {0}. Check the path and who may read it.").format(
                error.strerror
            )
        ) from None


def _read(file: IO[bytes]) -> Recording:
    lines = _lines(file)
    header = _header(next(lines, b""))
    items = list(_items(lines))
    if not items:
        raise RecordingError(_tr("The recording is empty; record a session with an answer in it."))
    # What the window sees itself it tells before events that happened earlier but come in batches.
    items.sort(key=lambda told: told.t_ns)
    return Recording(header, tuple(items))


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines with their ends; a last one without is half a line."""
    total = 0
    while line := file.readline(MAX_LINE_BYTES):
        total += len(line)
        if total > MAX_BYTES:
            raise RecordingError(_tr("The recording is too long to be played."))
        yield line


def _header(line: bytes) -> Header:
    try:
        found = _json(line)
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise DamagedError
        if isinstance(version := found.get("version"), int) and version > VERSION:
            raise RecordingError(
                _tr("The recording was made by a newer version of this program; update it.")
            )
        header: Header = decode(Header, found)
    except DamagedError:
        raise RecordingError(
            _tr("This is not a recorded session; choose a file that Save recording… wrote.")
        ) from None
    return header


def _items(lines: Iterable[bytes]) -> Iterator[Told]:
    for number, line in enumerate(lines, 2):
        if not line.endswith(b"\n"):
            sentence = _tr(
                "The recording ends in the middle of line {0}; copy the whole file again."
            )
            raise RecordingError(sentence.format(number))
        try:
            told = _told(line)
        except DamagedError as error:
            sentence = _tr("Line {0} of the recording is damaged: {1}.")
            raise RecordingError(sentence.format(number, error)) from None
        if told is not None:
            yield told


def _told(line: bytes) -> Told | None:
    """What a line says, None if it is of a kind that this version does not know."""
    match _json(line):
        case [str(name), int(t_ns), fields] if type(t_ns) is int:
            kind = KINDS.get(name)
        case _:
            raise DamagedError("not an event")
    if kind is None:
        return None
    item = decode(kind, fields, TEXT_FIELDS.get(name, ()))
    if fault := fault_of(item):
        raise DamagedError(f"{name} has {fault}")
    if abs(t_ns) >= 2**63:
        raise DamagedError("a time out of range")
    return Told(t_ns, item)


def _json(line: bytes) -> Json:
    try:
        return json.loads(line)
    # ValueError: also bytes that are no text, and numbers of thousands of digits.
    except (ValueError, RecursionError):
        raise DamagedError("not JSON") from None


def _tr(text: str) -> str:
    return QCoreApplication.translate("Recording", text)
