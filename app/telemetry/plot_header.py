"""The row over a plot: title, subtitle with the unit, legend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QWidget

from app.telemetry.labels import ThemedLabel
from app.telemetry.pixel_items import make_pen
from app.telemetry.plot_area import RIGHT_MARGIN
from app.theme import LABEL_PX, Theme

_WORD_GAP, _SWATCH_GAP, _ENTRY_GAP = 8, 5, 12
SwatchKind = Literal["line", "dash", "dot", "band"]


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A sign of the legend: how it is drawn, its colour token, its name in full and in short."""

    kind: SwatchKind
    token: str
    name: str
    short: str


class Swatch(QWidget):
    """The little sign before a legend's name; its form says the same as its colour."""

    def __init__(self, kind: SwatchKind, color: QColor) -> None:
        super().__init__()
        self._kind, self._color = kind, color

    def sizeHint(self) -> QSize:
        return QSize(6 if self._kind == "dot" else 10, 8)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        middle = self.height() / 2
        width = self.width()
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
        elif self._kind == "line":
            painter.drawRoundedRect(QRectF(0, middle - 1, width, 2.5), 1, 1)
        else:
            painter.drawRect(QRectF(0, middle - 4, width, 8))


class PlotHeader(QWidget):
    """Title, subtitle and legend of a plot in one row; short names where the row is narrow."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._subtitles = ("", "")
        self._entries: tuple[LegendEntry, ...] = ()
        self._names: list[tuple[QLabel, LegendEntry]] = []
        self._title = ThemedLabel(theme, LABEL_PX + 1, "text", bold=True)
        self._subtitle = ThemedLabel(theme, LABEL_PX + 0.5, "muted")
        self._legend = QHBoxLayout()
        self._legend.setSpacing(0)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, RIGHT_MARGIN, 0)
        row.setSpacing(_WORD_GAP)
        row.addWidget(self._title)
        row.addWidget(self._subtitle)
        row.addStretch(1)
        row.addLayout(self._legend)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def set_title(self, title: str) -> None:
        """What the plot shows, in one term of the field."""
        self._title.setText(title)

    def set_legend(self, entries: Sequence[LegendEntry]) -> None:
        """Show these entries; nothing happens when they are shown already."""
        if tuple(entries) != self._entries:
            self._entries = tuple(entries)
            self._rebuild()

    def set_subtitle(self, subtitle: str, short_subtitle: str) -> None:
        """The plain words for it with the unit, and the unit alone."""
        if (subtitle, short_subtitle) != self._subtitles:
            self._subtitles = (subtitle, short_subtitle)
            self._fit()

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        self._title.set_theme(theme)
        self._subtitle.set_theme(theme)
        self._rebuild()

    def _rebuild(self) -> None:
        while item := self._legend.takeAt(0):
            if widget := item.widget():
                widget.setParent(None)
                widget.deleteLater()
        self._names = []
        for entry in self._entries:
            if self._names:
                self._legend.addSpacing(_ENTRY_GAP)
            self._legend.addWidget(Swatch(entry.kind, self._theme.color(entry.token)))
            self._legend.addSpacing(_SWATCH_GAP)
            label = ThemedLabel(self._theme, LABEL_PX + 0.5, "muted")
            self._legend.addWidget(label)
            self._names.append((label, entry))
        self._fit()

    def _fit(self) -> None:
        full, short = self._subtitles
        # In full, in short, and where even that is too wide without the subtitle.
        for subtitle, is_short in ((full, False), (short, True), ("", True)):
            self._subtitle.setText(subtitle)
            for label, entry in self._names:
                label.setText(entry.short if is_short else entry.name)
            if self._needed_width() <= self.width():
                return

    def _needed_width(self) -> int:
        # Not the layout's own figure: it leaves out labels that are not shown yet.
        signs = sum(
            label.sizeHint().width() + _SWATCH_GAP + (6 if entry.kind == "dot" else 10)
            for label, entry in self._names
        )
        gaps = _ENTRY_GAP * max(0, len(self._names) - 1)
        words = self._title.sizeHint().width() + self._subtitle.sizeHint().width()
        return words + 2 * _WORD_GAP + signs + gaps + RIGHT_MARGIN

    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()
