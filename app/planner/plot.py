"""The planner's plot: KV memory against context length, a line a format, and the room there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.planner.curves import KVCurves
from app.planner.figures import format_name
from app.telemetry.format import count, memory
from app.telemetry.labels import label_height
from app.telemetry.pixel_items import Line, PixelItem, make_pen
from app.telemetry.plot_area import PlotArea
from app.telemetry.plot_header import LegendEntry, PlotHeader
from app.telemetry.scales import axis_top
from app.theme import LABEL_PX, Theme
from engine.planner.plan import Plan

_NUM_TICKS = 4
_NUM_TOKEN_TICKS = 4  # quarters of a power of two are round
# Dashes in units of the pen's width: the line tells the format, not its colour.
_DASHES: Mapping[str, Sequence[float]] = {
    "fp32": (8, 3),
    "bf16": (),
    "fp8_ds_mla": (4, 2),
}
_CHOSEN_PX, _OTHER_PX = 2.5, 1.5
# The axis shows the room as long as it is not far above every line.
_ROOM_SHARE = 1.6
_LABEL_GAP = 6
_DOT_PX = 4.5


class EndLabels(PixelItem):
    """The formats' names where their lines end, moved apart where they would overlap."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.setZValue(6)
        self.theme = theme
        self.ends: dict[str, tuple[float, float]] = {}
        self.chosen = ""

    def draw(self, painter: QPainter, area: QRectF) -> None:
        """Each name right of its line's last point."""
        height = label_height(self.theme)
        points = sorted(
            ((self.px(*end), name) for name, end in self.ends.items()), key=lambda p: -p[0].y()
        )
        middles = apart([point.y() for point, _ in points], height)
        for (point, name), middle in zip(points, middles, strict=True):
            is_chosen = name == self.chosen
            font = self.theme.font(LABEL_PX, bold=is_chosen)
            left, width = point.x() + _LABEL_GAP, QFontMetricsF(font).horizontalAdvance(name) + 8
            rect = QRectF(left, middle - height / 2, width, height)
            painter.fillRect(rect, self.theme.color("surface"))  # no label lies on a grid line
            painter.setFont(font)
            painter.setPen(self.theme.color("kv" if is_chosen else "muted"))
            painter.drawText(rect, Qt.AlignmentFlag.AlignVCenter, format_name(name))


