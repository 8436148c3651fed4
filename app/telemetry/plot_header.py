"""The row over a plot: title, subtitle with the unit, legend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPolygonF, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QWidget

from app.telemetry.block_tiles import CellLook, paint_cell
from app.telemetry.labels import ThemedLabel
from app.telemetry.pixel_items import make_pen
from app.telemetry.plot_area import RIGHT_MARGIN
from app.theme import LABEL_PX, Theme

_WORD_GAP, _SWATCH_GAP, _ENTRY_GAP = 8, 5, 12
SwatchKind = Literal["line", "dash", "dot", "diamond", "band"] | CellLook


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A sign of the legend: how it is drawn, its colour token, its name in full and in short."""

    kind: SwatchKind
    token: str
    name: str
    short: str


class Swatch(QWidget):
    """The little sign before a legend's name; its form says the same as its colour."""

    def __init__(self, theme: Theme, entry: LegendEntry) -> None:
        super().__init__()
        self._theme, self._kind = theme, entry.kind
        self._color = theme.color(entry.token)

    def sizeHint(self) -> QSize:
        return QSize(6 if self._kind == "dot" else 10, 8)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        middle = self.height() / 2
        width = self.width()
        if isinstance(self._kind, CellLook):
            paint_cell(painter, QRectF(1, round(middle) - 4, 8, 8), self._kind, self._theme)
            return
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self._kind == "dash":
            painter.setPen(make_pen(self._color, 2))
            for start in (0.0, 6.0):
                painter.drawLine(QPointF(start, middle), QPointF(start + 4, middle))
            return
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._color)
        if self._kind == "dot":
            painter.drawEllipse(QPointF(width / 2, middle), 2.2, 2.2)
        elif self._kind == "diamond":
            corners = ((0, -3.6), (3.6, 0), (0, 3.6), (-3.6, 0))
            center = QPointF(width / 2, middle)
            painter.drawPolygon(QPolygonF([center + QPointF(x, y) for x, y in corners]))
        elif self._kind == "line":
            painter.drawRoundedRect(QRectF(0, middle - 1, width, 2.5), 1, 1)
        else:
            painter.drawRect(QRectF(0, middle - 4, width, 8))


class Legend(QWidget):
    """Signs with their names in a row, in full or in short.

    Attributes:
        entries: what is shown; `set_entries` changes it.
    """

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._is_short = False
        self.entries: tuple[LegendEntry, ...] = ()
        self._names: list[tuple[QLabel, LegendEntry]] = []
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(0, 0, 0, 0)
        self._row.setSpacing(0)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)

    def set_entries(self, entries: Sequence[LegendEntry]) -> bool:
        """Show these entries; False when they are shown already."""
        if tuple(entries) == self.entries:
            return False
        self.entries = tuple(entries)
        self._rebuild()
        return True

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        self._rebuild()

    def set_short(self, is_short: bool) -> None:
        """Choose between the names in full and in short."""
        self._is_short = is_short
        for label, entry in self._names:
            label.setText(entry.short if is_short else entry.name)

    def needed_width(self) -> int:
        """What the names take as they are now."""
        # Not the layout's own figure: it leaves out labels that are not shown yet.
        signs = sum(
            label.sizeHint().width() + _SWATCH_GAP + (6 if entry.kind == "dot" else 10)
            for label, entry in self._names
        )
        return signs + _ENTRY_GAP * max(0, len(self._names) - 1)

    def _rebuild(self) -> None:
        while item := self._row.takeAt(0):
            if widget := item.widget():
                widget.setParent(None)
                widget.deleteLater()
        self._names = []
        for entry in self.entries:
            if self._names:
                self._row.addSpacing(_ENTRY_GAP)
            self._row.addWidget(Swatch(self._theme, entry))
            self._row.addSpacing(_SWATCH_GAP)
            label = ThemedLabel(self._theme, LABEL_PX + 0.5, "muted")
            self._row.addWidget(label)
            self._names.append((label, entry))
        self.set_short(self._is_short)


class PlotHeader(QWidget):
    """Title, subtitle and legend of a plot in one row; short names where the row is narrow."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._subtitles = ("", "")
        self._title = ThemedLabel(theme, LABEL_PX + 1, "text", bold=True)
        self._subtitle = ThemedLabel(theme, LABEL_PX + 0.5, "muted")
        self.legend = Legend(theme)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, RIGHT_MARGIN, 0)
        row.setSpacing(_WORD_GAP)
        row.addWidget(self._title)
        row.addWidget(self._subtitle)
        row.addStretch(1)
        row.addWidget(self.legend)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def set_title(self, title: str) -> None:
        """What the plot shows, in one term of the field."""
        self._title.setText(title)

    def set_legend(self, entries: Sequence[LegendEntry]) -> None:
        """Show these entries; nothing happens when they are shown already."""
        if self.legend.set_entries(entries):
            self._fit()

    def set_subtitle(self, subtitle: str, short_subtitle: str) -> None:
        """The plain words for it with the unit, and the unit alone."""
        if (subtitle, short_subtitle) != self._subtitles:
            self._subtitles = (subtitle, short_subtitle)
            self._fit()

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._title.set_theme(theme)
        self._subtitle.set_theme(theme)
        self.legend.set_theme(theme)
        self._fit()

    def _fit(self) -> None:
        self._choose_words()
        # At once: on a busy machine the subtitle was seen to keep the room of an empty one.
        if layout := self.layout():
            layout.activate()

    def _choose_words(self) -> None:
        full, short = self._subtitles
        # In full, in short, and where even that is too wide without the subtitle.
        for subtitle, is_short in ((full, False), (short, True), ("", True)):
            self._subtitle.setText(subtitle)
            self.legend.set_short(is_short)
            if self._needed_width() <= self.width():
                return

    def _needed_width(self) -> int:
        words = self._title.sizeHint().width() + self._subtitle.sizeHint().width()
        return words + 2 * _WORD_GAP + self.legend.needed_width() + RIGHT_MARGIN

    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()
