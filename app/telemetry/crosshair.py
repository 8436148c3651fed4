"""A line through all plots at one moment, and a card beside it with every figure of it."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QCoreApplication, QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.telemetry.format import NO_VALUE, count, memory, milliseconds, percent
from app.telemetry.instant import Instant
from app.telemetry.pixel_items import make_pen
from app.telemetry.plot_area import PlotArea
from app.telemetry.request_trace import RequestTrace
from app.telemetry.timeline import Timeline
from app.theme import LABEL_PX, Theme

_PADDING, _GAP = 8.0, 10.0
_MOST_TEXT_PX = 120  # of a token, at 100 % text size
_NO_GLYPH = {"\n": "⏎", "\t": "⇥", "\r": "␍"}
Row = tuple[str, str]


def readout(instant: Instant, trace: RequestTrace, timeline: Timeline) -> list[Row]:
    """What the card says: names and figures; the first row is the token, or the prompt."""
    if instant.token is None:
        head = (_tr("Before the first token"), "")
    else:
        head = (_tr("Token %1").replace("%1", count(instant.token)), _shown(instant.text))
    device = _tr("GPU") if trace.on_gpu else _tr("Process CPU")
    return [
        head,
        *_which(trace, timeline),
        (_tr("Since Send"), f"{instant.t_s:,.3f} s"),
        (_tr("ITL"), _or_dash(instant.itl_ms, milliseconds(instant.itl_ms).text)),
        (_tr("Context"), _tr("%1 tokens").replace("%1", count(instant.context_tokens))),
        (_tr("KV cache"), _or_dash(instant.kv_bytes, memory(instant.kv_bytes).text)),
        (device, _or_dash(instant.device_pct, percent(instant.device_pct).text)),
        (_tr("Compute (MFU)"), _or_dash(instant.mfu_pct, percent(instant.mfu_pct).text)),
        (_tr("Bandwidth (MBU)"), _or_dash(instant.mbu_pct, percent(instant.mbu_pct).text)),
    ]


def _which(trace: RequestTrace, timeline: Timeline) -> list[Row]:
    """Which of the session's answers it is."""
    if not timeline.is_session:
        return []
    number, of = timeline.traces.index(trace) + 1, len(timeline.traces)
    place = _tr("%1 of %2").replace("%1", count(number)).replace("%2", count(of))
    return [(_tr("Answer"), place)]


class Crosshair(QWidget):
    """Lies over the plots and lets the mouse through; repaints no more than what it covers.

    `has_frame` draws the focus around the plots while there is no line that could show it.
    """

    def __init__(self, theme: Theme, parent: QWidget, areas: Sequence[PlotArea]) -> None:
        super().__init__(parent)
        self._theme = theme
        self._areas = areas
        self._rows: list[Row] = []
        self._x = 0.0
        self.has_frame = False
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)

    @property
    def rows(self) -> list[Row]:
        """What the card says now, empty without one."""
        return list(self._rows)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        self.update()

    def show_at(self, at: float, rows: list[Row]) -> None:
        """The line here on the axis, `rows` in the card; neither where the axis does not reach."""
        start, end = self._areas[0].view_box.viewRange()[0]
        place = self._place(self._areas[0])
        x = place.left() + (at - start) / (end - start) * place.width()
        if not place.left() - 1 <= x <= place.right() + 1:
            self.clear()
        elif (x, rows) != (self._x, self._rows):
            self._update_covered()
            self._x, self._rows = x, rows
            self._update_covered()

    def clear(self) -> None:
        """Neither line nor card."""
        self._update_covered()
        self._rows = []

    def card(self) -> QRectF:
        """Where the card stands: right of the line, left of it where there is no room."""
        names, figures = self._columns()
        width = names + _GAP + figures + 2 * _PADDING
        height = len(self._rows) * self._line() + 2 * _PADDING
        left = self._x + _GAP
        if left + width > self.width():
            left = max(0.0, self._x - _GAP - width)
        # Below the two rows of the first plot's markers, so that they stay readable.
        lane = self._place(self._areas[0]).top() + 2.5 * self._line()
        top = max(0.0, min(lane, self.height() - height))
        return QRectF(round(left), round(top), width, height)

    def _place(self, area: PlotArea) -> QRectF:
        """Where a plot draws its data, in pixels of this widget."""
        origin = area.mapTo(self.parentWidget(), area.rect().topLeft())
        return area.data_rect().translated(QPointF(origin))

    def _columns(self) -> tuple[float, float]:
        metrics = QFontMetricsF(self._theme.font(LABEL_PX))
        bold = QFontMetricsF(self._theme.font(LABEL_PX, bold=True))
        names, figures = zip(*self._rows, strict=True)
        widest = min(max(map(bold.horizontalAdvance, figures)), self._theme.px(_MOST_TEXT_PX))
        return max(metrics.horizontalAdvance(name) for name in names) + 2, widest + 2

    def _line(self) -> float:
        return QFontMetricsF(self._theme.font(LABEL_PX)).height() + 2

    def _update_covered(self) -> None:
        if self._rows:
            self.update(QRect(round(self._x) - 1, 0, 3, self.height()))
            self.update(self.card().toAlignedRect().adjusted(-2, -2, 2, 2))

    # Qt overrides

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        if self._rows:
            self._paint_line(painter)
            self._paint_card(painter, self.card())
        elif self.has_frame:
            painter.setPen(make_pen(self._theme.color("decode"), 1))
            painter.drawRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5))

    def _paint_line(self, painter: QPainter) -> None:
        x = round(self._x) + 0.5
        painter.setPen(make_pen(self._theme.color("text", 0.7), 1))
        for area in self._areas:
            place = self._place(area)
            painter.drawLine(QPointF(x, place.top()), QPointF(x, place.bottom()))

    def _paint_card(self, painter: QPainter, card: QRectF) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(make_pen(self._theme.color("line"), 1))
        painter.setBrush(self._theme.color("raised"))
        painter.drawRoundedRect(card.adjusted(0.5, 0.5, -0.5, -0.5), 6, 6)
        plain, bold = self._theme.font(LABEL_PX), self._theme.font(LABEL_PX, bold=True)
        _, room = self._columns()
        for index, (name, figure) in enumerate(self._rows):
            is_head = index == 0
            row = QRectF(card.left() + _PADDING, 0, card.width() - 2 * _PADDING, self._line())
            row.moveTop(card.top() + _PADDING + index * self._line())
            painter.setFont(bold if is_head else plain)
            painter.setPen(self._theme.color("text" if is_head else "muted"))
            painter.drawText(row, Qt.AlignmentFlag.AlignVCenter, name)
            metrics = QFontMetricsF(painter.font())
            text = metrics.elidedText(figure, Qt.TextElideMode.ElideRight, room)
            painter.setPen(self._theme.color("text"))
            flags = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight
            painter.drawText(row, flags, text)


def _shown(text: str) -> str:
    """A token's text so that its spaces can be seen; nothing printable yet is an ellipsis."""
    if not text:
        return "…"
    return "“" + "".join(_NO_GLYPH.get(letter, letter) for letter in text) + "”"


def _or_dash(value: float | None, text: str) -> str:
    return NO_VALUE if value is None else text


def _tr(text: str) -> str:
    return QCoreApplication.translate("Crosshair", text)
