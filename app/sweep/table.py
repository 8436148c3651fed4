"""The rows of a sweep: figures sorted by any column, what was left out with its reason."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableWidget, QTableWidgetItem

from app.sweep import words
from app.sweep.sweeping import SweepRow
from app.telemetry.format import count

ROW_ROLE = Qt.ItemDataRole.UserRole
SORT_ROLE = Qt.ItemDataRole.UserRole + 1
FIGURES = ("ttft_ms", "prefill_tok_s", "decode_tok_s", "itl_p95_ms", "kv_bytes_used")
ROW_HEIGHT = 24
NUMBERS = range(2, 3 + len(FIGURES))
LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


class _Item(QTableWidgetItem):
    """Sorts by its value, not by how that is written; what has none comes last."""

    def __lt__(self, other: QTableWidgetItem) -> bool:
        mine, others = self.data(SORT_ROLE), other.data(SORT_ROLE)
        return bool(mine < others)


class SweepTable(QTableWidget):
    """One row a combination.

    Signals:
        chosen(SweepRow | None): another row is the current one.
    """

    chosen = Signal(object)

    def __init__(self) -> None:
        titles = [*map(words.column_title, FIGURES)]
        columns = [self.tr("Weights"), self.tr("KV"), self.tr("Context"), *titles, self.tr("Note")]
        super().__init__(0, len(columns))
        self.setHorizontalHeaderLabels(columns)
        for column in range(len(columns)):
            title = self.horizontalHeaderItem(column)
            assert title is not None  # just set
            title.setTextAlignment(RIGHT if column in NUMBERS else LEFT)
        self.setAccessibleName(self.tr("Results"))
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setTabKeyNavigation(False)
        self.setObjectName("sweepTable")
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(ROW_HEIGHT)
        self.horizontalHeader().setMinimumHeight(ROW_HEIGHT)
        self.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.horizontalHeader().setStretchLastSection(True)
        self.horizontalHeader().setHighlightSections(False)
        self.setSortingEnabled(True)
        self.sortByColumn(-1, Qt.SortOrder.AscendingOrder)
        self._rows: list[SweepRow] = []
        self.currentCellChanged.connect(lambda *_: self.chosen.emit(self.current))

    @property
    def current(self) -> SweepRow | None:
        """The row that is chosen."""
        item = self.item(self.currentRow(), 0)
        return None if item is None else self._rows[item.data(ROW_ROLE)]

    def set_rows(self, rows: Sequence[SweepRow]) -> None:
        """Show these; rows that have come since are added, so that the choice stays."""
        if list(rows[: len(self._rows)]) != self._rows:
            self._rows = []
            self.setRowCount(0)
        self.setSortingEnabled(False)
        for number in range(len(self._rows), len(rows)):
            self._add(rows[number], number)
        self._rows = list(rows)
        self.setSortingEnabled(True)

    def choose(self, row: SweepRow) -> None:
        """Make a row the current one."""
        for number in range(self.rowCount()):
            item = self.item(number, 0)
            if item is not None and self._rows[item.data(ROW_ROLE)] is row:
                self.setCurrentCell(number, 0)
                return

    def _add(self, row: SweepRow, number: int) -> None:
        line = self.rowCount()
        self.insertRow(line)
        cells: list[tuple[str, str | float]] = [
            (words.format_name(row.weights), row.weights),
            (words.format_name(row.kv), row.kv),
            (count(row.prompt_tokens), float(row.prompt_tokens)),
        ]
        for name in FIGURES:
            value = row.value(name)
            cells.append((words.figure(row, name), float("inf") if value is None else value))
        cells.append((row.why, row.why))
        for column, (text, key) in enumerate(cells):
            item = _Item(text)
            item.setData(SORT_ROLE, key)
            item.setData(ROW_ROLE, number)
            if isinstance(key, float):
                item.setTextAlignment(RIGHT)
            if row.why:
                item.setToolTip(row.why)
            self.setItem(line, column, item)


def as_csv(rows: Sequence[SweepRow]) -> str:
    """All rows for scripts: columns as in requests.csv, and why a combination was left out."""
    names = (
        *("model", "device", "threads", "completion_tokens", "load_s", "ttft_ms", "prefill_tok_s"),
        *("decode_tok_s", "itl_p50_ms", "itl_p90_ms", "itl_p95_ms", "itl_p99_ms"),
        *("weight_bytes", "kv_bytes_used", "kv_bytes_reserved", "peak_memory_bytes", "kernels"),
    )
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["weight_format", "kv_format", "prompt_tokens", *names, "left_out_because"])
    for row in rows:
        figures = [
            row.value(name) if name.startswith("itl_") else row.figures.get(name) for name in names
        ]
        writer.writerow([row.weights, row.kv, row.prompt_tokens, *figures, row.why])
    return text.getvalue()
