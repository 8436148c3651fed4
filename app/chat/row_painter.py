"""Draws the content of a row: bubble, prose, code cards, figures, error cards, caret."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRect, QRectF, Qt
from PySide6.QtGui import (
    QAbstractTextDocumentLayout,
    QFontMetricsF,
    QPainter,
    QPainterPath,
    QPalette,
    QPen,
)

from app.chat.bubble_layout import (
    BUBBLE_RADIUS,
    CARD_RADIUS,
    CODE_PADDING,
    CONTROL_PADDING,
    CodeCard,
    Hit,
    Target,
)
from app.chat.documents import CARET_WIDTH, caret_rect
from app.chat.row_content import (
    RowContent,
    TextBlock,
    control_label,
    copied_label,
    note_buttons,
)
from app.chat.stats_line import ITEM_GAP, Run, fitting
from app.chat.store import ChatMessage
from app.theme import CONTROL_PX, LABEL_PX, Theme

EDGE_WIDTH = 3
TAIL_RADIUS = 3

_LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


@dataclass(frozen=True, slots=True)
class RowState:
    """What about a row is not in its message.

    hovered: the place under the mouse; copied: the Copy control just used; covered: the block
    that a text widget draws while text is selected in it; active: whether the row shows its
    controls; focused: whether the keyboard is on it; can_regenerate: whether Regenerate is shown.
    """

    hovered: Hit | None = None
    copied: Hit | None = None
    covered: int | None = None
    active: bool = False
    focused: bool = False
    can_regenerate: bool = False


class RowPainter:
    """Paints one row with its top left corner at the painter's origin."""

    def __init__(self, painter: QPainter, theme: Theme, visible: QRect) -> None:
        self._painter = painter
        self._theme = theme
        self._visible = visible  # what of the row is on screen; text beyond it is not drawn

    def paint(self, message: ChatMessage, content: RowContent, state: RowState) -> None:
        """Draw the whole row."""
        geometry = content.geometry
        if geometry.frame:
            self._frame(message, geometry.frame)
        for rule in geometry.rules:
            self._painter.fillRect(rule, self._theme.color("kv"))
        for number, (block, place) in enumerate(zip(content.blocks, geometry.blocks, strict=True)):
            if block.code and place.card:
                self._code_card(
                    block.code.language, place.card, Hit(Target.COPY_CODE, number), state
                )
            if number != state.covered:
                self._text(block, place.text)
        if content.live:
            self._caret(content.live.caret, geometry.blocks[-1].text)
        elif message.state == "streaming" and not message.progress:
            self._caret(caret_rect(content.blocks[-1].document), geometry.blocks[-1].text)
        controls = [(h, r) for h, r in geometry.controls if _is_shown(h, state)]
        labels = _button_labels(message)
        if geometry.stats:
            taken = sum(rect.width() for hit, rect in controls if hit not in labels)
            self._stats(content, geometry.stats.adjusted(0, 0, -taken, 0))
        for hit, rect in controls:
            if hit in labels:
                self._button(rect, labels[hit], hit == state.hovered)
            else:
                self._control(rect, hit, state)
        if state.focused:
            self._focus_ring(geometry.column, geometry.height)

    def _frame(self, message: ChatMessage, frame: QRect) -> None:
        box = QRectF(frame)
        if message.role == "user":
            bubble = QPainterPath()
            bubble.addRoundedRect(box, BUBBLE_RADIUS, BUBBLE_RADIUS)
            tail = QPainterPath()
            tail.addRoundedRect(QRectF(box.center(), box.bottomRight()), TAIL_RADIUS, TAIL_RADIUS)
            self._painter.fillPath(bubble.united(tail), self._theme.color("bubble"))
            return
        self._card(box)
        self._painter.save()
        inside = QPainterPath()
        inside.addRoundedRect(box, CARD_RADIUS, CARD_RADIUS)
        self._painter.setClipPath(inside, Qt.ClipOperation.IntersectClip)
        edge = QRectF(box.topLeft(), QPointF(box.left() + EDGE_WIDTH, box.bottom()))
        self._painter.fillRect(
            edge, self._theme.color(message.note.tone if message.note else "stop")
        )
        self._painter.restore()

    def _card(self, box: QRectF) -> None:
        self._painter.setPen(QPen(self._theme.color("line"), 1))
        self._painter.setBrush(self._theme.color("surface"))
        self._painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), CARD_RADIUS, CARD_RADIUS)

    def _code_card(self, language: str, card: CodeCard, copy: Hit, state: RowState) -> None:
        self._card(QRectF(card.frame))
        line = QRect(card.header.left() + 1, card.header.bottom(), card.header.width() - 2, 1)
        self._painter.fillRect(line, self._theme.color("line"))
        room = card.header.adjusted(CODE_PADDING, 0, -card.copy.width(), 0)
        self._painter.setFont(self._theme.font(LABEL_PX + 1))
        self._painter.setPen(self._theme.color("muted"))
        elide = Qt.TextElideMode.ElideRight
        shown = self._painter.fontMetrics().elidedText(language, elide, room.width())
        self._painter.drawText(room, _LEFT, shown)
        self._control(card.copy, copy, state)

    def _control(self, rect: QRect, hit: Hit, state: RowState) -> None:
        label = copied_label() if hit == state.copied else control_label(hit.target)
        self._painter.setFont(self._theme.font(LABEL_PX + 1))
        self._painter.setPen(self._theme.color("text" if hit == state.hovered else "muted"))
        self._painter.drawText(rect.adjusted(0, 0, -CONTROL_PADDING, 0), _RIGHT, label)

    def _button(self, rect: QRect, label: str, hovered: bool) -> None:
        self._painter.setPen(QPen(self._theme.color("faint" if hovered else "line"), 1))
        self._painter.setBrush(self._theme.color("raised"))
        self._painter.drawRoundedRect(QRectF(rect).adjusted(0.5, 0.5, -0.5, -0.5), 6, 6)
        self._painter.setFont(self._theme.font(CONTROL_PX))
        self._painter.setPen(self._theme.color("text"))
        self._painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, label)

    def _text(self, block: TextBlock, place: QRect) -> None:
        clip = QRectF((self._visible & place).translated(-place.topLeft()))
        if clip.isEmpty():
            return
        context = QAbstractTextDocumentLayout.PaintContext()
        palette = QPalette()
        palette.setColor(QPalette.ColorRole.Text, self._theme.color(block.color))
        context.palette = palette
        context.clip = clip
        self._painter.save()
        self._painter.translate(place.topLeft())
        self._painter.setClipRect(clip, Qt.ClipOperation.IntersectClip)
        block.document.documentLayout().draw(self._painter, context)
        self._painter.restore()

    def _caret(self, caret: QRect, place: QRect) -> None:
        rect = QRect(caret)
        # A full line leaves no room: the caret stays inside of the column.
        rect.moveLeft(min(rect.left(), place.width() - CARET_WIDTH))
        self._painter.fillRect(rect.translated(place.topLeft()), self._theme.color("decode"))

    def _stats(self, content: RowContent, rect: QRect) -> None:
        fonts = {strong: self._theme.font(LABEL_PX + 1, bold=strong) for strong in (False, True)}
        metrics = {strong: QFontMetricsF(font) for strong, font in fonts.items()}

        def measure(run: Run) -> float:
            return metrics[run.strong].horizontalAdvance(run.text)

        x = float(rect.left())
        for item in fitting(content.stats, rect.width(), measure):
            for run in item:
                width = measure(run)
                self._painter.setFont(fonts[run.strong])
                self._painter.setPen(self._theme.color("muted" if run.strong else "faint"))
                box = QRectF(x, rect.top(), width + 1, rect.height())
                self._painter.drawText(box, _LEFT, run.text)
                x += width
            x += ITEM_GAP

    def _focus_ring(self, column: QRect, height: int) -> None:
        ring = QRectF(column.left() - 8.5, 1.5, column.width() + 17, height - 3)
        self._painter.setPen(QPen(self._theme.color("faint"), 1))
        self._painter.setBrush(Qt.BrushStyle.NoBrush)
        self._painter.drawRoundedRect(ring, 6, 6)


def _button_labels(message: ChatMessage) -> dict[Hit, str]:
    """The words on the buttons of a row's card."""
    if message.note is not None:
        return dict(note_buttons(message.note))
    return {Hit(Target.ACTION, n): each.label for n, each in enumerate(message.actions)}


def _is_shown(hit: Hit, state: RowState) -> bool:
    if hit.target in (Target.ACTION, Target.SUGGESTION, Target.DETAILS):
        return True
    return state.active and (hit.target is not Target.REGENERATE or state.can_regenerate)
