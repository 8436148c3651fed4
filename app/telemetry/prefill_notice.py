"""In the latency plot while there is no latency yet: how far the prompt has been read."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter

from app.telemetry.pixel_items import PREFILL_SHADE, PixelItem
from app.theme import Theme

_TEXT_PX = 12
_BAR_PX = 230.0
_BAR_HEIGHT = 4.0
_GAP = 10.0
_WRAP = int(Qt.TextFlag.TextWordWrap | Qt.AlignmentFlag.AlignLeft)


class PrefillNotice(PixelItem):
    """A sentence with a small bar under it, right of the shade where there is room.

    `fraction` (0 to 1) None: no bar. `shade_end_s` is where the running prefill has come to.
    """

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.setZValue(11)
        self.theme = theme
        self.text = ""
        self.fraction: float | None = None
        self.shade_end_s = 0.0

    def show_text(self, text: str, fraction: float | None = None, shade_end_s: float = 0.0) -> None:
        """Say this from now on; an empty text shows nothing."""
        self.text, self.fraction, self.shade_end_s = text, fraction, shade_end_s
        self.update()

    def draw(self, painter: QPainter, area: QRectF) -> None:
        """The sentence, wrapped if it must be, and the bar."""
        if not self.text:
            return
        font = self.theme.font(_TEXT_PX)
        metrics = QFontMetricsF(font)
        width = metrics.horizontalAdvance(self.text) + 2
        left = max(area.left(), self.px(self.shade_end_s, 0).x()) + _GAP
        if self.fraction is None or left + width > area.right() - 4:
            width = min(width, area.width() - 2 * _GAP)
            left = area.left() + (area.width() - width) / 2
        wanted = QRectF(left, area.top(), width, area.height())
        height = metrics.boundingRect(wanted, _WRAP, self.text).height()
        top = area.top() + (area.height() - height) / 2
        bar_height = 0.0 if self.fraction is None else _BAR_HEIGHT + 10
        self._clear(painter, area, QRectF(left - 6, top - 4, width + 12, height + bar_height + 8))
        painter.setFont(font)
        painter.setPen(self.theme.color("muted" if self.fraction is None else "text"))
        painter.drawText(QRectF(left, top, width, height + 1), _WRAP, self.text)
        if self.fraction is not None:
            bar = QRectF(left, top + height + 8, min(width, _BAR_PX), _BAR_HEIGHT)
            self._draw_bar(painter, bar, self.fraction)

    def _clear(self, painter: QPainter, area: QRectF, room: QRectF) -> None:
        """Take away the grid lines behind the words, and nothing else."""
        painter.fillRect(room, self.theme.color("surface"))
        if self.fraction is not None:
            shade = QRectF(area)
            shade.setRight(self.px(self.shade_end_s, 0).x())
            painter.fillRect(room.intersected(shade), self.theme.color("prefill", PREFILL_SHADE))

    def _draw_bar(self, painter: QPainter, bar: QRectF, fraction: float) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self.theme.color("line"))
        painter.drawRoundedRect(bar, 2, 2)
        painter.setBrush(self.theme.color("prefill"))
        bar.setWidth(bar.width() * min(1.0, max(0.0, fraction)))
        painter.drawRoundedRect(bar, 2, 2)
