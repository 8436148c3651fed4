"""Draws the list of models: headings, and cells with a quiet second line."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem

from app.model_library.picker_model import BELOW_ROLE, ENTRY_ROLE, LOADABLE_ROLE, WARNS_ROLE
from app.theme import CONTROL_PX, LABEL_PX, Theme

PADDING = 10
ROW_AIR = 12
LINE_GAP = 2
SLACK = 4  # tabular figures draw a little wider than font metrics say
Index = QModelIndex | QPersistentModelIndex


class PickerDelegate(QStyledItemDelegate):
    """Knows how cells look and how large they are; what they say is the model's matter."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._font, self._bold = theme.font(CONTROL_PX), theme.font(CONTROL_PX, bold=True)
        self._small, self._strong = (
            theme.font(LABEL_PX + 0.5),
            theme.font(LABEL_PX + 0.5, bold=True),
        )

    # Qt overrides

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        theme, rect = self._theme, QRect(option.rect)
        painter.save()
        selected = bool(option.state & QStyle.StateFlag.State_Selected)
        hovered = bool(option.state & QStyle.StateFlag.State_MouseOver)
        if not index.parent().isValid():
            inner = rect.adjusted(PADDING, 0, -PADDING, -4)
            self._draw(painter, inner, index.data(), theme.muted, self._strong, at_bottom=True)
        else:
            ground = theme.bubble if selected else theme.raised if hovered else theme.surface
            painter.fillRect(rect, QColor(ground))
            self._draw_cell(painter, rect.adjusted(PADDING, 0, -PADDING, 0), index)
        painter.restore()

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        line, small = QFontMetrics(self._bold), QFontMetrics(self._small)
        if not index.parent().isValid():
            return QSize(0, small.height() + 18)
        text = line.horizontalAdvance(str(index.data() or ""))
        below = QFontMetrics(self._strong).horizontalAdvance(str(index.data(BELOW_ROLE) or ""))
        height = line.height() + LINE_GAP + small.height() + ROW_AIR
        return QSize(max(text, below) + 2 * PADDING + SLACK, height)

    # private

    def _draw_cell(self, painter: QPainter, rect: QRect, index: Index) -> None:
        theme = self._theme
        first = index.sibling(index.row(), 0)
        loadable = bool(first.data(LOADABLE_ROLE))
        below = str(index.data(BELOW_ROLE) or "")
        line, small = QFontMetrics(self._bold), QFontMetrics(self._small)
        used = line.height() + ((LINE_GAP + small.height()) if below else 0)
        top = rect.top() + (rect.height() - used) // 2
        name = index.column() == 0 and index.data(ENTRY_ROLE) is not None
        color = theme.text if loadable else theme.muted
        upper = QRect(rect.left(), top, rect.width(), line.height())
        self._draw(painter, upper, index.data(), color, self._bold if name else self._font)
        if below:
            lower = QRect(rect.left(), upper.bottom() + 1 + LINE_GAP, rect.width(), small.height())
            warns = bool(index.data(WARNS_ROLE))
            tone, font = (theme.text, self._strong) if warns else (theme.muted, self._small)
            self._draw(painter, lower, below, tone, font)

    @staticmethod
    def _draw(
        painter: QPainter,
        rect: QRect,
        text: object,
        color: str,
        font: QFont,
        *,
        at_bottom: bool = False,
    ) -> None:
        painter.setFont(font)
        painter.setPen(QColor(color))
        vertical = Qt.AlignmentFlag.AlignBottom if at_bottom else Qt.AlignmentFlag.AlignVCenter
        shown = painter.fontMetrics().elidedText(
            str(text or ""), Qt.TextElideMode.ElideMiddle, rect.width()
        )
        painter.drawText(rect, Qt.AlignmentFlag.AlignLeft | vertical, shown)
