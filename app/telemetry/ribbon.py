"""The phase ribbon: waiting, prefill and decode of an answer as a bar on the time axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.telemetry.format import milliseconds
from app.telemetry.own_cost import OWN_COST
from app.telemetry.plot_area import RIGHT_MARGIN, axis_width
from app.telemetry.request_trace import RequestTrace
from app.telemetry.scales import time_range_s
from app.telemetry.telemetry_model import LoadSpan, TelemetryModel
from app.telemetry.time_scale import TimeScale
from app.telemetry.timeline import Timeline, make_timeline
from app.theme import LABEL_PX, Theme

LANE_HEIGHT = 9
_LANE_GAP = 3
_MAX_LANES = 3
_RADIUS = 2.5
_LEAST_CHUNK_PX = 4
SegmentKind = Literal["load", "warm-up", "queue", "prefill", "decode"]
_TOKENS: dict[SegmentKind, str] = {
    "load": "muted",
    "warm-up": "faint",
    "queue": "faint",
    "prefill": "prefill",
    "decode": "decode",
}
Place = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of one phase: how long, from where to where on the axis, and cuts between.

    `cuts`: where one chunk of a prompt ended and the next began.
    """

    kind: SegmentKind
    seconds: float
    start: float
    end: float
    cuts: tuple[float, ...] = ()


def segments(trace: RequestTrace, now_ns: int, place: Place) -> list[Segment]:
    """The phases of a request so far; `place` says where a moment of it lies on the axis."""
    end = trace.elapsed_s(now_ns)
    start = min(trace.prefill_start_s, end)
    first = trace.ttft_s if trace.ttft_s is not None else end
    cuts = tuple(place(t_s) for t_s in trace.chunk_ends_s if start < t_s < first)
    stretches: list[Segment] = [
        Segment("queue", start, place(0.0), place(start)),
        Segment("prefill", first - start, place(start), place(first), cuts),
        Segment("decode", end - first, place(first), place(end)),
    ]
    return [segment for segment in stretches if segment.seconds > 0]


def load_segments(load: LoadSpan, scale: TimeScale) -> list[Segment]:
    """A model's loading in the session's time."""
    warm_up, end = load.warmup_s - load.start_s, load.end_s - load.warmup_s
    start, middle, stop = map(scale.place_of, (load.start_s, load.warmup_s, load.end_s))
    return [Segment("load", warm_up, start, middle), Segment("warm-up", end, middle, stop)]


def stacked(timeline: Timeline) -> list[list[Segment]]:
    """The session in as few lanes as there were requests at a time."""
    model, now = timeline.model, timeline.model.now_ns()
    lanes: list[list[Segment]] = [
        [each for load in model.loads for each in load_segments(load, timeline.scale)]
    ]
    for trace in timeline.traces:
        own = segments(trace, now, partial(timeline.place, trace))
        free = (lane for lane in lanes if not lane or not own or lane[-1].end <= own[0].start)
        lane = next(free, None)
        if lane is None:
            lanes.append(own)
        else:
            lane.extend(own)
    return lanes


class PhaseRibbon(QWidget):
    """A lane for the selected request, below it one for each that runs at the same time.

    `aligned` to the plots it keeps to their time axis (`set_time_range`, `set_timeline`) and
    stands over it, of the session's too; else it stands alone, has a range of its own and names
    the phases under the bar.
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
        self._timeline = make_timeline(model, "answer", by_token=False)
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

    def set_time_range(self, start: float, end: float) -> None:
        """Keep to this span of the axis from now on."""
        self._range = (start, end)
        self.update()

    def set_timeline(self, timeline: Timeline) -> None:
        """Show the phases of this timeline from now on."""
        self._timeline = timeline
        self._on_changed()

    def lanes(self) -> list[list[Segment]]:
        """What is drawn: the selected request first, then those beside it; or the session."""
        if self._timeline.is_session:
            return stacked(self._timeline)[:_MAX_LANES]
        trace, now = self._model.selected, self._model.now_ns()
        if trace is None:
            return []
        others = self._model.concurrent(trace)[: _MAX_LANES - 1]
        origin, scale = self._model.origin_s(trace), self._timeline.scale

        def place(other: RequestTrace, t_s: float) -> float:
            return scale.place_of(t_s + self._model.origin_s(other) - origin)

        return [segments(each, now, partial(place, each)) for each in (trace, *others)]

    def describe(self, segment: Segment) -> str:
        """A phase in words with its duration."""
        names = {
            "load": self.tr("Loading the model: %1"),
            "warm-up": self.tr("Warming it up: %1"),
            "queue": self.tr("Waiting for a place: %1"),
            "prefill": self.tr("Prefill, the prompt is read: %1"),
            "decode": self.tr("Decode, the answer is written: %1"),
        }
        text = names[segment.kind].replace("%1", milliseconds(segment.seconds * 1e3).text)
        if not segment.cuts:
            return text
        return (
            self.tr("%1, in %2 chunks")
            .replace("%1", text)
            .replace("%2", str(len(segment.cuts) + 1))
        )

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

    def _x(self, place: float) -> float:
        start, end = self._span()
        left, right = self._margins
        share = (place - start) / (end - start)
        return left + min(1.0, max(0.0, share)) * (self.width() - left - right)

    def _lane_rect(self, lane: int, start: float, end: float) -> QRectF:
        left, right = self._x(start), self._x(end)
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
        return text.replace("%1", milliseconds(last.seconds * 1e3).text)

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
                    rect = self._lane_rect(lane, segment.start, segment.end)
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
                rect = self._lane_rect(lane, segment.start, segment.end)
                if rect.width() <= 0:
                    continue
                # A gap of one pixel parts the phases, except where there is no room for it.
                rect.setWidth(max(1.5, rect.width() - 1))
                painter.setBrush(self._theme.color(_TOKENS[segment.kind]))
                painter.drawRoundedRect(rect, _RADIUS, _RADIUS)
                self._paint_cuts(painter, rect, segment)
        if not self._aligned:
            self._paint_words(painter, lanes)

    def _paint_cuts(self, painter: QPainter, rect: QRectF, segment: Segment) -> None:
        """A hairline between two chunks, as long as there is room for all of them."""
        if len(segment.cuts) * _LEAST_CHUNK_PX > rect.width():
            return
        for cut in segment.cuts:
            line = QRectF(round(self._x(cut)), rect.top(), 1, rect.height())
            painter.fillRect(line, self._theme.color("surface"))

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
