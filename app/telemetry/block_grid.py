"""One pool of the block map: a cell a block, or a cell for several where there are thousands."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPoint, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QHelpEvent,
    QImage,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.telemetry.block_cells import (
    Cells,
    ChatLookup,
    describe,
    group_name,
    merge,
    no_chats,
    open_mask,
)
from app.telemetry.block_tiles import Pixels, make_tiles, stamp
from app.telemetry.own_cost import OWN_COST
from app.theme import Theme
from engine.events import BlockMap

MAX_PITCH, MIN_PITCH = 13, 6  # px from cell to cell, at 100 %


@dataclass(frozen=True, slots=True)
class Fit:
    """How cells lie in the room there is: pixels from cell to cell, cells in a row and in all."""

    pitch: int
    columns: int
    capacity: int


def fit(num_cells: int, width: int, height: int, smallest: int, largest: int) -> Fit:
    """The largest cells of which all have room, else the smallest ones there may be."""
    for pitch in range(largest, smallest, -1):
        columns, rows = width // pitch, height // pitch
        if columns * rows >= num_cells:
            return Fit(pitch, columns, columns * rows)
    columns, rows = max(1, width // smallest), max(1, height // smallest)
    return Fit(smallest, columns, columns * rows)


class BlockGrid(QWidget):
    """The blocks of one cache group as a grid, like the map of a disk.

    What is drawn is one image, made anew only when blocks, size or theme have changed. Arrow
    keys go from cell to cell, and each tells what it is as it does under the mouse.

    Signals:
        laid_out(): a cell may stand for another number of blocks.
        pointed(int | None): mouse or keys are at this cell, or have left the grid.
    """

    laid_out = Signal()
    pointed = Signal(object)

    def __init__(self, theme: Theme, number: int) -> None:
        super().__init__()
        self._theme = theme
        self._number = number
        self._blocks: BlockMap | None = None
        self._chat_of: ChatLookup = no_chats
        self._mask = 0
        self._fit = Fit(MAX_PITCH, 1, 1)
        self._cells: Cells | None = None
        self._current = 0
        self._pointed: int | None = None
        self._marked: int | None = None
        self._tiles: tuple[tuple[int, float], Pixels] | None = None
        self._image: QImage | None = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setMouseTracking(True)

    @property
    def marked(self) -> int | None:
        """The cell that stands out, None for none."""
        return self._marked

    @property
    def cells(self) -> Cells | None:
        """What is drawn now, None before there is a pool."""
        return self._cells

    def show_blocks(self, blocks: BlockMap, chat_of: ChatLookup) -> None:
        """Draw this map; nothing happens when it is drawn already."""
        mask = open_mask(blocks, chat_of)
        self._chat_of = chat_of
        if blocks is self._blocks and mask == self._mask:
            return
        self._blocks, self._mask = blocks, mask
        name = self.tr("Map of the cache blocks")
        self.setAccessibleName(" ".join(filter(None, (name, group_name(blocks, self._number)))))
        self._lay_out()

    def mark(self, block: int | None) -> None:
        """Let the cell with this block stand out, blocks being numbered from 1; None: none."""
        cell = None
        if block is not None and self._cells is not None:
            cell = (block - 1) // self._cells.blocks_per_cell
            cell = cell if 0 <= cell < len(self._cells.used) else None
        if cell != self._marked:
            self._marked = cell
            self.update()

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        self._tiles = None
        self._lay_out()

    def cell_at(self, place: QPoint) -> int | None:
        """The cell under a point."""
        pitch = self._pitch_px()
        column, row = int(place.x() // pitch), int(place.y() // pitch)
        cell = row * self._fit.columns + column
        num_cells = len(self._cells.used) if self._cells else 0
        inside = 0 <= column < self._fit.columns and 0 <= cell < num_cells
        return cell if inside else None

    def cell_rect(self, cell: int) -> QRectF:
        """Where a cell is drawn, its gap to the next one included."""
        row, column = divmod(cell, self._fit.columns)
        pitch = self._pitch_px()
        return QRectF(column * pitch, row * pitch, pitch, pitch)

    def describe(self, cell: int) -> str:
        """A cell in words."""
        if self._blocks is None or self._cells is None:
            return ""
        return describe(self._blocks, self._cells, cell, self._chat_of)

    # --- drawing --------------------------------------------------------------------------

    def _pitch_px(self) -> float:
        return self._fit.pitch / self.devicePixelRatio()

    def _lay_out(self) -> None:
        """Merge and place the cells for the present size, in whole pixels of the screen."""
        self._image = None
        self.update()
        if self._blocks is None:
            return
        self._marked = None  # the owner of the map marks anew
        group = self._blocks.groups[self._number]
        ratio = self.devicePixelRatio()
        scale = self._theme.scale * ratio
        room = int(self.width() * ratio), int(self.height() * ratio)
        pitches = round(MIN_PITCH * scale), round(MAX_PITCH * scale)
        self._cells = merge(group, fit(len(group.used), *room, *pitches).capacity)
        self._fit = fit(len(self._cells.used), *room, *pitches)
        self._current = min(self._current, len(self._cells.used) - 1)
        self.laid_out.emit()

    def _draw(self, cells: Cells) -> QImage:
        key = (self._fit.pitch, self.devicePixelRatio())
        if self._tiles is None or self._tiles[0] != key:
            self._tiles = (key, make_tiles(self._theme, *key))
        is_open = (cells.owners & self._mask != 0).astype(int)
        pixels = stamp(self._tiles[1][cells.states, is_open, cells.levels], self._fit.columns)
        height, width = pixels.shape
        wrapped = QImage(pixels.tobytes(), width, height, QImage.Format.Format_ARGB32_Premultiplied)
        image = wrapped.copy()  # with pixels of its own
        image.setDevicePixelRatio(self.devicePixelRatio())
        return image

    def _go_to(self, cell: int) -> None:
        if self._cells is None:
            return
        self._current = max(0, min(cell, len(self._cells.used) - 1))
        text = self.describe(self._current)
        self.setAccessibleDescription(text)
        corner = self.cell_rect(self._current).bottomRight().toPoint()
        QToolTip.showText(self.mapToGlobal(corner), text, self)
        self.update()
        self._point(self._current)

    def _point(self, cell: int | None) -> None:
        if cell != self._pointed:
            self._pointed = cell
            self.pointed.emit(cell)

    # Qt overrides

    def sizeHint(self) -> QSize:
        return QSize(320, self.maximumHeight())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._lay_out()

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.DevicePixelRatioChange:
            self._lay_out()
        elif event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            cell = self.cell_at(event.pos())
            text = "" if cell is None else self.describe(cell)
            QToolTip.showText(event.globalPos(), text, self)
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        steps = {
            Qt.Key.Key_Left: -1,
            Qt.Key.Key_Right: 1,
            Qt.Key.Key_Up: -self._fit.columns,
            Qt.Key.Key_Down: self._fit.columns,
            Qt.Key.Key_Home: -self._fit.capacity,
            Qt.Key.Key_End: self._fit.capacity,
        }
        step = steps.get(Qt.Key(event.key()))
        if step is None:
            super().keyPressEvent(event)
        else:
            self._go_to(self._current + step)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._point(self.cell_at(event.position().toPoint()))

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self._point(None)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self._go_to(self._current)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self._point(None)

    @OWN_COST.counted("panels")
    def paintEvent(self, event: QPaintEvent) -> None:
        if self._cells is None:
            return
        if self._image is None:
            self._image = self._draw(self._cells)
        painter = QPainter(self)
        painter.drawImage(QPoint(0, 0), self._image)
        if self._marked is not None:
            painter.setPen(QPen(self._theme.color("text"), 2))
            painter.drawRect(self.cell_rect(self._marked).adjusted(-0.5, -0.5, -0.5, -0.5))
        if self.hasFocus():
            painter.setPen(QPen(self._theme.color("text"), 1))
            painter.drawRect(self.cell_rect(self._current).adjusted(0.5, 0.5, -1.5, -1.5))
