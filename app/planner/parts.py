"""The planner's own widgets: a reading, the table of weights, the context's slider and field."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QSlider,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from app.planner.figures import Figure
from app.telemetry.format import NO_VALUE
from app.telemetry.labels import ThemedLabel
from app.theme import LABEL_PX, READING_PX, Theme

MIN_CONTEXT = 16
_STEPS_AN_OCTAVE = 4
_VERDICT_COLUMN = 3  # words, to the left; figures before it to the right


class FigureCard(QFrame):
    """A name over a figure with its unit in a quieter tone."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.setObjectName("planFigure")
        self._title = ThemedLabel(theme, LABEL_PX, "muted")
        self._value = ThemedLabel(theme, READING_PX, "text", bold=True)
        self._unit = ThemedLabel(theme, LABEL_PX, "muted")
        row = QHBoxLayout()
        row.setSpacing(4)
        row.addWidget(self._value, 0, Qt.AlignmentFlag.AlignBottom)
        row.addWidget(self._unit, 0, Qt.AlignmentFlag.AlignBottom)
        row.addStretch(1)
        column = QVBoxLayout(self)
        column.setContentsMargins(12, 8, 8, 8)
        column.setSpacing(0)
        column.addWidget(self._title)
        column.addLayout(row)

    @property
    def text(self) -> str:
        """The figure and its unit."""
        return f"{self._value.text()} {self._unit.text()}".strip()

    def show_figure(self, figure: Figure) -> None:
        """Show it; a figure that is not known has no unit either."""
        self._title.setText(figure.title)
        self._value.setText(figure.quantity.value)
        known = figure.quantity.value != NO_VALUE
        self._unit.setText(figure.quantity.unit if known else "")
        self.setToolTip(figure.tip)
        self.setAccessibleName(f"{figure.title}: {self.text}")

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        for label in (self._title, self._value, self._unit):
            label.set_theme(theme)


class LevelTable(QWidget):
    """Rows of text under a header; one row is the chosen one, in bold."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._rows: list[tuple[str, ...]] = []
        self._chosen = -1
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(16)
        self._grid.setVerticalSpacing(8)
        self._grid.setColumnStretch(0, 1)

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """What is shown, the header first."""
        return list(self._rows)

    def show_rows(self, rows: Sequence[tuple[str, ...]], chosen: int) -> None:
        """Show these, the header first; `chosen` counts from the header, -1: none."""
        if list(rows) == self._rows and chosen == self._chosen:
            return
        self._rows, self._chosen = list(rows), chosen
        while item := self._grid.takeAt(0):
            if (widget := item.widget()) is not None:
                widget.setParent(None)
                widget.deleteLater()
        for line, row in enumerate(rows):
            for column, text in enumerate(row):
                self._grid.addWidget(self._cell(text, line, column), line, column)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        rows, self._rows = self._rows, []
        self.show_rows(rows, self._chosen)

    def _cell(self, text: str, line: int, column: int) -> QLabel:
        is_header, is_chosen = line == 0, line == self._chosen
        size = LABEL_PX + 0.5 if is_header else LABEL_PX + 1
        tone = "text" if is_chosen or (column == 0 and not is_header) else "muted"
        label = ThemedLabel(self._theme, size, tone, bold=is_chosen)
        label.setText(text)
        right = (
            Qt.AlignmentFlag.AlignRight
            if 0 < column < _VERDICT_COLUMN
            else Qt.AlignmentFlag.AlignLeft
        )
        label.setAlignment(right | Qt.AlignmentFlag.AlignVCenter)
        return label


class ContextField(QWidget):
    """A slider over round context lengths and a field for any other.

    Signals:
        changed(int tokens): by the person, not by `set_range`.
    """

    changed = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self._stops = [MIN_CONTEXT]
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setAccessibleName(self.tr("Context length"))
        self.spin = QSpinBox()
        self.spin.setGroupSeparatorShown(True)
        self.spin.setKeyboardTracking(False)
        self.spin.setSuffix(self.tr(" tokens"))
        self.spin.setAccessibleName(self.tr("Context length in tokens"))
        self.spin.lineEdit().setTextMargins(6, 0, 6, 0)
        self.slider.valueChanged.connect(lambda stop: self.spin.setValue(self._stops[stop]))
        self.spin.valueChanged.connect(self._on_value)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(12)
        row.addWidget(self.slider, 1)
        row.addWidget(self.spin)

    @property
    def tokens(self) -> int:
        """The chosen context."""
        return self.spin.value()

    def set_range(self, longest: int, tokens: int) -> None:
        """Offer contexts up to `longest` and show `tokens`, without a signal."""
        self._stops = context_stops(longest)
        with QSignalBlocker(self.spin), QSignalBlocker(self.slider):
            self.spin.setRange(min(MIN_CONTEXT, longest), longest)
            self.slider.setRange(0, len(self._stops) - 1)
            self.spin.setValue(tokens)
            self._follow(tokens)

    def _on_value(self, tokens: int) -> None:
        with QSignalBlocker(self.slider):
            self._follow(tokens)
        self.changed.emit(tokens)

    def _follow(self, tokens: int) -> None:
        self.slider.setValue(min(bisect_left(self._stops, tokens), len(self._stops) - 1))


def context_stops(longest: int) -> list[int]:
    """Round lengths up to `longest`: powers of two from 512 and three between each two."""
    stops, octave = [], 512
    while octave < longest:
        stops += [octave + octave * part // _STEPS_AN_OCTAVE for part in range(_STEPS_AN_OCTAVE)]
        octave *= 2
    return [*(stop for stop in stops if stop < longest), longest]
