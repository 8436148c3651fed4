"""The block map of the dock: paging made visible, who has which block of the KV cache now."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QSizePolicy, QVBoxLayout, QWidget

from app.telemetry.block_cells import CellState, ChatLookup, details, no_chats, summary
from app.telemetry.block_grid import BlockGrid
from app.telemetry.block_tiles import CellLook
from app.telemetry.format import count
from app.telemetry.labels import ThemedLabel
from app.telemetry.plot_area import RIGHT_MARGIN, axis_width
from app.telemetry.plot_header import Legend, LegendEntry, PlotHeader
from app.telemetry.telemetry_model import TelemetryModel
from app.telemetry.token_places import block_of, rows_in, still_holds
from app.theme import LABEL_PX, Theme

_GRID_HEIGHTS = (30, 68)  # px at 100 %: least and most of a single pool
_SPLIT_HEIGHTS = (24, 40)  # of one among several


class FittingLabel(ThemedLabel):
    """A line of text that is said in fewer words where it has less room."""

    _wordings: tuple[str, ...] = ("",)

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, LABEL_PX + 0.5, "muted")
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def set_wordings(self, *wordings: str) -> None:
        """The same in ever fewer words."""
        self._wordings = wordings
        self.setAccessibleName(wordings[0])
        self._fit()

    def _fit(self) -> None:
        width = self.fontMetrics().horizontalAdvance
        fitting = (text for text in self._wordings if width(text) <= self.width())
        self.setText(next(fitting, self._wordings[-1]))

    # Qt overrides

    def set_theme(self, theme: Theme) -> None:
        super().set_theme(theme)
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()


class BlockMapPanel(QWidget):
    """A line and a grid for each cache group, and a legend.

    Draws what the model says whenever the model has changed and the panel can be seen.

    Signals:
        pointed(list[int]): rows of the selected request's tokens that lie in the blocks under
            the mouse or the keys; empty where there are none, or nothing is pointed at.
    """

    pointed = Signal(list)

    def __init__(self, theme: Theme, model: TelemetryModel) -> None:
        super().__init__()
        self._theme = theme
        self._model = model
        self._chat_of: ChatLookup = no_chats
        self._place: int | None = None
        self.header = PlotHeader(theme)
        self.header.set_title(self.tr("Cache blocks"))
        self.grids: list[BlockGrid] = []
        self.lines: list[FittingLabel] = []
        self._empty = ThemedLabel(theme, LABEL_PX + 0.5, "faint")
        self.legend = Legend(theme)
        self._empty.setText(self.tr("Reserved when a model is loaded."))
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(self.header)
        self._body = QVBoxLayout()
        self._body.setSpacing(4)
        self._body.addWidget(self._empty)
        self._body.addWidget(self.legend, 0, Qt.AlignmentFlag.AlignLeft)
        column.addLayout(self._body, 1)
        model.changed.connect(self._on_changed)
        self.set_theme(theme)

    def set_chat_lookup(self, chat_of: ChatLookup) -> None:
        """Ask this from now on whose chat a request belongs to."""
        self._chat_of = chat_of
        self.refresh()

    def refresh(self) -> None:
        """Draw the pool as the model has it now."""
        self._follow_groups()
        blocks = self._model.blocks
        if blocks is None:
            return
        for number, (grid, line) in enumerate(zip(self.grids, self.lines, strict=True)):
            grid.show_blocks(blocks, self._chat_of)
            line.set_wordings(*summary(blocks, number))
            line.setToolTip(
                "\n".join((line.accessibleName(), details(blocks, number, self._chat_of)))
            )
        self.mark(self._place)

    def mark(self, place: int | None) -> None:
        """Let the block stand out that has the selected request's token at a place; None: none.

        Places count from the prompt's first token, 0.
        """
        self._place = place
        for number, grid in enumerate(self.grids):
            grid.mark(self._block_of(number, grid, place))

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        self._empty.set_theme(theme)
        self.header.set_theme(theme)
        self.legend.set_theme(theme)
        self._body.setContentsMargins(axis_width(theme), 0, RIGHT_MARGIN, 0)
        self._fit_legend()
        for grid, line in zip(self.grids, self.lines, strict=True):
            grid.set_theme(theme)
            line.set_theme(theme)
        self._set_heights()

    def _block_of(self, number: int, grid: BlockGrid, place: int | None) -> int | None:
        trace, blocks = self._model.selected, self._model.blocks
        if trace is None or blocks is None or grid.cells is None or place is None:
            return None
        block = block_of(trace, blocks, number, place)
        if block is None or block > grid.cells.num_blocks:
            return None
        owners = int(grid.cells.owners[(block - 1) // grid.cells.blocks_per_cell])
        return block if still_holds(trace, blocks, owners) else None

    def _on_pointed(self, number: int, cell: int | None) -> None:
        trace, blocks = self._model.selected, self._model.blocks
        cells = self.grids[number].cells
        if trace is None or blocks is None or cells is None or cell is None:
            self.pointed.emit([])
        elif still_holds(trace, blocks, int(cells.owners[cell])):
            first, size = cell * cells.blocks_per_cell + 1, int(cells.sizes[cell])
            self.pointed.emit(rows_in(trace, blocks, number, range(first, first + size)))
        else:
            self.pointed.emit([])

    def _on_changed(self) -> None:
        self._follow_groups()  # hidden too: whether there is room for the panel depends on it
        if self.isVisible():
            self.refresh()

    def _follow_groups(self) -> None:
        blocks = self._model.blocks
        num_groups = len(blocks.groups) if blocks else 0
        if num_groups != len(self.grids):
            self._make_grids(num_groups)

    def _make_grids(self, number: int) -> None:
        for widget in (*self.grids, *self.lines):
            self._body.removeWidget(widget)
            widget.hide()
            widget.deleteLater()
        self.grids = [BlockGrid(self._theme, group) for group in range(number)]
        self.lines = [FittingLabel(self._theme) for _ in range(number)]
        for group, (grid, line) in enumerate(zip(self.grids, self.lines, strict=True)):
            grid.laid_out.connect(self._show_subtitle)
            grid.pointed.connect(partial(self._on_pointed, group))
            above_legend = self._body.count() - 1
            self._body.insertWidget(above_legend, line)
            self._body.insertWidget(above_legend + 1, grid, 1)
        self._empty.setVisible(not number)
        self.legend.set_entries(self._entries() if number else ())
        self._fit_legend()
        self._show_subtitle()
        self._set_heights()

    def _set_heights(self) -> None:
        least, most = _GRID_HEIGHTS if len(self.grids) < 2 else _SPLIT_HEIGHTS
        for grid in self.grids:
            grid.setMinimumHeight(self._theme.px(least))
            grid.setMaximumHeight(self._theme.px(most))

    def _fit_legend(self) -> None:
        room = self.width() - axis_width(self._theme) - RIGHT_MARGIN
        self.legend.set_short(False)
        self.legend.set_short(self.legend.needed_width() > room)

    def _entries(self) -> list[LegendEntry]:
        names = (
            (CellLook(CellState.USED, True), self.tr("this chat"), self.tr("this")),
            (CellLook(CellState.USED, False), self.tr("other chats"), self.tr("others")),
            (CellLook(CellState.SHARED, True), self.tr("shared prefix"), self.tr("shared")),
            (CellLook(CellState.CACHED, True), self.tr("cached"), self.tr("cached")),
            (CellLook(CellState.FREE, True), self.tr("free"), self.tr("free")),
        )
        return [LegendEntry(look, "kv", name, short) for look, name, short in names]

    def _show_subtitle(self) -> None:
        blocks = self._model.blocks
        if blocks is None:
            self.header.set_subtitle("", "")
            return
        text = self.tr("of %1 tokens").replace("%1", count(blocks.block_size))
        per_cell = max((g.cells.blocks_per_cell for g in self.grids if g.cells), default=1)
        if per_cell > 1:
            in_cell = self.tr("up to %1 in a cell").replace("%1", count(per_cell))
            text = f"{text}, {in_cell}"
        self.header.set_subtitle(text, text)

    # Qt overrides

    def minimumSizeHint(self) -> QSize:
        return QSize(200, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_legend()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()
