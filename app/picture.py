"""A part of the window as a file: pixels (PNG) or lines and real text (SVG), by its ending."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QFile, QIODevice, QPoint, QRect
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
    # The generator itself does not tell when its file cannot be opened.
    file = QFile(str(path))
    if not file.open(QIODevice.OpenModeFlag.WriteOnly):
        raise OSError(f"the picture could not be written to {path}: {file.errorString()}")
    generator = QSvgGenerator()
    generator.setOutputDevice(file)
    generator.setSize(widget.size())
    generator.setViewBox(QRect(QPoint(), widget.size()))
    generator.setTitle(title)
    painter = QPainter(generator)
    painter.fillRect(widget.rect(), background)
    widget.render(painter, QPoint())
    painter.end()
    file.close()
