"""How a cell of the block map is painted: each look once, then stamped by numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QImage, QPainter

from app.telemetry.block_cells import LEVELS, CellState
from app.theme import Theme

Pixels = npt.NDArray[np.uint32]

_STRIPED_GROUND = 0.3
_OTHER_CHATS = 0.5  # opacity; free cells are weaker still, so that lightness alone tells them apart


@dataclass(frozen=True, slots=True)
class CellLook:
    """The form says the state, the strength whether it is the open chat's."""

    state: CellState
    is_open: bool


def paint_cell(painter: QPainter, rect: QRectF, look: CellLook, theme: Theme) -> None:
    """Fill `rect`: used is solid, shared is striped, cached is a frame, free is solid and faint."""
    if look.state is CellState.FREE:
        painter.fillRect(rect, theme.color("line"))
        return
    color = theme.color("kv", 1.0 if look.is_open else _OTHER_CHATS)
    match look.state:
        case CellState.USED:
            painter.fillRect(rect, color)
        case CellState.SHARED:
            _stripe(painter, rect, color)
        case CellState.CACHED:
            _frame(painter, rect, color)


def _stripe(painter: QPainter, rect: QRectF, color: QColor) -> None:
    """Upright bars at the edges and in the middle, on a ground that keeps cells apart."""
    ground = QColor(color)
    ground.setAlphaF(color.alphaF() * _STRIPED_GROUND)
    painter.fillRect(rect, ground)
    width = max(1.0, rect.width() // 5)
    for place in (0.0, 0.5, 1.0):
        left = rect.x() + place * (rect.width() - width)
        painter.fillRect(QRectF(left, rect.y(), width, rect.height()), color)


def _frame(painter: QPainter, rect: QRectF, color: QColor) -> None:
    width = min(max(1.0, rect.width() // 6), rect.height() / 2)
    inner = rect.adjusted(width, width, -width, -width)
    for side in (
        QRectF(rect.left(), rect.top(), rect.width(), width),
        QRectF(rect.left(), inner.bottom(), rect.width(), width),
        QRectF(rect.left(), inner.top(), width, inner.height()),
        QRectF(inner.right(), inner.top(), width, inner.height()),
    ):
        painter.fillRect(side, color)


def make_tiles(theme: Theme, pitch: int, ratio: float) -> Pixels:
    """Every look at every level, shape [states, 2, levels + 1, pitch, pitch]; pitch in pixels.

    `ratio` is that of pixels to px. Index 1 of the second axis is the open chat's.
    """
    tiles = np.empty((len(CellState), 2, LEVELS + 1, pitch, pitch), np.uint32)
    gap = max(1, round(ratio))
    side = (pitch - gap) / ratio
    for state in CellState:
        for is_open in (False, True):
            for level in range(LEVELS + 1):
                height = round(side * ratio * level / LEVELS) / ratio
                image = QImage(pitch, pitch, QImage.Format.Format_ARGB32_Premultiplied)
                image.setDevicePixelRatio(ratio)
                image.fill(Qt.GlobalColor.transparent)
                painter = QPainter(image)
                empty = QRectF(0, 0, side, side - height)
                paint_cell(painter, empty, CellLook(CellState.FREE, is_open), theme)
                taken = QRectF(0, side - height, side, height)
                paint_cell(painter, taken, CellLook(state, is_open), theme)
                painter.end()
                tiles[state, int(is_open), level] = pixels_of(image)
    return tiles


def stamp(tiles: Pixels, columns: int) -> Pixels:
    """A tile for each cell, shape [cells, pitch, pitch], put in rows of so many `columns`."""
    pitch = tiles.shape[-1]
    rows = -(-len(tiles) // columns)
    cells = np.zeros((rows * columns, pitch, pitch), np.uint32)
    cells[: len(tiles)] = tiles
    grid = cells.reshape(rows, columns, pitch, pitch).swapaxes(1, 2)
    return grid.reshape(rows * pitch, columns * pitch)


def pixels_of(image: QImage) -> Pixels:
    """The pixels of a 32-bit image, shape [height, width], copied."""
    bits = np.frombuffer(image.constBits(), np.uint32)
    return bits.reshape(image.height(), image.bytesPerLine() // 4)[:, : image.width()].copy()
