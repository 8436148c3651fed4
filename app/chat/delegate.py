"""The delegate of the conversation: sizes, painting and the text widget for selecting.

A row's `RowContent` (documents and geometry) comes from one cache; painting, `sizeHint` and the
mouse all read the same geometry, so what is seen is what is clicked. While a person selects text
in a row, a read-only text widget, the row's editor, stands over that block and draws it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from PySide6.QtCore import (
    QAbstractItemModel,
    QEvent,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QRect,
    QSize,
)
from PySide6.QtGui import QKeyEvent, QPainter, Qt
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from app.chat.bubble_layout import Hit
from app.chat.model import ChatModel
from app.chat.row_content import RowContent, RowContentCache
from app.chat.row_painter import RowPainter, RowState
from app.chat.selection import SelectionBrowser
from app.chat.store import ChatMessage
from app.theme import Theme

Index = QModelIndex | QPersistentModelIndex


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in the conversation: a row by its message id, and what lies there."""

    message_id: str
    hit: Hit | None


def message_of(index: Index) -> ChatMessage:
    """The message of a row of a `ChatModel`."""
    return chat_model(index).message(index.row())


def chat_model(index: Index) -> ChatModel:
    """The conversation that a row belongs to. Raises TypeError for a row of another model."""
    model = index.model()
    if not isinstance(model, ChatModel):
        raise TypeError(f"not a row of a conversation: {model!r}")
    return model


def can_regenerate(index: Index) -> bool:
    """Only the newest answer can: an earlier one would take what follows with it."""
    model = chat_model(index)
    message = model.message(index.row())
    if message.role != "assistant" or message.state == "streaming":
        return False
    later = (model.message(row).role for row in range(index.row() + 1, model.rowCount()))
    return all(role in ("error", "notice") for role in later)


class ChatDelegate(QStyledItemDelegate):
    """Draws rows and makes the text widget for selecting.

    Attributes, set by the view:
        hovered: what is under the mouse. copied: the Copy control that was just used.
        selecting: the block that is, or is to be, open for selecting. by_keyboard: whether the
        row with the focus shows it.

    `browser` is the text widget that is open, if one is. `exposed` is the part of the view that
    is being painted, if it says so.
    """

    def __init__(self, theme: Theme, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.cache = RowContentCache(theme)
        self.hovered: Spot | None = None
        self.copied: Spot | None = None
        self.selecting: Spot | None = None
        self.by_keyboard = False
        self.browser: SelectionBrowser | None = None
        self.exposed: QRect | None = None
        self._sizes: list[QSize] = []

    def content(self, index: Index, width: int) -> RowContent:
        """The content of a row `width` px wide."""
        return self.cache.content(message_of(index), width)

    @contextmanager
    def layout_pass(self, model: ChatModel, width: int) -> Iterator[None]:
        """Hold the sizes of all rows ready: the list asks for every one in each pass."""
        height = self.cache.height
        self._sizes = [QSize(width, height(each, width)) for each in model.chat.messages]
        try:
            yield
        finally:
            self._sizes = []

    def _state(self, index: Index, focused: bool) -> RowState:
        message_id = message_of(index).id

        def hit_in_row(spot: Spot | None) -> Hit | None:
            return spot.hit if spot and spot.message_id == message_id else None

        copied, selected = hit_in_row(self.copied), hit_in_row(self.selecting)
        under_mouse = self.hovered is not None and self.hovered.message_id == message_id
        return RowState(
            hovered=hit_in_row(self.hovered),
            copied=copied,
            covered=selected.number if selected else None,
            active=under_mouse or focused or copied is not None,
            focused=focused,
            can_regenerate=can_regenerate(index),
        )

    # Qt overrides

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        row, state = option.rect, option.state
        visible = row & (self.exposed or option.widget.rect())
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.translate(row.topLeft())
        row_painter = RowPainter(painter, self.cache.theme, visible.translated(-row.topLeft()))
        focused = self.by_keyboard and bool(state & QStyle.StateFlag.State_HasFocus)
        content = self.content(index, row.width())
        row_painter.paint(message_of(index), content, self._state(index, focused))
        painter.restore()

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        if self._sizes:
            return self._sizes[index.row()]
        width = option.rect.width()
        return QSize(width, self.cache.height(message_of(index), width))

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: Index) -> QWidget:
        message, spot = message_of(index), self.selecting
        number = spot.hit.number if spot and spot.hit else 0
        block = self.content(index, option.rect.width()).blocks[number]
        theme = self.cache.theme
        back = "bubble" if message.role == "user" else "window"
        self.browser = SelectionBrowser(
            block.document,
            number,
            theme.color(block.color),
            theme.color("surface" if block.code or block.on_card else back),
            parent,
        )
        return self.browser

    def setEditorData(self, editor: QWidget, index: Index) -> None:
        message = message_of(index)
        if isinstance(editor, SelectionBrowser) and message.state == "streaming":
            editor.follow(message.text)

    def setModelData(self, editor: QWidget, model: QAbstractItemModel, index: Index) -> None:
        """Nothing to write back: the text is read-only."""

    def updateEditorGeometry(
        self, editor: QWidget, option: QStyleOptionViewItem, index: Index
    ) -> None:
        row = option.rect
        if isinstance(editor, SelectionBrowser):
            place = self.content(index, row.width()).geometry.blocks[editor.number]
            editor.setGeometry(place.text.translated(row.topLeft()))

    def destroyEditor(self, editor: QWidget, index: Index) -> None:
        # However the view lets go of it: by closing it, or with its row, or with all rows.
        self.selecting = None
        self.browser = None
        super().destroyEditor(editor, index)

    def eventFilter(self, editor: QObject, event: QEvent) -> bool:
        # Unlike a field for input, the text stays open when the focus goes elsewhere: only Esc
        # or a click in the conversation ends the selection.
        if (
            isinstance(event, QKeyEvent)
            and event.type() == QEvent.Type.KeyPress
            and event.key() == Qt.Key.Key_Escape
            and isinstance(editor, QWidget)
        ):
            self.closeEditor.emit(editor, self.EndEditHint.NoHint)
            return True
        return False
