"""Where a step's time goes: one stacked bar for prefill and one for decode, with their figures."""

from __future__ import annotations

from itertools import accumulate

from PySide6.QtCore import QCoreApplication, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPaintEvent, QShowEvent
from PySide6.QtWidgets import QSizePolicy, QVBoxLayout, QWidget

from app.telemetry.format import NO_VALUE, count, milliseconds, three_digits
from app.telemetry.labels import label_height
from app.telemetry.plot_area import RIGHT_MARGIN
from app.telemetry.plot_header import PlotHeader
from app.telemetry.stages_sums import AnswerStages, PhaseStages
from app.telemetry.telemetry_model import TelemetryModel
from app.theme import LABEL_PX, Theme

_BAR_PX = 12  # at 100 % text size
_GAP, _SWATCH, _SWATCH_GAP = 4, 3, 3
_PHASES = ("prefill", "decode")
# One hue a phase, as everywhere; the stages in it go from full to faint in their order.
_STRENGTHS = (1.0, 0.78, 0.6, 0.45, 0.32, 0.2)


def _tr(text: str) -> str:
    return QCoreApplication.translate("StageTable", text)


def stage_names() -> tuple[str, ...]:
    """What the stages are called, in the order of STAGES."""
    return (
        _tr("Attention"),
        _tr("FFN"),
        _tr("Head"),
        _tr("Sampling"),
        _tr("Detokenize"),
        _tr("Host"),
    )


def share_text(share_pct: float) -> str:
    """A share as a whole number of per cent; what rounds to none without being none is "<1"."""
    return "<1" if 0 < share_pct < 0.5 else f"{share_pct:.0f}"


class StageTable(QWidget):
    """Draws the bars, under each the share and the time of every stage in columns.

    Bar and columns have one order, and each column the shade of its part of the bar.
    """

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._stages = AnswerStages()
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        self.updateGeometry()
        self.update()

    def show_stages(self, stages: AnswerStages) -> None:
        """Show these; a phase that is None stays empty."""
        if stages == self._stages:
            return
        self._stages = stages
        described = [
            _described(name, phase)
            for name, phase in zip(_phase_names(), self._phases(), strict=True)
            if phase is not None
        ]
        self.setToolTip("\n\n".join(described))
        self.setAccessibleName("\n".join(described))
        self.update()

    def columns(self) -> list[float]:
        """The left edge of each stage's column, in px; the row's names lie left of the first."""
        metrics = self._metrics()
        names = max(metrics.horizontalAdvance(name) for name in (*_phase_names(), "ms"))
        figure = _SWATCH + _SWATCH_GAP + metrics.horizontalAdvance("0.888")
        widths = [max(metrics.horizontalAdvance(name), figure) for name in stage_names()]
        start = names + _GAP
        spare = self.width() - start - sum(widths) - _GAP * (len(widths) - 1)
        gap = _GAP + max(0.0, spare / len(widths))
        return list(accumulate((width + gap for width in widths[:-1]), initial=start))

    def _phases(self) -> tuple[PhaseStages | None, PhaseStages | None]:
        return self._stages.prefill, self._stages.decode

    def _metrics(self) -> QFontMetricsF:
        return QFontMetricsF(self._theme.font(LABEL_PX))

    def _bar_height(self) -> int:
        return self._theme.px(_BAR_PX)

    def _row_height(self) -> int:
        return round(label_height(self._theme)) + 1

    def _phase_height(self) -> int:
        return self._bar_height() + 3 + 2 * self._row_height()

    def _paint_phase(self, painter: QPainter, index: int, top: int) -> None:
        name, phase = _phase_names()[index], self._phases()[index]
        color = self._theme.color(_PHASES[index])
        edges = self.columns()
        row = self._row_height()
        baseline = self._metrics().ascent()
        bar = QRectF(edges[0], top, self.width() - edges[0], self._bar_height())
        self._paint_bar(painter, bar, color, phase)
        self._write(painter, 0, top + (bar.height() - row) / 2 + baseline, name, "text")
        first = bar.bottom() + 3 + baseline
        for line, unit in enumerate(("%", "ms")):
            self._write(painter, 0, first + line * row, unit, "muted")
        if phase is None:
            self._write(painter, edges[0], first, NO_VALUE, "muted")
            return
        for i, edge in enumerate(edges):
            swatch = QRectF(edge, bar.bottom() + 5, _SWATCH, 2 * row - 3)
            _fill(painter, swatch, color, _STRENGTHS[i])
            x = edge + _SWATCH + _SWATCH_GAP
            self._write(painter, x, first, share_text(phase.shares_pct[i]), "text")
            self._write(painter, x, first + row, three_digits(phase.step_ms[i]), "muted")

    def _paint_bar(
        self, painter: QPainter, bar: QRectF, color: QColor, phase: PhaseStages | None
    ) -> None:
        if phase is not None:
            left = bar.left()
            for share, strength in zip(phase.shares_pct, _STRENGTHS, strict=True):
                width = bar.width() * share / 100
                # A hairline of the ground keeps neighbours apart, where there is room for one.
                part = QRectF(left, bar.top(), max(width - 1, min(width, 1)), bar.height())
                _fill(painter, part, color, strength)
                left += width
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(color if phase is not None else self._theme.color("line"))
        painter.drawRect(bar.adjusted(0.5, 0.5, -0.5, -0.5))

    def _write(self, painter: QPainter, x: float, y: float, text: str, token: str) -> None:
        painter.setPen(self._theme.color(token))
        painter.drawText(round(x), round(y), text)

    # Qt overrides

    def sizeHint(self) -> QSize:
        return QSize(200, self._row_height() + 2 * self._phase_height() + 3 + 2 * _GAP)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setFont(self._theme.font(LABEL_PX))
        for edge, name in zip(self.columns(), stage_names(), strict=True):
            self._write(painter, edge, self._metrics().ascent(), name, "muted")
        top = self._row_height() + 3
        for index in range(len(_PHASES)):
            self._paint_phase(painter, index, top)
            top += self._phase_height() + 2 * _GAP


