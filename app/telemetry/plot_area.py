"""A plot's area: pyqtgraph's view and axis, with a fixed y range and a time axis to pan."""

from __future__ import annotations

import pyqtgraph as pg
from PySide6.QtCore import QEvent, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QFontMetricsF, QKeyEvent, QMouseEvent, QPaintEvent

from app.telemetry.own_cost import OWN_COST
from app.telemetry.pixel_items import GAP_HATCH, PREFILL_SHADE, Backdrop, make_pen
from app.telemetry.scales import tick_labels, ticks
from app.telemetry.series import Array
from app.theme import LABEL_PX, Theme

RIGHT_MARGIN = 8
_LABEL_GAP = 7
FLOOR_MARGIN = 8
MIN_SPAN_S = 0.02


def axis_width(theme: Theme) -> int:
    """What the y labels take left of every plot: room for "0,000", wider ones change the unit."""
    return round(QFontMetricsF(theme.font(LABEL_PX)).horizontalAdvance("0,000")) + _LABEL_GAP + 2


class PlotArea(pg.PlotWidget):  # type: ignore[misc]
    """A plot without border, menu or automatic ranges: x pans and zooms, y is set by its owner.

    Signals:
        panned(): the person moved or zoomed the time axis.
        resized(): the plot area has another size.
        pointed(float | None): the mouse is at this place of the axis, or has left the plot.
        opened(float): this place was double-clicked.
    """

    panned = Signal()
    resized = Signal()
    pointed = Signal(object)
    opened = Signal(float)

    def __init__(self, theme: Theme, num_ticks: int) -> None:
        super().__init__()
        self._num_ticks = num_ticks
        self._y_axis: tuple[float, float, float, float] | None = None
        plot = self.getPlotItem()
        plot.hideButtons()
        plot.setMenuEnabled(False)
        plot.hideAxis("bottom")
        # The lowest tick's label is centred on the floor: half of it stands below.
        plot.setContentsMargins(0, 0, RIGHT_MARGIN, FLOOR_MARGIN)
        self.setFrameShape(self.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # the three are one stop of the Tab key
        self.setAccessibleName(self.tr("Plot"))
        self._axis = plot.getAxis("left")
        self._axis.setStyle(tickLength=0, tickTextOffset=_LABEL_GAP, hideOverlappingLabels=False)
        self.view_box = plot.getViewBox()
        self.view_box.disableAutoRange()
        self.view_box.setMouseEnabled(x=True, y=False)
        self.view_box.setLimits(xMin=0.0, minXRange=MIN_SPAN_S)
        self.view_box.setDefaultPadding(0.0)
        self.view_box.sigRangeChangedManually.connect(self.panned)
        self.view_box.sigResized.connect(self.resized)
        self.backdrop = Backdrop()
        self.addItem(self.backdrop, ignoreBounds=True)
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self.setBackground(theme.color("surface"))
        self._axis.setPen(make_pen(QColor(0, 0, 0, 0), 1))
        self._axis.setTextPen(theme.color("faint"))
        self._axis.setTickFont(theme.font(LABEL_PX))
        self._axis.setWidth(axis_width(theme))
        self.backdrop.grid_color = theme.color("line")
        self.backdrop.gap_color = theme.color("faint", GAP_HATCH)
        self.backdrop.shade_color = theme.color("prefill", PREFILL_SHADE)
        self.backdrop.update()

    def set_y_axis(self, top: float, lane_px: float = 0.0, unit: float = 1.0) -> None:
        """Let y run from zero to `top`, with `lane_px` kept free above it for markers.

        The labels count in units of `unit`, e.g. 1,000 for seconds where y is in ms.
        """
        wanted = (top, lane_px, unit, float(self.view_box.height()))
        if wanted == self._y_axis:
            return  # laying out the labels anew costs more than drawing the data
        self._y_axis = wanted
        in_units = ticks(0.0, top / unit, self._num_ticks)
        positions = [value * unit for value in in_units]
        self._axis.setTicks([list(zip(positions, tick_labels(in_units), strict=True))])
        self.backdrop.grid = positions
        self.backdrop.update()
        height = self.view_box.height()
        stretch = height / (height - lane_px) if height > 2 * lane_px else 1.0
        self.view_box.setYRange(0.0, top * stretch, padding=0)

    def data_rect(self) -> QRectF:
        """Where the data is drawn, in pixels of this widget."""
        return QRectF(self.view_box.sceneBoundingRect())

    def points_for(self, x: Array) -> int:
        """How many points of a line over `x` are worth drawing at the present zoom.

        One in two pixels: what is drawn holds the interpreter, and the engine waits for it.
        """
        if len(x) < 2:
            return len(x)
        start, end = self.view_box.viewRange()[0]
        share = (x[-1] - x[0]) / max(end - start, MIN_SPAN_S)
        return max(64, int(self.view_box.width() * share) // 2)

    def _place(self, event: QMouseEvent) -> float:
        return float(self.view_box.mapSceneToView(event.position()).x())

    # Qt overrides

    @OWN_COST.counted("panels")
    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        super().mouseMoveEvent(event)
        within = self.data_rect().contains(event.position())
        self.pointed.emit(self._place(event) if within else None)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        if self.data_rect().contains(event.position()):
            self.opened.emit(self._place(event))

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self.pointed.emit(None)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        event.ignore()  # pyqtgraph would swallow what the owner of the plots understands
