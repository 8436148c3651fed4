"""The figures of the chosen runs side by side, as labels in a grid: read by screen readers too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QSizePolicy, QWidget

from app.telemetry.labels import ThemedLabel
from app.theme import LABEL_PX, Theme

PX = LABEL_PX + 0.5
FIGURE_WIDTH, COLUMN_GAP = 36, 8
FULL = 5  # as many columns take the whole width; fewer stand together on the left
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


@dataclass(frozen=True, slots=True)
class TableCell:
    """A figure, the ratio in a quieter tone beside it, and whether it is the best of its row."""

    text: str
    ratio: str = ""
    is_best: bool = False


@dataclass(frozen=True, slots=True)
class TableRow:
    """What is compared, and a cell a run."""

    title: str
    cells: tuple[TableCell, ...]


class FiguresTable(QWidget):
    """A column a run: its name above, two for each figure and ratio below, so that they align."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._header: tuple[str, ...] = ()
        self._rows: tuple[TableRow, ...] = ()
        self._labels: list[ThemedLabel] = []
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(4)
        self._grid.setVerticalSpacing(3)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)

    def set_theme(self, theme: Theme) -> None:
        """Draw with other colours or sizes."""
        self._theme = theme
        for label in self._labels:
            label.set_theme(theme)

    def set_table(self, header: Sequence[str], rows: Sequence[TableRow]) -> None:
        """Show these; nothing happens when they are shown already."""
        if (self._header, self._rows) == (tuple(header), tuple(rows)):
            return
        self._header, self._rows = tuple(header), tuple(rows)
        self._clear()
        for number, name in enumerate(header):
            label = self._add(name, "text", bold=True)
            label.setWordWrap(True)
            label.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignBottom)
            # Right over its figures; a long name has the room of the ratio on its left as well.
            first = max(1, 2 * number)
            self._grid.addWidget(label, 0, first, 1, 2 * number + 2 - first)
            self._grid.setColumnStretch(1 + 2 * number, 1)
            self._grid.setColumnMinimumWidth(1 + 2 * number, COLUMN_GAP + FIGURE_WIDTH)
        self._grid.setColumnStretch(1 + 2 * len(header), max(0, FULL - len(header)))
        for place, row in enumerate(rows, start=1):
            title = self._add(row.title, "muted")
            title.setMinimumWidth(title.sizeHint().width() + COLUMN_GAP)
            self._grid.addWidget(title, place, 0)
            for number, cell in enumerate(row.cells):
                figure = self._add(cell.text, "text", bold=cell.is_best)
                ratio = self._add(cell.ratio, "faint")
                ratio.setMinimumWidth(ratio.fontMetrics().horizontalAdvance("0.000x"))
                self._grid.addWidget(figure, place, 1 + 2 * number, RIGHT)
                self._grid.addWidget(ratio, place, 2 + 2 * number, RIGHT)

    def texts(self) -> list[list[str]]:
        """The table as it is read: a line a row, figure and ratio joined."""
        lines = [["", *self._header]]
        for row in self._rows:
            figures = (f"{cell.text} {cell.ratio}".strip() for cell in row.cells)
            lines.append([row.title, *figures])
        return lines

    def _add(self, text: str, token: str, *, bold: bool = False) -> ThemedLabel:
        label = ThemedLabel(self._theme, PX, token, bold=bold)
        label.setText(text)
        self._labels.append(label)
        return label

    def _clear(self) -> None:
        for label in self._labels:
            self._grid.removeWidget(label)
            label.hide()
            label.deleteLater()
        self._labels = []
        for column in range(self._grid.columnCount()):
            self._grid.setColumnStretch(column, 0)
            self._grid.setColumnMinimumWidth(column, 0)