class ContextMarker(PixelItem):
    """The chosen context: a line down to the axis, a dot on the chosen format, and its figures."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.setZValue(5)
        self.theme = theme
        self.point: tuple[float, float] | None = None
        self.label = ""

    def draw(self, painter: QPainter, area: QRectF) -> None:
        """The figures stand in the lane above everything that is plotted."""
        if self.point is None:
            return
        at = self.px(*self.point)
        font = self.theme.font(LABEL_PX, bold=True)
        lane = label_height(self.theme) + 2
        x = round(at.x()) + 0.5
        painter.setPen(make_pen(self.theme.color("faint"), 1))
        painter.drawLine(QPointF(x, area.top() + lane), QPointF(x, area.bottom()))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(self.theme.color("surface"), 1.5))
        painter.setBrush(self.theme.color("kv"))
        painter.drawEllipse(at, _DOT_PX, _DOT_PX)
        width = QFontMetricsF(font).horizontalAdvance(self.label) + 2
        left = min(max(x - width / 2, area.left()), area.right() - width)
        painter.setFont(font)
        painter.setPen(self.theme.color("text"))
        painter.drawText(
            QRectF(left, area.top(), width, lane), Qt.AlignmentFlag.AlignCenter, self.label
        )


class PlannerPlot(QWidget):
    """Draws `KVCurves`; `curves` gives back what is drawn, in the axis' unit."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._shown: tuple[KVCurves, str] | None = None
        self._top = 1.0
        self._lines: dict[str, Line] = {}
        self.header = PlotHeader(theme)
        self.header.set_title(self.tr("KV cache against context"))
        self.area = PlotArea(theme, _NUM_TICKS)
        self.area.setAccessibleName(self.tr("Plot of KV cache memory against context length"))
        self.area.view_box.setMouseEnabled(x=False, y=False)
        self.area.getPlotItem().showAxis("bottom")
        self._tokens = self.area.getPlotItem().getAxis("bottom")
        self._tokens.setStyle(tickLength=0, tickTextOffset=_LABEL_GAP)
        self._room = Line()
        self._marker = ContextMarker(theme)
        self._labels = EndLabels(theme)
        for item in (self._room, self._marker, self._labels):
            self.area.addItem(item, ignoreBounds=True)
        self.area.resized.connect(self._apply_axes)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(self.header)
        column.addWidget(self.area, 1)
        self.set_theme(theme)

    def curves(self) -> dict[str, tuple[list[float], list[float]]]:
        """What is plotted: a format's name or "room" -> (tokens, bytes)."""
        if self._shown is None:
            return {}
        data = self._shown[0]
        x = data.contexts.tolist()
        return {name: (x, y.tolist()) for name, y in (data.by_format | {"room": data.room}).items()}

    def show_curves(self, data: KVCurves, plan: Plan) -> None:
        """Draw these, the plan's format strongest, with a marker at its context."""
        chosen, context, kv_bytes = plan.choice.kv, plan.choice.context, plan.kv_bytes
        self._shown = (data, chosen)
        most_room = float(data.room[0])
        self._top = max(data.largest, most_room if most_room <= _ROOM_SHARE * data.largest else 0.0)
        unit = self._unit
        self._replace_lines(set(data.by_format))
        for name, line in self._lines.items():
            line.pen = self._pen(name, chosen)
            line.setZValue(4 if name == chosen else 3)
            line.set_data(data.contexts, data.by_format[name] / unit)
        has_room = data.room > 0
        self._room.set_data(data.contexts[has_room], data.room[has_room] / unit)
        end = float(data.contexts[-1])
        self._labels.ends = {n: (end, float(y[-1]) / unit) for n, y in data.by_format.items()}
        self._labels.chosen = chosen
        self._marker.point = (context, kv_bytes / unit)
        self._marker.label = self.tr("{0} tokens, {1}").format(
            count(context), memory(kv_bytes).text
        )
        self._name(max(0, plan.budget_bytes - plan.required_bytes + kv_bytes))
        self._apply_axes()
        for item in (self._labels, self._marker):
            item.update()

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        self.header.set_theme(theme)
        self.area.set_theme(theme)
        self._tokens.setPen(make_pen(QColor(0, 0, 0, 0), 1))
        self._tokens.setTextPen(theme.color("faint"))
        self._tokens.setTickFont(theme.font(LABEL_PX))
        self._room.pen = make_pen(theme.color("text"), 1)
        self._labels.theme = self._marker.theme = theme
        if self._shown is not None:
            for name, line in self._lines.items():
                line.pen = self._pen(name, self._shown[1])
        self.area.viewport().update()

    @property
    def _unit(self) -> float:
        return 1e9 if self._top >= 1e9 else 1e6

    def _name(self, room: float) -> None:
        unit = self.tr("GB") if self._unit == 1e9 else self.tr("MB")
        self.header.set_subtitle(self.tr("{0}, one text").format(unit), unit)
        text = self.tr("room for it, {0}").format(memory(room).text)
        if room > self._top:
            text = self.tr("room for it, {0}, above").format(memory(room).text)
        if room == 0:
            text = self.tr("no room beside the weights")
        self.header.set_legend((LegendEntry("line", "text", text, text),))

    def _replace_lines(self, names: set[str]) -> None:
        if names == set(self._lines):
            return
        for line in self._lines.values():
            self.area.removeItem(line)
        self._lines = {name: Line() for name in names}
        for line in self._lines.values():
            self.area.addItem(line, ignoreBounds=True)

    def _pen(self, name: str, chosen: str) -> QPen:
        pen = make_pen(self._theme.color("kv"), _CHOSEN_PX if name == chosen else _OTHER_PX)
        dashes = list(_DASHES.get(name, ()))
        if dashes:
            pen.setDashPattern(dashes)
        return pen

    def _apply_axes(self) -> None:
        if self._shown is None:
            return
        end = float(self._shown[0].contexts[-1])
        widest = max(
            QFontMetricsF(self._theme.font(LABEL_PX, bold=True)).horizontalAdvance(
                format_name(name)
            )
            for name in self._lines
        )
        width = max(float(self.area.view_box.width()), 1.0)
        free = min((widest + 2 * _LABEL_GAP) / width, 0.5)
        self.area.view_box.setXRange(0.0, end / (1 - free), padding=0)
        positions = [end * part / _NUM_TOKEN_TICKS for part in range(_NUM_TOKEN_TICKS + 1)]
        self._tokens.setTicks([[(x, f"{x:,.0f}") for x in positions]])
        top = axis_top(self._top / self._unit, _NUM_TICKS)
        self.area.set_y_axis(top, label_height(self._theme) + 8)


def apart(middles: Sequence[float], height: float) -> list[float]:
    """Positions of labels from the lowest up, in px from the top, at least `height` apart."""
    placed: list[float] = []
    for middle in middles:
        placed.append(min(middle, placed[-1] - height) if placed else middle)
    return placed
