"""Writes down what the panels' model is told, so that it can be played again."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from app.replay.encoding import Object, encode
from app.replay.items import (
    KINDS,
    TEXT_FIELDS,
    Item,
    ModelDropped,
    RequestPainted,
    RequestSent,
    without_traces,
)
from app.replay.recording import FORMAT, VERSION, Header, header_line, line_of
from engine.events import Event, LoadEvent
from engine.sensors import SensorSample

_log = logging.getLogger("app.replay")

BATCH_BYTES = 64_000  # of lines, kept in memory before they go to the file


class SessionRecorder:
    """Collects the session as lines in a temporary file without a name.

    Texts are kept apart, in memory only: what people write never reaches the disk unless they
    save it. Nothing raises here but `save`; if the temporary file fails, collecting ends.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._t0_ns = clock()
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._files = contextlib.ExitStack()
        self._spool: IO[bytes] | None = None
        self._spooled_bytes = 0
        self._batch: list[bytes] = []
        self._batch_bytes = 0
        self._texts = bytearray()  # a line for each line: what belongs into it, often nothing
        self._is_over = False

    # --- what happens ---------------------------------------------------------------------

    def request_sent(self, request_id: str, t_ns: int) -> None:
        """The person pressed Send."""
        self._add(RequestSent(request_id, t_ns))

    def request_painted(self, request_id: str, index: int, t_ns: int) -> None:
        """The conversation shows the tokens up to `index` of this request since `t_ns`."""
        self._add(RequestPainted(request_id, index, t_ns))

    def handle_events(self, events: Sequence[Event | LoadEvent]) -> None:
        """Take in what the engine said, in order."""
        for event in events:
            if type(event).__name__ in KINDS:
                self._add(event)

    def handle_sample(self, sample: SensorSample) -> None:
        """Take in a sensor reading."""
        self._add(sample)

    def model_dropped(self) -> None:
        """The model is gone."""
        self._add(ModelDropped(self._clock()))

    # --- what others ask ------------------------------------------------------------------

    def save(self, path: Path, *, with_text: bool) -> None:
        """Write the session so far. Raises OSError; a file that was there stays as it was then."""
        header = Header(FORMAT, VERSION, self._started_at, self._t0_ns, with_text)
        passing = path.with_name(path.name + ".part")
        try:
            with passing.open("wb") as file:
                file.write(header_line(header))
                file.writelines(self._lines(with_text))
            passing.replace(path)
        finally:
            passing.unlink(missing_ok=True)

    def close(self) -> None:
        """Drop everything. What still comes is not kept."""
        self._is_over = True
        self._batch.clear()
        self._texts.clear()
        self._files.close()

    # --- private --------------------------------------------------------------------------

    def _add(self, item: Item) -> None:
        if self._is_over:
            return
        kind = type(item).__name__
        fields = encode(without_traces(item))
        texts = {n: fields.pop(n) for n in TEXT_FIELDS.get(kind, ()) if n in fields}
        # A dict a token would take ten times the bytes.
        self._texts += (json.dumps(texts).encode() if texts else b"") + b"\n"
        line = line_of(kind, getattr(item, "t_ns", None) or self._clock(), fields)
        self._batch.append(line)
        self._batch_bytes += len(line)
        if self._batch_bytes >= BATCH_BYTES:
            self._put_away()

    def _put_away(self) -> None:
        data = b"".join(self._batch)
        try:
            if self._spool is None:
                file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
                self._spool = self._files.enter_context(file)
            self._spool.seek(self._spooled_bytes)
            if self._spool.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            _log.warning("the session is no longer recorded: %s", error)
            self._is_over = True
        else:
            self._spooled_bytes += len(data)
            self._batch, self._batch_bytes = [], 0

    def _lines(self, with_text: bool) -> Iterator[bytes]:
        for line, texts in zip(self._stored(), io.BytesIO(self._texts), strict=True):
            yield _with(line, json.loads(texts)) if with_text and len(texts) > 1 else line

    def _stored(self) -> Iterator[bytes]:
        if self._spool is not None:
            self._spool.seek(0)
            with open(self._spool.fileno(), "rb", closefd=False) as file:
                left = self._spooled_bytes
                while left > 0 and (line := file.readline()):
                    left -= len(line)
                    yield line
        yield from self._batch


def _with(line: bytes, texts: Object) -> bytes:
    kind, t_ns, fields = json.loads(line)
    return line_of(kind, t_ns, fields | texts)
