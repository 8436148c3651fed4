"""A part of the window as a file: pixels (PNG) or lines and real text (SVG), by its ending."""

from __future__ import annotations

import re
from pathlib import Path

from PySide6.QtCore import QBuffer, QIODevice, QPoint, QRect
from PySide6.QtGui import QColor, QPainter, QPixmap
from PySide6.QtSvg import QSvgGenerator
from PySide6.QtWidgets import QWidget

SCALE = 2  # of a PNG


def pixmap_of(widget: QWidget, background: QColor) -> QPixmap:
    """The widget at twice its size."""
    pixmap = QPixmap(widget.size() * SCALE)
    pixmap.setDevicePixelRatio(SCALE)
    pixmap.fill(background)
    widget.render(pixmap, QPoint())
    return pixmap


def save_picture(widget: QWidget, path: Path, background: QColor, title: str) -> None:
    """Write the widget as it is now; SVG where `path` ends so, else PNG. Raises OSError."""
    if path.suffix.lower() == ".svg":
        _save_svg(widget, path, background, title)
    elif not pixmap_of(widget, background).save(str(path)):
        raise OSError(f"the picture could not be written to {path}")


def _save_svg(widget: QWidget, path: Path, background: QColor, title: str) -> None:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    generator = QSvgGenerator()
    generator.setOutputDevice(buffer)
    generator.setSize(widget.size())
    generator.setViewBox(QRect(QPoint(), widget.size()))
    generator.setResolution(widget.logicalDpiX())  # else it is drawn larger than it is
    generator.setTitle(title)
    painter = QPainter(generator)
    painter.fillRect(widget.rect(), background)
    widget.render(painter, QPoint())
    painter.end()
    drawing = bytes(buffer.data().data())
    # Where the window's own font is not installed, the next best is not one with serifs.
    path.write_bytes(re.sub(rb'font-family="([^"]+)"', rb'font-family="\1, sans-serif"', drawing))
