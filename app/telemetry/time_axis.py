"""The labels of the one time axis."""

from __future__ import annotations

import math
from itertools import chain

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.telemetry.format import clock, duration
from app.telemetry.plot_area import RIGHT_MARGIN, axis_width
from app.telemetry.scales import clock_step, tick_labels, ticks
from app.telemetry.time_scale import SECONDS, Gap, TimeScale
from app.telemetry.timeline import Unit
from app.theme import LABEL_PX, Theme

_TICK_PX, _MOST_TICKS = 64, 7
Label = tuple[QRectF, str]


class TimeAxis(QWidget):
    """The labels of the one time axis, under the lowest plot.

    Seconds from Send, tokens, or the session's time with what was left out of it.
    """

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._range = (0.0, 1.2)
        self._scale: TimeScale = SECONDS
        self._unit: Unit = "seconds"
        self.set_theme(theme)
        self.set_scale(SECONDS, "seconds")

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        self.setFont(theme.font(LABEL_PX))
        self.setFixedHeight(self.fontMetrics().height() + 4)
        self.update()

    def set_range(self, start: float, end: float) -> None:
        """From where to where the plots go."""
        if (start, end) != self._range:
            self._range = (start, end)
            self.update()

    def set_scale(self, scale: TimeScale, unit: Unit) -> None:
        """What lies where, and in which unit it is labelled."""
        self._scale, self._unit = scale, unit
        names = {
            "seconds": self.tr("Seconds from Send"),
            "tokens": self.tr("Tokens in the context"),
            "session": self.tr("Time since the session's first event, idle times left out"),
        }
        self.setAccessibleName(names[unit])
        self.update()

    def labels(self) -> list[Label]:
        """Where which text stands; no two overlap, the last one carries the unit."""
        start, end = self._range
        width = self._width()
        if width <= 0 or end <= start:
            return []
        if self._unit == "session":
            return self._session_labels()
        positions = ticks(start, end, max(2, min(_MOST_TICKS, int(width) // _TICK_PX)))
        texts = tick_labels(positions)
        unit = self.tr("s") if self._unit == "seconds" else self.tr("tokens")
        texts[-1:] = [f"{texts[-1]} {unit}"] if texts else []
        labels = [self._label(at, text) for at, text in zip(positions, texts, strict=True)]
        return _clear_of_each_other(labels[::-1])[::-1]

    def _session_labels(self) -> list[Label]:
        """What gaps left out, then round times wherever there is room between them."""
        start, end = self._range
        shown = [gap for gap in self._scale.gaps if gap.end > start and gap.start < end]
        labels = [self._label((gap.start + gap.end) / 2, self._gap_text(gap)) for gap in shown]
        most = max(2, min(_MOST_TICKS, int(self._width()) // _TICK_PX))
        step = clock_step(end - start, most)
        origin = float(self._scale.seconds[0])
        edges = [start, *chain.from_iterable((gap.start, gap.end) for gap in shown), end]
        for left, right in zip(edges[::2], edges[1::2], strict=True):
            first, last = (self._scale.second_at(place) - origin for place in (left, right))
            for number in range(math.ceil(first / step), math.floor(last / step) + 1):
                place = self._scale.place_of(origin + number * step)
                labels.append(self._label(place, clock(number * step)))
        return sorted(_clear_of_each_other(labels), key=lambda label: label[0].left())

    def _gap_text(self, gap: Gap) -> str:
        return self.tr("idle %1").replace("%1", duration(gap.seconds))

    def _width(self) -> float:
        return self.width() - axis_width(self._theme) - RIGHT_MARGIN

    def _label(self, place: float, text: str) -> Label:
        start, end = self._range
        metrics = self.fontMetrics()
        advance = metrics.horizontalAdvance(text) + 2
        center = axis_width(self._theme) + (place - start) / (end - start) * self._width()
        left = min(center - advance / 2, self.width() - advance)
        return QRectF(left, 2, advance, metrics.height()), text

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setFont(self.font())
        painter.setPen(self._theme.color("faint"))
        for rect, text in self.labels():
            painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, text)


def _clear_of_each_other(labels: list[Label]) -> list[Label]:
    """Those that lie on none before them."""
    placed: list[Label] = []
    for rect, text in labels:
        if not any(rect.adjusted(-4, 0, 4, 0).intersects(other) for other, _ in placed):
            placed.append((rect, text))
    return placed
