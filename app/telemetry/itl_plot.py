"""The latency plot: one dot a token, the p50-p95 band, TTFT and late tokens marked."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QPainter

from app.telemetry.format import about_seconds, count, milliseconds
from app.telemetry.ghost import GhostLine
from app.telemetry.itl_markers import ItlMarkers, LateToken, lane_px
from app.telemetry.late_causes import LateCause
from app.telemetry.pixel_items import Dots, PixelItem
from app.telemetry.plot_area import PlotArea
from app.telemetry.plot_header import LegendEntry, PlotHeader
from app.telemetry.plot_panel import EMPTY, PlotPanel
from app.telemetry.prefill_notice import PrefillNotice
from app.telemetry.request_trace import RequestTrace
from app.telemetry.scales import axis_top, covered
from app.telemetry.series import Array
from app.telemetry.timeline import Timeline
from app.theme import Theme

_NUM_TICKS = 4
_HEADROOM = 1.5
# The axis keeps its end while the data fills a share of it between these, so it does not twitch.
_CALM = (0.4, 0.92)
_EMPTY_TOP_MS = 14.0
_SECONDS_FROM_MS = 5_000.0
_BAND_ALPHA = 0.2
_DOT_PX = 3.2


class PercentileBand(PixelItem):
    """From p50 to p95 over the time of each decode, behind the dots: two corners a request."""

    def __init__(self) -> None:
        super().__init__()
        self.setZValue(-5)
        self.x = self.y = EMPTY
        self.color = QColor()

    def draw(self, painter: QPainter, area: QRectF) -> None:
        """One rectangle a request, nothing before its second token."""
        for i in range(0, len(self.x), 2):
            corner, other = (self.px(self.x[j], self.y[j]) for j in (i, i + 1))
            painter.fillRect(QRectF(corner, other).normalized(), self.color)


class ItlPlot(PlotPanel):
    """Inter-token latency in ms over the time axis."""

    def __init__(self, theme: Theme) -> None:
        area = PlotArea(theme, _NUM_TICKS)
        super().__init__(theme, PlotHeader(theme), area)
        self.header.set_title(self.tr("Inter-token latency"))
        self._legend = (
            LegendEntry("dot", "decode", self.tr("token"), self.tr("token")),
            LegendEntry("band", "muted", self.tr("p50 – p95"), self.tr("p50–p95")),
            LegendEntry("line", "prefill", self.tr("prefill, TTFT"), self.tr("prefill")),
        )
        self.header.set_legend(self._legend)
        area.setAccessibleName(self.tr("Plot of the inter-token latency"))
        self._top_ms = _EMPTY_TOP_MS
        self._shown = ""
        self._band = PercentileBand()
        self._dots = Dots(_DOT_PX)
        self._markers = ItlMarkers(theme)
        self._notice = PrefillNotice(theme)
        self._ghost = GhostLine("muted")
        for item in (self._ghost, self._band, self._dots, self._markers, self._notice):
            area.addItem(item, ignoreBounds=True)
        area.resized.connect(self._apply_axis)
        self.set_theme(theme)

    def refresh(self, timeline: Timeline) -> None:
        self._mark_times(timeline)
        self._say(timeline)
        x, itl = _latencies(timeline)
        self._choose_top(timeline, itl)
        self._draw_ghost(timeline)
        late = itl > self._top_ms
        self._curves = {"itl": (x, itl), "itl band": _bands(timeline), "ttft": _ttfts(timeline)}
        self._dots.set_data(x[~late], itl[~late])
        self._band.x, self._band.y = self._curves["itl band"]
        self._band.update()
        self._markers.late = tuple(
            token for trace in timeline.traces for token in self._late_tokens(timeline, trace)
        )
        self._markers.ttfts = tuple(self._curves["ttft"][0].tolist())
        self._markers.ttft_text = ""
        if timeline.trace and timeline.trace.ttft_s is not None:
            ttft = milliseconds(timeline.trace.ttft_s * 1e3).text
            self._markers.ttft_text = self.tr("TTFT %1").replace("%1", ttft)
        self._markers.update()

    def set_theme(self, theme: Theme) -> None:
        super().set_theme(theme)
        self._dots.set_color(theme.color("decode"))
        self._band.color = theme.color("muted", _BAND_ALPHA)
        self._ghost.set_theme(theme)
        self._markers.theme = self._notice.theme = theme
        for item in (self._band, self._markers, self._notice):
            item.update()
        self._apply_axis()

    def set_ghost(self, trace: RequestTrace | None) -> None:
        """Draw an earlier run behind the present one; None: no more."""
        self._ghost.trace = trace
        self.header.set_legend((*self._legend, *self._ghost.legend()))

    def keep_free(self, right_px: float) -> None:
        """Leave this much of the marker lane's right end to something drawn over it."""
        self._markers.taken_px = right_px
        self._markers.update()

    def _draw_ghost(self, timeline: Timeline) -> None:
        ghost = None if timeline.is_session else self._ghost.trace
        t_s, itl = _own_latencies(ghost)
        x = timeline.ghost_places(ghost, t_s) if ghost else t_s
        # The lane above the axis is the markers', which are those of the present run.
        self._ghost.set_course(x, np.minimum(itl, self._top_ms))

    def _say(self, timeline: Timeline) -> None:
        if not timeline.traces:
            self._notice.show_text(self.tr("Send a message to see the wait and the pace."))
            return
        trace, now_ns = timeline.trace, timeline.model.now_ns()
        if trace is None or trace.phase != "prefill":
            self._notice.show_text("")
            return
        total = trace.tokens_total
        end = timeline.place(trace, trace.elapsed_s(now_ns))
        if total is None:
            self._notice.show_text(self.tr("Reading the prompt"), 0.0, end)
            return
        text = self.tr("Reading the prompt: %1 of %2 tokens")
        text = text.replace("%1", count(trace.tokens_done)).replace("%2", count(total))
        left = trace.seconds_left(now_ns)
        if left is not None:
            text = f"{text}, {about_seconds(left)}"
        self._notice.show_text(text, trace.tokens_done / max(1, total), end)

    def _choose_top(self, timeline: Timeline, itl: Array) -> None:
        shown = timeline.trace.request_id if timeline.trace else timeline.unit
        needed = covered(itl)
        if not timeline.is_session:
            needed = max(needed, covered(_own_latencies(self._ghost.trace)[1]))
        calm = _CALM[0] * self._top_ms <= needed <= _CALM[1] * self._top_ms
        if not calm or shown != self._shown:
            self._top_ms = axis_top(needed * _HEADROOM, _NUM_TICKS) if needed else _EMPTY_TOP_MS
            self._shown = shown
        self._apply_axis()

    def _apply_axis(self) -> None:
        in_seconds = self._top_ms >= _SECONDS_FROM_MS
        if in_seconds:
            self.header.set_subtitle(self.tr("s, lower is faster"), self.tr("s"))
        else:
            self.header.set_subtitle(self.tr("ms, lower is faster"), self.tr("ms"))
        unit = 1e3 if in_seconds else 1.0
        self.area.set_y_axis(self._top_ms, lane_px(self._theme), unit)

    def _late_tokens(self, timeline: Timeline, trace: RequestTrace) -> tuple[LateToken, ...]:
        rows = np.flatnonzero(_own_latencies(trace)[1] > self._top_ms) + 1
        places = timeline.places(trace, trace.tokens["t_s"][rows])
        itl_ms = trace.tokens["itl_ms"][rows]
        causes = map(self._cause_text, timeline.model.late_causes(trace, rows))
        return tuple(
            LateToken(place, itl, milliseconds(itl).text, cause)
            for place, itl, cause in zip(places.tolist(), itl_ms.tolist(), causes, strict=True)
        )

    def _cause_text(self, cause: LateCause | None) -> str:
        match cause:
            case "slid":
                return self.tr("context slid")
            case "joined":
                return self.tr("other chat joined")
            case "new block":
                return self.tr("new block")
            case "same work":
                return self.tr("same work, slower step")
            case None:
                return ""


