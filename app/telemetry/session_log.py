"""All finished rows of this session, complete but bounded in memory, ready to be copied out."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from app.telemetry.csv_tables import COLUMNS, Value, append, file_of, lines, set_aside_if_foreign

# A table keeps this much in memory; a longer session continues in a temporary file.
MEMORY_BYTES = 1_000_000


class SessionLog:
    """Collects CSV lines a table and brings folders up to date with them.

    A folder always gets the session from its start, each row once, however often it is asked.
    """

    def __init__(self) -> None:
        self._files = contextlib.ExitStack()
        self._spools: dict[str, IO[bytes]] = {}
        for table in COLUMNS:
            spool = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115
            self._spools[table] = self._files.enter_context(spool)
        self._sizes = dict.fromkeys(COLUMNS, 0)
        self._written: dict[Path, int] = {}

    def add(self, table: str, rows: Sequence[Sequence[Value]]) -> None:
        """Add finished rows of a table. Raises OSError when the temporary file cannot grow."""
        if not rows:
            return
        data = lines(rows)
        spool = self._spools[table]
        spool.seek(self._sizes[table])
        spool.write(data)
        self._sizes[table] += len(data)

    def bring_up_to_date(self, folder: Path) -> None:
        """Append to the folder's four tables what they lack of this session. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        for table in COLUMNS:
            path = file_of(folder, table).resolve()
            start = self._written.get(path, 0) if set_aside_if_foreign(path, table) else 0
            if start == self._sizes[table] and path in self._written and path.exists():
                continue
            self._spools[table].seek(start)
            append(path, table, self._spools[table])
            self._written[path] = self._sizes[table]

    def close(self) -> None:
        """Drop everything."""
        self._files.close()
