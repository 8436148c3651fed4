"""Draws the rows of the chats list: quiet headings, titles, and the pace of answers under way."""

from __future__ import annotations

from PySide6.QtCore import (
    QAbstractItemModel,
    QEvent,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QRect,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QFontMetrics, QMouseEvent, QPainter
from PySide6.QtWidgets import QLineEdit, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from app.chat.chat_rows import PACE_ROLE, ChatRowsModel
from app.chat.styles import input_style
from app.theme import CONTROL_PX, LABEL_PX, Theme

ROW_RADIUS = 6
PADDING = 8
STOP_SIDE = 9  # the square that stops an answer, as on a tape deck
STOP_ZONE = 28  # what of the row's right end takes the click

_Index = QModelIndex | QPersistentModelIndex
_LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter


class ChatRowDelegate(QStyledItemDelegate):
    """Draws the rows of a `ChatRowsModel` and edits their titles in place.

    Signals:
        editing_changed: whether a title is open for editing.
        stop_requested: the chat whose answer is to stop.
    """

    editing_changed = Signal(bool)
    stop_requested = Signal(str)

    def __init__(self, theme: Theme, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._theme = theme

    def set_theme(self, theme: Theme) -> None:
        """Draw with other colours or sizes."""
        self._theme = theme

    def _is_heading(self, index: _Index) -> bool:
        model = index.model()
        row = model.row_at(index) if isinstance(model, ChatRowsModel) else None
        return row is not None and row.is_heading

    def _paint_pace(self, painter: QPainter, box: QRect, pace: str) -> int:
        """Pace and stop square at the right end; gives where they begin."""
        painter.save()
        square = QRectF(0, 0, STOP_SIDE, STOP_SIDE)
        square.moveCenter(_stop_zone(box).toRectF().center())
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._theme.color("stop"))
        painter.drawRoundedRect(square, 2, 2)
        painter.setFont(self._theme.font(LABEL_PX))
        painter.setPen(self._theme.color("decode"))
        room = box.adjusted(0, 0, -STOP_ZONE, 0)
        painter.drawText(room, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, pace)
        left = room.right() - painter.fontMetrics().horizontalAdvance(pace)
        painter.restore()
        return left

    # Qt overrides

    def editorEvent(
        self,
        event: QEvent,
        model: QAbstractItemModel,
        option: QStyleOptionViewItem,
        index: _Index,
    ) -> bool:
        if (
            isinstance(event, QMouseEvent)
            and event.type() == QEvent.Type.MouseButtonRelease
            and isinstance(model, ChatRowsModel)
            and index.data(PACE_ROLE)
            and _stop_zone(option.rect).contains(event.position().toPoint())
        ):
            row = model.row_at(index)
            if row and row.chat_id:
                self.stop_requested.emit(row.chat_id)
                return True
        return super().editorEvent(event, model, option, index)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        theme, box = self._theme, option.rect
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self._is_heading(index):
            painter.setFont(theme.font(LABEL_PX + 1, bold=True))
            painter.setPen(theme.color("muted"))
            box = box.adjusted(0, 8, 0, 0)
        else:
            marked = bool(option.state & QStyle.StateFlag.State_Selected)
            under_mouse = bool(option.state & QStyle.StateFlag.State_MouseOver)
            if marked or under_mouse:
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(theme.color("raised", 1.0 if marked else 0.5))
                painter.drawRoundedRect(QRectF(box).adjusted(0, 1, 0, -1), ROW_RADIUS, ROW_RADIUS)
            if option.state & QStyle.StateFlag.State_HasFocus:
                painter.setPen(theme.color("faint"))
                painter.setBrush(Qt.BrushStyle.NoBrush)
                ring = QRectF(box).adjusted(0.5, 1.5, -0.5, -1.5)
                painter.drawRoundedRect(ring, ROW_RADIUS, ROW_RADIUS)
            painter.setFont(theme.font(CONTROL_PX))
            painter.setPen(theme.color("text" if marked else "muted"))
        inner = box.adjusted(PADDING, 0, -PADDING, 0)
        pace = index.data(PACE_ROLE)
        if pace:
            inner.setRight(self._paint_pace(painter, box, str(pace)) - PADDING)
        elide = Qt.TextElideMode.ElideRight
        text = str(index.data())
        painter.drawText(inner, _LEFT, painter.fontMetrics().elidedText(text, elide, inner.width()))
        painter.restore()

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        height = QFontMetrics(self._theme.font(CONTROL_PX)).height()
        return QSize(0, height + (20 if self._is_heading(index) else 18))

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: _Index) -> QWidget:
        editor = QLineEdit(parent)
        editor.setFont(self._theme.font(CONTROL_PX))
        editor.setStyleSheet(input_style(self._theme))
        editor.setAccessibleName(self.tr("Title of the chat"))
        self.editing_changed.emit(True)
        return editor

    def destroyEditor(self, editor: QWidget, index: _Index) -> None:
        super().destroyEditor(editor, index)
        self.editing_changed.emit(False)

    def updateEditorGeometry(
        self, editor: QWidget, option: QStyleOptionViewItem, index: _Index
    ) -> None:
        editor.setGeometry(option.rect.adjusted(0, 1, 0, -1))


def _stop_zone(box: QRect) -> QRect:
    return QRect(box.right() - STOP_ZONE + 1, box.top(), STOP_ZONE, box.height())