def _own_latencies(trace: RequestTrace | None) -> tuple[Array, Array]:
    """When each token of a request came, and how late; the first token has no latency."""
    if trace is None:
        return EMPTY, EMPTY
    return trace.tokens["t_s"][1:], trace.tokens["itl_ms"][1:]


def _latencies(timeline: Timeline) -> tuple[Array, Array]:
    """The same of all requests, in order of their places."""
    own = [(trace, *_own_latencies(trace)) for trace in timeline.traces]
    x = np.concatenate([EMPTY, *(timeline.places(trace, t_s) for trace, t_s, _ in own)])
    itl = np.concatenate([EMPTY, *(itl_ms for *_, itl_ms in own)])
    if not timeline.is_session:
        return x, itl
    order = np.argsort(x, kind="stable")
    return x[order], itl[order]


def _bands(timeline: Timeline) -> tuple[Array, Array]:
    x: list[float] = []
    y: list[float] = []
    for trace in timeline.traces:
        if percentiles := trace.itl_percentiles(50, 95):
            x += timeline.places(trace, trace.tokens["t_s"][[0, -1]]).tolist()
            y += percentiles
    return np.array(x, np.float64), np.array(y, np.float64)


def _ttfts(timeline: Timeline) -> tuple[Array, Array]:
    ttfts = [(trace, trace.ttft_s) for trace in timeline.traces if trace.ttft_s is not None]
    x = [timeline.place(trace, ttft_s) for trace, ttft_s in ttfts]
    return np.array(x, np.float64), np.array([ttft_s * 1e3 for _, ttft_s in ttfts], np.float64)
