"""The three plots on one linked time axis, redrawn only when they can be seen and are new."""

from __future__ import annotations

import time

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QFocusEvent, QHideEvent, QKeyEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from app.telemetry.crosshair import Crosshair, Row, readout
from app.telemetry.instant import Instant
from app.telemetry.itl_plot import ItlPlot
from app.telemetry.kv_plot import KvPlot
from app.telemetry.own_cost import OWN_COST
from app.telemetry.plot_area import RIGHT_MARGIN
from app.telemetry.plot_panel import Curves, PlotPanel
from app.telemetry.request_trace import RequestTrace
from app.telemetry.telemetry_model import TelemetryModel
from app.telemetry.time_axis import TimeAxis
from app.telemetry.timeline import Timeline, Unit, View, make_timeline
from app.telemetry.token_keys import token_for
from app.telemetry.utilization_plot import UtilizationPlot
from app.theme import LABEL_PX, Theme

# A redraw holds the interpreter for some 7 ms, and the engine's thread waits for it: at this pace
# that is 1 % of its time.
REDRAW_INTERVAL_MS = 800
_HEIGHTS = (42, 29, 29)


class TelemetryPlots(QWidget):
    """Latency, cache and utilization, one above the other: of an answer or of the session.

    Follows the newest data until the person pans or zooms; then a button leads back. The mouse
    reads a moment in all of them; with the focus left and right go from token to token, Home and
    End to the first and the last, Esc puts the reading away. In the session a double-click or
    Enter opens the answer that is read.

    Signals:
        time_range_changed(float start, float end): what of the axis the plots show now.
        timeline_changed(Timeline): what they show on it.
        following_changed(bool)
        reading_changed(Instant | None): the crosshair is at this moment, or away.
        answer_opened(): of the session the selected answer is to be shown.
    """

    time_range_changed = Signal(float, float)
    timeline_changed = Signal(object)
    following_changed = Signal(bool)
    reading_changed = Signal(object)
    answer_opened = Signal()

    def __init__(self, theme: Theme, model: TelemetryModel) -> None:
        super().__init__()
        self._model = model
        self._following = True
        self._view: View = "answer"
        self._by_token = False
        self._timeline = make_timeline(model, self._view, by_token=False)
        self._last_redraw_ns = 0
        self._shown: tuple[str | None, Unit] = (None, "seconds")
        self._ghost: RequestTrace | None = None
        self.itl = ItlPlot(theme)
        self.kv = KvPlot(theme)
        self.utilization = UtilizationPlot(theme)
        self.time_axis = TimeAxis(theme)
        self._panels: tuple[PlotPanel, ...] = (self.itl, self.kv, self.utilization)
        self._lay_out()
        self._follow_button = QPushButton(self.tr("Follow"), self.itl.area)
        self._follow_button.setToolTip(self.tr("Show the newest data again"))
        self._follow_button.clicked.connect(self.follow)
        self._follow_button.hide()
        self._instant: Instant | None = None
        self._read_trace: RequestTrace | None = None
        self._by_keys = False
        self._crosshair = Crosshair(theme, self, [panel.area for panel in self._panels])
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(self.tr("Plots of the answer"))
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self.redraw)
        for panel in self._panels:
            panel.area.view_box.setXLink(None if panel is self.itl else self.itl.area.view_box)
            panel.area.panned.connect(self._on_panned)
            panel.area.pointed.connect(self._on_pointed)
            panel.area.opened.connect(self._on_opened)
        self.itl.area.view_box.sigXRangeChanged.connect(self._on_range)
        model.changed.connect(self.schedule)
        self._crosshair.raise_()
        self.set_theme(theme)
        self._set_range(*self._timeline.range(self._view, None))

    # --- what others call -----------------------------------------------------------------

    def curves(self) -> Curves:
        """Everything plotted now: name -> (place on the axis, y in the plot's unit).

        Names: itl, itl band, ttft, kv used, kv allocated, kv reserved, device, mfu, mbu. A
        device without a utilization reading has no curve.
        """
        return {name: xy for panel in self._panels for name, xy in panel.curves().items()}

    @property
    def following(self) -> bool:
        """Whether the time axis follows the newest data."""
        return self._following

    @property
    def timeline(self) -> Timeline:
        """What is drawn, as of the last redraw."""
        return self._timeline

    @property
    def time_range(self) -> tuple[float, float]:
        """From where to where the axis goes, in its unit."""
        start, end = self.itl.area.view_box.viewRange()[0]
        return float(start), float(end)

    @property
    def reading(self) -> list[Row]:
        """Names and figures of the moment under the crosshair, empty without one."""
        return self._crosshair.rows

    def set_view(self, view: View, *, by_token: bool) -> None:
        """Show the newest seconds, the whole answer or the session, and follow what is new."""
        self._view, self._by_token = view, by_token
        self.follow()

    def read(self, t_s: float | None, trace: RequestTrace | None = None) -> None:
        """Put the crosshair on a moment, in seconds from Send; None takes it away.

        `trace`: the request, the selected one if None.
        """
        trace = trace or self._model.selected
        self._instant, self._read_trace = None, None
        if trace is not None and t_s is not None and t_s >= 0.0:
            self._instant, self._read_trace = self._model.instant(trace, t_s), trace
        self._show_reading()
        is_selected = self._read_trace is self._model.selected
        self.reading_changed.emit(self._instant if is_selected else None)

    def read_token(self, row: int, trace: RequestTrace | None = None) -> None:
        """Put the crosshair on a token of a request, the selected one if None.

        The time axis moves there.
        """
        trace = trace or self._model.selected
        if trace is None or not 0 <= row < len(trace.tokens):
            return
        t_s = float(trace.tokens["t_s"][row])
        place = self._timeline.place(trace, t_s)
        start, end = self.time_range
        if not start <= place <= end:
            self._set_following(False)
            left = max(0.0, place - (end - start) / 2)
            self._set_range(left, left + end - start)
            self.schedule()
        self.read(t_s, trace)

    def follow(self) -> None:
        """Go back to following the newest data."""
        self._set_following(True)
        self.redraw()

    def set_ghost(self, trace: RequestTrace | None) -> None:
        """Draw an earlier run behind the present one, aligned at Send; None: no more."""
        if trace is not self._ghost:
            self._ghost = trace
            self.itl.set_ghost(trace)
            self.kv.set_ghost(trace)
            self.redraw()

    def schedule(self) -> None:
        """Redraw soon, a few times a second; hidden plots wait until they are shown."""
        if self._timer.isActive() or not self.isVisible():
            return
        since_ms = (time.perf_counter_ns() - self._last_redraw_ns) // 1_000_000
        self._timer.start(int(max(0, REDRAW_INTERVAL_MS - since_ms)))

    @OWN_COST.counted("panels")
    def redraw(self) -> None:
        """Draw the model as it is now."""
        self._timer.stop()
        self._last_redraw_ns = time.perf_counter_ns()
        self._timeline = make_timeline(self._model, self._view, by_token=self._by_token)
        trace = self._model.selected
        shown = (trace.request_id if trace else None, self._timeline.unit)
        if shown != self._shown:
            self._shown = shown
            self._set_following(True)
            self._instant = None
        self.time_axis.set_scale(self._timeline.scale, self._timeline.unit)
        if self._following:
            self._set_range(*self._timeline.range(self._view, self._ghost))
        for panel in self._panels:
            panel.refresh(self._timeline)
        self.timeline_changed.emit(self._timeline)
        self.read(self._instant.t_s if self._instant else None, self._read_trace)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        for panel in self._panels:
            panel.set_theme(theme)
        self.time_axis.set_theme(theme)
        self._crosshair.set_theme(theme)
        self._follow_button.setFont(theme.font(LABEL_PX))
        self._follow_button.setStyleSheet(
            f"QPushButton {{ background: {theme.raised}; color: {theme.text}; padding: 1px 8px;"
            f" border: 1px solid {theme.line}; border-radius: 6px; }}"
        )
        self._place_button()

    # --- following ------------------------------------------------------------------------

    def _set_range(self, start_s: float, end_s: float) -> None:
        if self.time_range != (start_s, end_s):
            self.itl.area.view_box.setXRange(start_s, end_s, padding=0)

    def _set_following(self, following: bool) -> None:
        if following == self._following:
            return
        self._following = following
        self._follow_button.setVisible(not following)
        self._place_button()
        self.following_changed.emit(following)

    def _on_panned(self, *_: object) -> None:
        self._set_following(False)
        self.schedule()

    def _on_range(self, _: object, span: tuple[float, float]) -> None:
        self.time_axis.set_range(*span)
        self.time_range_changed.emit(*span)
        self._show_reading()

    # --- reading --------------------------------------------------------------------------

    def _on_pointed(self, place: float | None) -> None:
        # Leaving with the mouse does not take away what the keys are reading.
        if place is None and self._by_keys:
            return
        self._by_keys = False
        found = None if place is None else self._timeline.at(place)
        if found is None:
            self.read(None)
        else:
            trace, t_s = found
            self.read(t_s, trace)

    def _on_opened(self, place: float) -> None:
        if self._timeline.is_session and (found := self._timeline.at(place)):
            self._open(found[0])

    def _open(self, trace: RequestTrace) -> None:
        self._model.select(trace.request_id)
        self.answer_opened.emit()

    def _show_reading(self) -> None:
        if self._instant is None or self._read_trace is None:
            self._crosshair.clear()
            self.setAccessibleDescription("")
            return
        rows = readout(self._instant, self._read_trace, self._timeline)
        self._crosshair.show_at(self._timeline.place(self._read_trace, self._instant.t_s), rows)
        self.setAccessibleDescription(", ".join(f"{name} {figure}" for name, figure in rows))

    # --- form -----------------------------------------------------------------------------

    def _lay_out(self) -> None:
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        for panel, share in zip(self._panels, _HEIGHTS, strict=True):
            if panel is not self.itl:
                column.addSpacing(8)
            column.addWidget(panel, share)
        column.addWidget(self.time_axis)
        self.setMinimumSize(200, 300)

    def _place_button(self) -> None:
        button = self._follow_button
        button.adjustSize()
        button.move(self.itl.area.width() - button.width() - RIGHT_MARGIN, 0)
        self.itl.keep_free(0.0 if self._following else button.width() + 6.0)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        row = self._instant.token - 1 if self._instant and self._instant.token else None
        found = token_for(event.key(), self._timeline, self._read_trace, row)
        opens = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if found is not None:
            self._by_keys = True
            self.read_token(found[1], found[0])
        elif opens and self._timeline.is_session and self._read_trace is not None:
            self._open(self._read_trace)
        elif event.key() == Qt.Key.Key_Escape and self._instant is not None:
            self.read(None)
        else:
            super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        by_tab = (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
        self._crosshair.has_frame = event.reason() in by_tab
        self._crosshair.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self._crosshair.has_frame = False
        self._crosshair.update()
        if self._by_keys:
            self._by_keys = False
            self.read(None)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._crosshair.setGeometry(self.rect())
        self._show_reading()
        self._place_button()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.redraw()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._timer.stop()
