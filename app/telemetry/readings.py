"""The readings: a handful of figures of the selected answer, large enough to read at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import QCoreApplication, QRectF, QSize
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QGridLayout, QSizePolicy, QWidget

from app.telemetry.format import (
    Quantity,
    count,
    memory,
    millisecond_pair,
    milliseconds,
    tokens_per_second,
)
from app.telemetry.request_trace import RequestTrace
from app.telemetry.telemetry_model import TelemetryModel
from app.theme import LABEL_PX, READING_PX, Theme

ReadingKey = Literal["ttft", "decode", "itl", "prefill", "kv"]
# The widest usual figure of each: cards keep their width while the figures change.
_WIDEST: dict[ReadingKey, Quantity] = {
    "ttft": Quantity("88.8", "ms"),
    "decode": Quantity("88.8", "tok/s"),
    "itl": Quantity("88.8 / 88.8", "ms"),
    "prefill": Quantity("8,888", "tok/s"),
    "kv": Quantity("88.8", "MB"),
}
_GAP = 8


@dataclass(frozen=True, slots=True)
class Reading:
    """One figure: its name, its value with its unit, its definition."""

    title: str
    quantity: Quantity
    tooltip: str


def _tr(text: str) -> str:
    return QCoreApplication.translate("Readings", text)


def reading(key: ReadingKey, model: TelemetryModel) -> Reading:
    """A figure of the selected request as it stands now; an en dash where there is none."""
    trace = model.selected
    match key:
        case "ttft":
            return _ttft(model, trace)
        case "decode":
            return Reading(
                _tr("Decode"),
                tokens_per_second(trace.decode_tok_s if trace else None),
                _tr("Decode pace: tokens after the first, divided by the time they took"),
            )
        case "itl":
            return _itl(trace)
        case "prefill":
            return _prefill(trace)
        case "kv":
            return _kv(model, trace)


def _ttft(model: TelemetryModel, trace: RequestTrace | None) -> Reading:
    running = model.running_ttft_s()
    seconds = running if running is not None else (trace.ttft_s if trace else None)
    quantity = milliseconds(None if seconds is None else seconds * 1e3)
    tooltip = _tr("Time to first token: from Send to the first token")
    if running is not None:
        return Reading(_tr("TTFT, running"), quantity, tooltip)
    return Reading(_tr("TTFT"), quantity, f"{tooltip}, {quantity.text}" if seconds else tooltip)


def _itl(trace: RequestTrace | None) -> Reading:
    percentiles = trace.itl_percentiles(50, 95) if trace else None
    tooltip = _tr(
        "Inter-token latency: the time from one token to the next. "
        "Half of them took at most p50, 95 % at most p95"
    )
    paint = trace.paint_percentile_ms(95) if trace else None
    if paint is not None:
        shown = _tr("Shown on the screen within a further %1 (p95)")
        tooltip = f"{tooltip}. {shown.replace('%1', milliseconds(paint).text)}"
    return Reading(_tr("ITL p50 / p95"), millisecond_pair(*(percentiles or (None, None))), tooltip)


def _prefill(trace: RequestTrace | None) -> Reading:
    tooltip = _tr(
        "Prefill pace: prompt tokens computed a second; "
        "what was reused from the cache is not counted"
    )
    if trace is not None and trace.tokens_total is not None:
        reused = _tr("Of this prompt's %1 tokens the cache had %2")
        reused = reused.replace("%1", count(trace.tokens_total))
        tooltip = f"{tooltip}. {reused.replace('%2', count(trace.cached_tokens))}"
    pace = trace.prefill_tok_s if trace else None
    return Reading(_tr("Prefill"), tokens_per_second(pace), tooltip)


def _kv(model: TelemetryModel, trace: RequestTrace | None) -> Reading:
    used = trace.kv.last("used") if trace else None
    allocated = trace.kv.last("allocated") if trace else None
    tooltip = _tr("KV cache of this chat: %1 used, %2 allocated in blocks, %3 reserved")
    figures = (used, allocated, model.kv_bytes_reserved)
    for place, value in zip(("%1", "%2", "%3"), figures, strict=True):
        tooltip = tooltip.replace(place, memory(value).text)
    return Reading(_tr("KV cache"), memory(used), tooltip)


class ReadingCard(QWidget):
    """A name over a figure with its unit; framed in the dock, bare in the strip."""

    def __init__(self, theme: Theme, key: ReadingKey, *, framed: bool) -> None:
        super().__init__()
        self.key: ReadingKey = key
        self._framed = framed
        self._reading = Reading("", Quantity("", ""), "")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        self._small = theme.font(LABEL_PX)
        self._large = theme.font(READING_PX, bold=True)
        self.updateGeometry()
        self.update()

    def show_reading(self, reading: Reading) -> None:
        """Show these words and figures."""
        if reading == self._reading:
            return
        self._reading = reading
        self.setToolTip(reading.tooltip)
        self.setAccessibleName(f"{reading.title}: {reading.quantity.text}")
        if self._width_of(reading.title, reading.quantity) > self.width():
            self.updateGeometry()
        self.update()

    def _padding(self) -> tuple[int, int]:
        return (10, 7) if self._framed else (0, 0)

    def _width_of(self, title: str, quantity: Quantity) -> int:
        value = QFontMetricsF(self._large).horizontalAdvance(quantity.value)
        unit = QFontMetricsF(self._small).horizontalAdvance(quantity.unit)
        name = QFontMetricsF(self._small).horizontalAdvance(title)
        return int(max(name, value + 4 + unit)) + 2 + 2 * self._padding()[0]

    def sizeHint(self) -> QSize:
        title = _tr("TTFT, running") if self.key == "ttft" else self._reading.title
        widths = (
            self._width_of(title, _WIDEST[self.key]),
            self._width_of("", self._reading.quantity),
        )
        height = QFontMetricsF(self._small).height() + QFontMetricsF(self._large).height()
        return QSize(max(widths), int(height) + 3 + 2 * self._padding()[1])

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        if self._framed:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(self._theme.color("line"))
            painter.setBrush(self._theme.color("raised"))
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 8, 8)
        x, y = self._padding()
        small, large = QFontMetricsF(self._small), QFontMetricsF(self._large)
        painter.setFont(self._small)
        painter.setPen(self._theme.color("muted"))
        painter.drawText(x, round(y + small.ascent()), self._reading.title)
        baseline = round(y + small.height() + 2 + large.ascent())
        value = self._reading.quantity.value
        painter.drawText(
            round(x + large.horizontalAdvance(value) + 4), baseline, self._reading.quantity.unit
        )
        painter.setFont(self._large)
        painter.setPen(self._theme.color("text"))
        painter.drawText(x, baseline, value)


class ReadingCards(QWidget):
    """Several readings in a row, or two by two where the row would not fit."""

    def __init__(
        self,
        theme: Theme,
        model: TelemetryModel,
        keys: Sequence[ReadingKey] = ("ttft", "decode", "itl", "prefill"),
        *,
        framed: bool = True,
    ) -> None:
        super().__init__()
        self._model = model
        self._cards = [ReadingCard(theme, key, framed=framed) for key in keys]
        self._gap = _GAP if framed else 2 * _GAP
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(self._gap)
        # The row must be able to become too narrow, for that is when it folds.
        self._grid.setSizeConstraint(QGridLayout.SizeConstraint.SetNoConstraint)
        self._can_fold = framed
        self._columns = 0
        model.changed.connect(self.refresh)
        self._show_readings()
        self._arrange(len(self._cards))

    def refresh(self) -> None:
        """Read the model again; hidden cards wait until they are shown."""
        if self.isVisible():
            self._show_readings()

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        for card in self._cards:
            card.set_theme(theme)
        self._fold()

    def _show_readings(self) -> None:
        for card in self._cards:
            card.show_reading(reading(card.key, self._model))

    def _arrange(self, columns: int) -> None:
        if columns == self._columns:
            return
        self._columns = columns
        for index, card in enumerate(self._cards):
            self._grid.addWidget(card, index // columns, index % columns)
        for column in range(len(self._cards)):
            # Extra width goes to the cards in proportion to what they have to show.
            share = self._cards[column].sizeHint().width() if column < columns else 0
            self._grid.setColumnStretch(column, share if columns > 2 else min(share, 1))

    def _fold(self) -> None:
        if not self._can_fold:
            return
        widths = [card.sizeHint().width() for card in self._cards]
        needed = sum(widths) + self._gap * (len(widths) - 1)
        self._arrange(len(self._cards) if needed <= self.width() else 2)

    def minimumSizeHint(self) -> QSize:
        hint = super().minimumSizeHint()
        if not self._can_fold:
            return hint
        widest = max(card.sizeHint().width() for card in self._cards)
        return QSize(2 * widest + self._gap, hint.height())

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._show_readings()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fold()
