"""The settings file: only what differs from the defaults, never a reason not to start."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any, TypeVar

from PySide6.QtCore import QObject, Signal

from app.settings.schema import SCHEMA, Setting

log = logging.getLogger("app.settings")
T = TypeVar("T")


class Settings(QObject):
    """Values by setting, kept in a JSON file. GUI thread only.

    Unknown keys of a newer version are kept in the file untouched. A value of the wrong kind
    counts as its default. A file that cannot be read at all is renamed `.bad`; `problem` then
    says so, as it does when the file cannot be written. With `read_only` changes hold for this
    session and nothing is written.

    Signals:
        changed(str key): a value is different now.
    """

    changed = Signal(str)

    def __init__(
        self, file: Path, *, read_only: bool = False, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._read_only = read_only
        self._file = file
        self._values: dict[str, Any] = {}
        self._unknown: dict[str, Any] = {}
        self.problem: str | None = None
        self._read()

    def get(self, setting: Setting[T]) -> T:
        """The present value: the person's own, or the default."""
        value: T = self._values.get(setting.key, setting.default)
        return value

    def set(self, setting: Setting[T], value: T) -> None:
        """Store a value. Raises ValueError naming the setting when it is not acceptable."""
        if not setting.accepts(value):
            raise ValueError(f"{setting.key}: {value!r} is not possible")
        if value == self.get(setting):
            return
        if value == setting.default:
            self._values.pop(setting.key, None)
        else:
            self._values[setting.key] = value
        if not self._read_only:
            self._write()
        self.changed.emit(setting.key)

    def _read(self) -> None:
        try:
            stored = json.loads(self._file.read_text("utf-8"))
            if not isinstance(stored, dict):
                raise ValueError("not a table of settings")
        except FileNotFoundError:
            return
        except (OSError, ValueError, RecursionError) as error:
            self._set_aside(error)
            return
        known = {setting.key: setting for setting in SCHEMA}
        for key, value in stored.items():
            if key not in known:
                self._unknown[key] = value
            elif known[key].accepts(value):
                self._values[key] = value
            else:
                log.info("setting %s: %r is not possible, its default is used", key, value)

    def _set_aside(self, error: Exception) -> None:
        bad = self._file.with_suffix(self._file.suffix + ".bad")
        try:
            os.replace(self._file, bad)
            kept = f"It is kept as {bad.name}."
        except OSError:
            kept = "It could not be renamed."
        log.info("settings file unreadable: %s", error)
        self.problem = f"The settings file could not be read; the defaults are used. {kept}"

    def _write(self) -> None:
        text = json.dumps(
            self._unknown | self._values, indent=2, ensure_ascii=False, sort_keys=True
        )
        part = self._file.with_suffix(".part")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(text + "\n", "utf-8")
            os.replace(part, self._file)
        except OSError as error:
            log.info("settings not saved: %s", error)
            self.problem = f"The settings could not be saved: {error.strerror}."
