"""The runs that are pinned now, those on disk included."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.run_comparison.pinned_run import PinnedRun, PinnedRunStore


class PinnedRuns(QObject):
    """Reads the folder when runs are first asked for. GUI thread only: they are few and small.

    Signals:
        changed(): a run came or went.
        problem_found(str what, str why): the disk refused, or a file is damaged.
    """

    changed = Signal()
    problem_found = Signal(str, str)

    def __init__(self, store: PinnedRunStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self._runs: dict[str, PinnedRun] | None = None

    @property
    def runs(self) -> tuple[PinnedRun, ...]:
        """All of them, newest first."""
        found = self._known().values()
        return tuple(sorted(found, key=lambda run: run.age_key, reverse=True))

    def pin(self, run: PinnedRun) -> None:
        """Keep a run, also for later starts; one that cannot be written is kept until the end."""
        if run.id in self._known():
            return
        self._known()[run.id] = run
        try:
            self._store.save(run)
        except OSError as error:
            what = self.tr("The pinned run could not be saved. It is there until you quit.")
            self.problem_found.emit(what, error.strerror or str(error))
        self.changed.emit()

    def unpin(self, run_id: str) -> None:
        """Let a run go; one whose file cannot be removed stays."""
        try:
            self._store.delete(run_id)
        except OSError as error:
            what = self.tr("The pinned run could not be removed.")
            self.problem_found.emit(what, error.strerror or str(error))
            return
        self._known().pop(run_id, None)
        self.changed.emit()

    # --- private --------------------------------------------------------------------------

    def _known(self) -> dict[str, PinnedRun]:
        if self._runs is None:
            self._runs = {}
            self._read(self._runs)
        return self._runs

    def _read(self, into: dict[str, PinnedRun]) -> None:
        try:
            runs, damaged = self._store.load_all()
        except OSError as error:
            what = self.tr("The pinned runs could not be read.")
            self.problem_found.emit(what, error.strerror or str(error))
            return
        into.update({run.id: run for run in runs})
        if damaged:
            what = self.tr("Some pinned runs are damaged and were set aside.")
            self.problem_found.emit(what, ", ".join(path.name for path in damaged))