class StagesPanel(QWidget):
    """A header over the table; reads the model whenever it has changed and can be seen."""

    def __init__(self, theme: Theme, model: TelemetryModel) -> None:
        super().__init__()
        self._model = model
        self.header = PlotHeader(theme)
        self.header.set_title(self.tr("Where a step's time goes"))
        self.table = StageTable(theme)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(self.header)
        row = QVBoxLayout()
        row.setContentsMargins(0, 0, RIGHT_MARGIN, 0)
        row.addWidget(self.table)
        column.addLayout(row)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        model.changed.connect(self._on_changed)

    def refresh(self) -> None:
        """Draw the selected answer as the model has it now."""
        trace = self._model.selected
        stages = self._model.stages_of(trace) if trace else AnswerStages()
        self.table.show_stages(stages)
        subtitle = self.tr("this answer")
        if stages == AnswerStages():
            on_gpu = self._model.on_gpu
            subtitle = self.tr("not timed on a GPU") if on_gpu else self.tr("no answer yet")
        elif self._model.on_gpu and stages.decode is None:
            # A decode step there is one CUDA graph: nothing sees a stage of it end.
            subtitle = self.tr("this answer's prompt")
        self.header.set_subtitle(subtitle, "")

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self.header.set_theme(theme)
        self.table.set_theme(theme)

    def _on_changed(self) -> None:
        if self.isVisible():
            self.refresh()

    # Qt overrides

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()


def _phase_names() -> tuple[str, str]:
    return _tr("Prefill"), _tr("Decode")


def _described(name: str, phase: PhaseStages) -> str:
    figures = zip(stage_names(), phase.shares_pct, phase.step_ms, strict=True)
    steps = _tr("%1, mean of %2 steps").replace("%1", name).replace("%2", count(phase.num_steps))
    lines = (f"{stage}: {share_text(pct)} %, {milliseconds(ms).text}" for stage, pct, ms in figures)
    return "\n".join((steps, *lines))


def _fill(painter: QPainter, area: QRectF, color: QColor, strength: float) -> None:
    shade = QColor(color)
    shade.setAlphaF(strength)
    painter.fillRect(area, shade)
