"""The list of models as an item model: a heading a source, a row a model, cells of two lines."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QObject, QSortFilterProxyModel, Qt
from PySide6.QtGui import QStandardItem, QStandardItemModel

from app.model_library.row_texts import CellText, column_titles, source_title
from engine.model_library.entries import ModelEntry, Source

BELOW_ROLE = Qt.ItemDataRole.UserRole + 1  # the quiet second line
ENTRY_ROLE = Qt.ItemDataRole.UserRole + 2  # ModelEntry, None for headings
SEARCH_ROLE = Qt.ItemDataRole.UserRole + 3  # everything a search looks at
LOADABLE_ROLE = Qt.ItemDataRole.UserRole + 4
WARNS_ROLE = Qt.ItemDataRole.UserRole + 5  # the second line matters
ACCESSIBLE_ROLE = Qt.ItemDataRole.AccessibleTextRole
ORDER: tuple[Source, ...] = ("starter", "folder", "huggingface", "lm-studio", "ollama", "recent")


class PickerModel(QStandardItemModel):
    """Rows by path under the headings of their sources, in a fixed order of sources."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: dict[str, list[QStandardItem]] = {}
        self._headings: dict[Source, QStandardItem] = {}
        self._entries: dict[str, ModelEntry] = {}
        self.setHorizontalHeaderLabels(column_titles())

    def clear_entries(self) -> None:
        """Begin a new list."""
        self.removeRows(0, self.rowCount())
        self._rows.clear()
        self._headings.clear()
        self._entries.clear()

    @property
    def entries(self) -> tuple[ModelEntry, ...]:
        """Everything listed, in the order it was found."""
        return tuple(self._entries.values())

    def entry(self, path: str) -> ModelEntry | None:
        """The entry of a path."""
        return self._entries.get(path)

    def add(self, entry: ModelEntry, cells: Sequence[CellText]) -> None:
        """A row for a model that was found."""
        row = [QStandardItem() for _ in cells]
        for item in row:
            item.setEditable(False)
        self._rows[entry.path] = row
        self._entries[entry.path] = entry
        self.show_cells(entry.path, cells, loadable=not entry.problem)
        self._heading(entry.source).appendRow(row)

    def show_cells(self, path: str, cells: Sequence[CellText], *, loadable: bool) -> None:
        """What is known now about a model that is listed."""
        entry = self._entries[path]
        for item, cell in zip(self._rows[path], cells, strict=True):
            item.setText(cell.text)
            item.setData(cell.below, BELOW_ROLE)
            item.setData(cell.warns, WARNS_ROLE)
            item.setToolTip(cell.tip)
            item.setData(", ".join(filter(None, (cell.text, cell.below))), ACCESSIBLE_ROLE)
        first = self._rows[path][0]
        first.setData(entry, ENTRY_ROLE)
        first.setData(loadable, LOADABLE_ROLE)
        words = [word for cell in cells for word in (cell.text, cell.below)]
        first.setData(" ".join((entry.path, *words)), SEARCH_ROLE)

    def _heading(self, source: Source) -> QStandardItem:
        if source not in self._headings:
            heading = QStandardItem(source_title(source))
            heading.setFlags(Qt.ItemFlag.NoItemFlags)  # arrow keys pass over it
            place = sum(ORDER.index(each) < ORDER.index(source) for each in self._headings)
            self.insertRow(place, heading)
            self._headings[source] = heading
        return self._headings[source]


def search_filter(model: PickerModel, parent: QObject) -> QSortFilterProxyModel:
    """The rows that hold a text anywhere, under their headings."""
    proxy = QSortFilterProxyModel(parent)
    proxy.setSourceModel(model)
    proxy.setFilterRole(SEARCH_ROLE)
    proxy.setFilterCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)
    proxy.setRecursiveFilteringEnabled(True)
    return proxy
