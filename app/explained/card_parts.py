"""What the card is made of: dots that say where one is, and text that is drawn."""

from __future__ import annotations

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.explained.story import Step
from app.theme import Theme

BODY_PX = 12.5
_DOT_PX, _DOT_PITCH = 5, 10
_PARAGRAPH_GAP = 4
_MOST_KEPT = 200  # heights
_WRAP = int(Qt.TextFlag.TextWordWrap)

# What a step is about has that meaning's colour, as everywhere.
STEP_COLORS: dict[Step, str] = {
    Step.TOKENIZE: "muted",
    Step.EMBED: "muted",
    Step.PREFILL: "prefill",
    Step.FIRST_TOKEN: "prefill",
    Step.DECODE: "decode",
    Step.DETOKENIZE: "muted",
}


class StepDots(QWidget):
    """A dot a step: filled up to the one on show, rings for those to come."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._shown = Step.TOKENIZE
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        self.updateGeometry()
        self.update()

    def show_step(self, step: Step) -> None:
        """Mark another step."""
        self._shown = step
        self.update()

    # Qt overrides

    def sizeHint(self) -> QSize:
        scale = self._theme.scale
        return QSize(round(_DOT_PITCH * scale * len(Step)), round((_DOT_PX + 4) * scale))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        scale = self._theme.scale
        for step in Step:
            here = step == self._shown
            size = round((_DOT_PX + 2 * here) * scale)
            painter.setPen(self._theme.color("faint"))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            if step <= self._shown:
                token = STEP_COLORS[step] if here else "faint"
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(self._theme.color(token))
            left = round(_DOT_PITCH * scale * (step + 0.5) - size / 2)
            painter.drawEllipse(left, (self.height() - size) // 2, size, size)


class Paragraphs(QWidget):
    """Text that changes with the figures in it, drawn in lines as wide as there is room.

    A label would have the panels laid out and drawn anew at each change: 5 ms, against 1.
    """

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.text = ""
        self._heights: dict[tuple[str, int], int] = {}
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        self.setFont(theme.font(BODY_PX))
        self._heights.clear()
        self.update()

    def set_text(self, text: str) -> None:
        """Say something else in the same room."""
        if text != self.text:
            self.text = text
            self.update()

    def height_of(self, text: str, width: int) -> int:
        """What a text takes at this width."""
        paragraphs = text.split("\n")
        heights = [self._paragraph_height(paragraph, width) for paragraph in paragraphs]
        return sum(heights) + round(_PARAGRAPH_GAP * self._theme.scale) * (len(heights) - 1)

    def _paragraph_height(self, paragraph: str, width: int) -> int:
        key = (paragraph, width)
        if key not in self._heights:
            # Most paragraphs stay as they are while an answer runs; those with figures come anew.
            if len(self._heights) >= _MOST_KEPT:
                self._heights.clear()
            room = QRect(0, 0, max(1, width), 10_000)
            self._heights[key] = self.fontMetrics().boundingRect(room, _WRAP, paragraph).height()
        return self._heights[key]

    # Qt overrides

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setPen(self._theme.color("text"))
        top = 0
        for paragraph in self.text.split("\n"):
            height = self._paragraph_height(paragraph, self.width())
            painter.drawText(QRect(0, top, self.width(), height), _WRAP, paragraph)
            top += height + round(_PARAGRAPH_GAP * self._theme.scale)
