"""The telemetry panel: readings, ribbon, plots, step times, block map, for the window's dock."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QEvent, QSize, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.picture import save_picture
from app.telemetry.block_map_panel import BlockMapPanel
from app.telemetry.instant import Instant
from app.telemetry.plot_area import RIGHT_MARGIN
from app.telemetry.plots import TelemetryPlots
from app.telemetry.readings import ReadingCards
from app.telemetry.ribbon import PhaseRibbon
from app.telemetry.stages_panel import StagesPanel
from app.telemetry.telemetry_model import TelemetryModel
from app.telemetry.timeline import View
from app.telemetry.view_switch import ViewSwitch
from app.theme import Theme

PREFERRED_SIZE = QSize(512, 720)
MINIMUM_WIDTH = 360  # at 100 % text size


class TelemetryPanel(QWidget):
    """Everything the dock shows of the selected request. Reads the model, writes nothing.

    What is read in the plots stands out in the block map, and the other way round.

    Signals:
        view_chosen(str, bool): the person chose in the row over the plots, as in ViewSwitch.
        tokens_read(list[int]): rows of the tokens that are read, empty for none: one under the
            crosshair, all those in the blocks that are pointed at.
    """

    view_chosen = Signal(str, bool)
    tokens_read = Signal(list)

    def __init__(self, theme: Theme, model: TelemetryModel) -> None:
        super().__init__()
        self.cards = ReadingCards(theme, model)
        self.switch = ViewSwitch(theme)
        self.ribbon = PhaseRibbon(theme, model, aligned=True)
        self.plots = TelemetryPlots(theme, model)
        self.stages = StagesPanel(theme, model)
        self.block_map = BlockMapPanel(theme, model)
        # Those that are there only where there is room, the first to get it first.
        self._wanted: dict[QWidget, bool] = {self.stages: False, self.block_map: True}
        self.plots.time_range_changed.connect(self.ribbon.set_time_range)
        self.ribbon.set_time_range(*self.plots.time_range)
        self.plots.timeline_changed.connect(self.ribbon.set_timeline)
        self.switch.chosen.connect(self._on_view_chosen)
        self.plots.answer_opened.connect(self._on_answer_opened)
        self._in_blocks: list[int] = []
        self.plots.reading_changed.connect(self._on_reading)
        self.block_map.pointed.connect(self._on_blocks)
        self._column = column = QVBoxLayout(self)
        column.setContentsMargins(14, 12, 14 - RIGHT_MARGIN, 8)
        column.setSpacing(12)
        cards_row = QVBoxLayout()
        cards_row.setContentsMargins(0, 0, RIGHT_MARGIN, 0)
        cards_row.addWidget(self.cards)
        column.addLayout(cards_row)
        column.addWidget(self.switch)
        column.addWidget(self.ribbon)
        column.addWidget(self.plots, 5)
        column.addWidget(self.stages)
        column.addWidget(self.block_map, 1)
        # The panel must be able to become too low for these, for that is when they give way.
        column.setSizeConstraint(QVBoxLayout.SizeConstraint.SetNoConstraint)
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        parts = (self.cards, self.switch, self.ribbon, self.plots, self.stages, self.block_map)
        for part in parts:
            part.set_theme(theme)
        self.setMinimumWidth(theme.px(MINIMUM_WIDTH))
        self.update()

    def show_view(self, view: View, *, by_token: bool) -> None:
        """Show the newest seconds, the whole answer or the session, and follow what is new."""
        self.switch.show_view(view, by_token=by_token)
        self.plots.set_view(view, by_token=by_token)

    def want_map(self, wanted: bool) -> None:
        """Show the block map wherever there is room for it, or nowhere."""
        self._wanted[self.block_map] = wanted
        self._fit()

    def want_stages(self, wanted: bool) -> None:
        """Show where a step's time goes wherever there is room for it, or nowhere."""
        self._wanted[self.stages] = wanted
        self._fit()

    def save_picture(self, path: Path) -> None:
        """Write the panels as they are now, hidden or not: PNG at twice their size, or SVG.

        Raises OSError when the file cannot be written.
        """
        if not self.isVisible():
            self.resize(self.size().expandedTo(PREFERRED_SIZE))
        self.cards.refresh()
        self.plots.redraw()
        self.stages.refresh()
        self.block_map.refresh()
        save_picture(self, path, self._theme.color("surface"), self.tr("Telemetry panels"))

    def _on_view_chosen(self, view: View, by_token: bool) -> None:
        self.show_view(view, by_token=by_token)
        self.view_chosen.emit(view, by_token)

    def _on_answer_opened(self) -> None:
        self._on_view_chosen("answer", self.switch.by_token)

    def _on_reading(self, instant: Instant | None) -> None:
        context = instant.context_tokens if instant else None
        self.block_map.mark(context - 1 if context else None)
        row = instant.token - 1 if instant and instant.token else None
        if self._in_blocks[:1] != [row]:
            self._in_blocks = []
        self.tokens_read.emit(self._in_blocks or ([] if row is None else [row]))

    def _on_blocks(self, rows: list[int]) -> None:
        if rows:
            self._in_blocks = rows
            self.plots.read_token(rows[0])
        elif self._in_blocks:
            self.plots.read(None)

    def _fit(self) -> None:
        room = self.height() - self.minimumSizeHint().height()
        for part, wanted in self._wanted.items():
            needed = self._height_of(part)
            part.setVisible(wanted and needed <= room)
            if wanted and needed <= room:
                room -= needed

    def _height_of(self, part: QWidget) -> int:
        return self._column.spacing() + part.minimumSizeHint().height()

    # Qt overrides

    def sizeHint(self) -> QSize:
        return PREFERRED_SIZE

    def minimumSizeHint(self) -> QSize:
        shown = (part for part in self._wanted if not part.isHidden())
        optional = sum(self._height_of(part) for part in shown)
        return self._column.minimumSize() - QSize(0, optional)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.LayoutRequest:
            self._fit()
        return super().event(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), self._theme.color("surface"))
