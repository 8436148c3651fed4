"""The phase ribbon: waiting, prefill and decode of an answer as a bar on the time axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.telemetry.format import milliseconds
from app.telemetry.own_cost import OWN_COST
from app.telemetry.plot_area import RIGHT_MARGIN, axis_width
from app.telemetry.request_trace import RequestTrace
from app.telemetry.scales import time_range_s
from app.telemetry.telemetry_model import TelemetryModel
from app.theme import LABEL_PX, Theme

LANE_HEIGHT = 9
_LANE_GAP = 3
_MAX_LANES = 3
_RADIUS = 2.5
SegmentKind = Literal["queue", "prefill", "decode"]
_TOKENS: dict[SegmentKind, str] = {"queue": "faint", "prefill": "prefill", "decode": "decode"}


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of one phase, in seconds from the selected request's Send."""

    kind: SegmentKind
    start_s: float
    end_s: float


def segments(trace: RequestTrace, now_ns: int, shift_s: float = 0.0) -> list[Segment]:
    """The phases of a request so far; `shift_s` moves it onto another request's time axis."""
    end = trace.elapsed_s(now_ns)
    start = min(trace.prefill_start_s, end)
    first = trace.ttft_s if trace.ttft_s is not None else end
    stretches: list[Segment] = [
        Segment("queue", 0.0, start),
        Segment("prefill", start, first),
        Segment("decode", first, end),
    ]
    return [
        Segment(s.kind, s.start_s + shift_s, s.end_s + shift_s)
        for s in stretches
        if s.end_s > s.start_s
    ]


class PhaseRibbon(QWidget):
    """A lane for the selected request, below it one for each that runs at the same time.

    `aligned` to the plots it keeps to their time axis (`set_time_range`) and stands over it;
    else it stands alone, has a range of its own and names the phases under the bar.
    """

    def __init__(
        self,
        theme: Theme,
        model: TelemetryModel,
        *,
        aligned: bool,
    ) -> None:
        super().__init__()
        self._theme = theme
        self._model = model
        self._aligned = aligned
        self._margins = (0, 0)
        self._range: tuple[float, float] | None = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(self.tr("Phases of the answer"))
        model.changed.connect(self._on_changed)
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        self.setFont(theme.font(LABEL_PX))
        if self._aligned:
            self._margins = (axis_width(theme), RIGHT_MARGIN)
        self.setMinimumWidth(sum(self._margins) + 80)
        self.updateGeometry()
        self.update()

    def set_time_range(self, start_s: float, end_s: float) -> None:
        """Keep to this span from now on."""
        self._range = (start_s, end_s)
        self.update()

    def lanes(self) -> list[list[Segment]]:
        """What is drawn: the selected request first, then those beside it."""
        trace, now = self._model.selected, self._model.now_ns()
        if trace is None:
            return []
        others = self._model.concurrent(trace)[: _MAX_LANES - 1]
        return [segments(t, now, (t.t_send_ns - trace.t_send_ns) / 1e9) for t in (trace, *others)]

    def describe(self, segment: Segment) -> str:
        """A phase in words with its duration."""
        names = {
            "queue": self.tr("Waiting for a place: %1"),
            "prefill": self.tr("Prefill, the prompt is read: %1"),
            "decode": self.tr("Decode, the answer is written: %1"),
        }
        duration = milliseconds((segment.end_s - segment.start_s) * 1e3).text
        return names[segment.kind].replace("%1", duration)

    def _on_changed(self) -> None:
        height = self.sizeHint().height()
        if height != self.height():
            self.updateGeometry()
        lanes = self.lanes()
        self.setAccessibleDescription(", ".join(map(self.describe, lanes[0])) if lanes else "")
        self.update()

    def _span(self) -> tuple[float, float]:
        if self._range is not None:
            return self._range
        trace = self._model.selected
        return 0.0, time_range_s(trace.elapsed_s(self._model.now_ns()) if trace else 0.0)

    def _x(self, t_s: float) -> float:
        start, end = self._span()
        left, right = self._margins
        share = (t_s - start) / (end - start)
        return left + min(1.0, max(0.0, share)) * (self.width() - left - right)

    def _lane_rect(self, lane: int, start_s: float, end_s: float) -> QRectF:
        left, right = self._x(start_s), self._x(end_s)
        return QRectF(left, lane * (LANE_HEIGHT + _LANE_GAP), max(0.0, right - left), LANE_HEIGHT)

    def _words_under(self) -> str:
        lanes = self.lanes()
        if not lanes or not lanes[0]:
            return ""
        last = lanes[0][-1]
        if last.kind == "decode":
            text = self.tr("decode, %1")
        elif last.kind == "prefill":
            text = self.tr("prefill, %1")
        else:
            text = self.tr("waiting, %1")
        return text.replace("%1", milliseconds((last.end_s - last.start_s) * 1e3).text)

    def sizeHint(self) -> QSize:
        count = max(1, len(self.lanes()))
        height = count * (LANE_HEIGHT + _LANE_GAP) - _LANE_GAP
        if not self._aligned:
            height += 5 + self.fontMetrics().height()
        return QSize(240, height)

    def minimumSizeHint(self) -> QSize:
        return QSize(self.minimumWidth(), self.sizeHint().height())

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            for lane, stretch in enumerate(self.lanes()):
                for segment in stretch:
                    rect = self._lane_rect(lane, segment.start_s, segment.end_s)
                    if rect.adjusted(-1, -2, 1, 2).contains(event.pos().toPointF()):
                        QToolTip.showText(event.globalPos(), self.describe(segment), self)
                        return True
        return super().event(event)

    @OWN_COST.counted("panels")
    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        lanes = self.lanes() or [[]]
        start, end = self._span()
        for lane, stretch in enumerate(lanes):
            painter.setBrush(self._theme.color("line", 0.6))
            painter.drawRoundedRect(self._lane_rect(lane, start, end), _RADIUS, _RADIUS)
            for segment in stretch:
                rect = self._lane_rect(lane, segment.start_s, segment.end_s)
                if rect.width() <= 0:
                    continue
                # A gap of one pixel parts the phases, except where there is no room for it.
                rect.setWidth(max(1.5, rect.width() - 1))
                painter.setBrush(self._theme.color(_TOKENS[segment.kind]))
                painter.drawRoundedRect(rect, _RADIUS, _RADIUS)
        if not self._aligned:
            self._paint_words(painter, lanes)

    def _paint_words(self, painter: QPainter, lanes: list[list[Segment]]) -> None:
        metrics = QFontMetricsF(self.font())
        top = len(lanes) * (LANE_HEIGHT + _LANE_GAP) - _LANE_GAP + 5
        painter.setFont(self.font())
        painter.setPen(self._theme.color("muted"))
        text = self._words_under()
        width = metrics.horizontalAdvance(text) + 2
        right = self.width() - self._margins[1]
        row = QRectF(right - width, top, width, metrics.height())
        painter.drawText(row, Qt.AlignmentFlag.AlignRight, text)
        first = self.tr("prefill")
        if text and lanes[0][-1].kind == "decode":
            needed = metrics.horizontalAdvance(first) + 2
            if self._margins[0] + needed + 8 <= row.left():
                painter.drawText(
                    QRectF(self._margins[0], top, needed, metrics.height()),
                    Qt.AlignmentFlag.AlignLeft,
                    first,
                )
