"""The latency plot: one dot a token, the p50-p95 band, TTFT and late tokens marked."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
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
from app.telemetry.telemetry_model import TelemetryModel
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
    """From p50 to p95 over the time of the decode, behind the dots."""

    def __init__(self) -> None:
        super().__init__()
        self.setZValue(-5)
        self.x = self.y = EMPTY
        self.color = QColor()

    def draw(self, painter: QPainter, area: QRectF) -> None:
        """One rectangle, nothing before the second token."""
        if len(self.x) == 2:
            corner, other = self.px(self.x[0], self.y[0]), self.px(self.x[1], self.y[1])
            painter.fillRect(QRectF(corner, other).normalized(), self.color)


class ItlPlot(PlotPanel):
    """Inter-token latency in ms over the seconds from Send."""

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
        self._shown_request = ""
        self._band = PercentileBand()
        self._dots = Dots(_DOT_PX)
        self._markers = ItlMarkers(theme)
        self._notice = PrefillNotice(theme)
        self._ghost = GhostLine("muted")
        for item in (self._ghost, self._band, self._dots, self._markers, self._notice):
            area.addItem(item, ignoreBounds=True)
        area.resized.connect(self._apply_axis)
        self.set_theme(theme)

    def refresh(self, model: TelemetryModel) -> None:
        trace, now = model.selected, model.now_ns()
        self._shade(trace, now)
        self._say(trace, now)
        x, itl = _latencies(trace)
        self._choose_top(trace, itl)
        ghost_x, ghost_itl = _latencies(self._ghost.trace)
        # The lane above the axis is the markers', which are those of the present run.
        self._ghost.set_course(ghost_x, np.minimum(ghost_itl, self._top_ms))
        late = itl > self._top_ms
        self._curves = {"itl": (x, itl), "itl band": _band(trace), "ttft": _ttft(trace)}
        self._dots.set_data(x[~late], itl[~late])
        self._band.x, self._band.y = self._curves["itl band"]
        self._band.update()
        self._markers.late = self._late_tokens(model, trace, np.flatnonzero(late))
        self._markers.ttft = None
        if trace and trace.ttft_s is not None:
            text = self.tr("TTFT %1").replace("%1", milliseconds(trace.ttft_s * 1e3).text)
            self._markers.ttft = (trace.ttft_s, text)
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

    def _say(self, trace: RequestTrace | None, now_ns: int) -> None:
        if trace is None:
            self._notice.show_text(self.tr("Send a message to see the wait and the pace."))
            return
        if trace.phase != "prefill":
            self._notice.show_text("")
            return
        total = trace.tokens_total
        end = trace.elapsed_s(now_ns)
        if total is None:
            self._notice.show_text(self.tr("Reading the prompt"), 0.0, end)
            return
        text = self.tr("Reading the prompt: %1 of %2 tokens")
        text = text.replace("%1", count(trace.tokens_done)).replace("%2", count(total))
        left = trace.seconds_left(now_ns)
        if left is not None:
            text = f"{text}, {about_seconds(left)}"
        self._notice.show_text(text, trace.tokens_done / max(1, total), end)

    def _choose_top(self, trace: RequestTrace | None, itl: Array) -> None:
        request_id = trace.request_id if trace else ""
        needed = max(covered(itl), covered(_latencies(self._ghost.trace)[1]))
        calm = _CALM[0] * self._top_ms <= needed <= _CALM[1] * self._top_ms
        if not calm or request_id != self._shown_request:
            self._top_ms = axis_top(needed * _HEADROOM, _NUM_TICKS) if needed else _EMPTY_TOP_MS
            self._shown_request = request_id
        self._apply_axis()

    def _apply_axis(self) -> None:
        in_seconds = self._top_ms >= _SECONDS_FROM_MS
        if in_seconds:
            self.header.set_subtitle(self.tr("s, lower is faster"), self.tr("s"))
        else:
            self.header.set_subtitle(self.tr("ms, lower is faster"), self.tr("ms"))
        unit = 1e3 if in_seconds else 1.0
        self.area.set_y_axis(self._top_ms, lane_px(self._theme), unit)

    def _late_tokens(
        self, model: TelemetryModel, trace: RequestTrace | None, rows: NDArray[np.intp]
    ) -> tuple[LateToken, ...]:
        if trace is None:
            return ()
        rows = rows + 1  # the first token has no latency
        times, itl_ms = trace.tokens["t_s"][rows], trace.tokens["itl_ms"][rows]
        causes = map(self._cause_text, model.late_causes(trace, rows))
        return tuple(
            LateToken(t_s, itl, milliseconds(itl).text, cause)
            for t_s, itl, cause in zip(times.tolist(), itl_ms.tolist(), causes, strict=True)
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


def _latencies(trace: RequestTrace | None) -> tuple[Array, Array]:
    if trace is None:
        return EMPTY, EMPTY
    return trace.tokens["t_s"][1:], trace.tokens["itl_ms"][1:]


def _band(trace: RequestTrace | None) -> tuple[Array, Array]:
    percentiles = trace.itl_percentiles(50, 95) if trace else None
    if trace is None or percentiles is None:
        return EMPTY, EMPTY
    times = trace.tokens["t_s"]
    return np.array([times[0], times[-1]]), np.array(percentiles)


def _ttft(trace: RequestTrace | None) -> tuple[Array, Array]:
    if trace is None or trace.ttft_s is None:
        return EMPTY, EMPTY
    return np.array([trace.ttft_s]), np.array([trace.ttft_s * 1e3])
