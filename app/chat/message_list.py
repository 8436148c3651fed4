"""The scrolling list of messages: lays out what is seen, follows the stream, handles the mouse."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import (
    QEvent,
    QModelIndex,
    QPersistentModelIndex,
    QPoint,
    Qt,
    QTimer,
    Signal,
)
from PySide6.QtGui import (
    QContextMenuEvent,
    QFocusEvent,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPaintEvent,
)
from PySide6.QtWidgets import QAbstractItemView, QFrame, QListView, QMenu, QWidget

from app.chat.bubble_layout import Hit, Target
from app.chat.delegate import ChatDelegate, Spot, can_regenerate, chat_model, message_of
from app.chat.model import ChatModel
from app.chat.row_menu import row_entries
from app.theme import Theme

COPIED_MS = 1500
BOTTOM_TOLERANCE = 4  # px from the end that still count as reading the newest text
_Index = QModelIndex | QPersistentModelIndex


class MessageList(QListView):
    """Shows a `ChatModel` through a `ChatDelegate`.

    Rows that were never on screen have an estimated height. When one comes into view it is laid
    out, and what the reader looks at stays where it is.

    Signals:
        regenerate_requested: the message id of the answer to make anew.
        compare_requested: that of the answer to compare with the cache off.
        action_requested: the id of an action of an error card or of a note on an answer.
        following_changed: whether the list follows the newest text.
    """

    regenerate_requested = Signal(str)
    compare_requested = Signal(str)
    action_requested = Signal(str)
    following_changed = Signal(bool)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._delegate = ChatDelegate(theme, self)
        self._following = True
        self._laying_out = False
        self._dragging = False
        self._copied_timer = QTimer(self, singleShot=True, interval=COPIED_MS)
        self._copied_timer.timeout.connect(self._forget_copied)
        self.setItemDelegate(self._delegate)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        # Always there, drawn only when it can move: its coming would lay out every row anew.
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)
        self.verticalScrollBar().setEnabled(False)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        self.setResizeMode(QListView.ResizeMode.Adjust)
        self.setAutoScroll(False)
        self.setMouseTracking(True)
        self.setAccessibleName(self.tr("Conversation"))
        self.verticalScrollBar().setSingleStep(24)
        self.verticalScrollBar().rangeChanged.connect(self._on_range_changed)

    @property
    def following(self) -> bool:
        """Whether the newest text is kept in view."""
        return self._following

    @property
    def _width(self) -> int:
        return self.viewport().width()

    def set_theme(self, theme: Theme) -> None:
        """Draw with other colours or sizes."""
        self.close_selection()
        self._delegate.cache.set_theme(theme)
        self.scheduleDelayedItemsLayout()

    def follow(self) -> None:
        """Jump to the newest text and stay there."""
        self._set_following(True)
        self.scrollToBottom()
        self._settle()

    def copy_message(self, index: _Index) -> None:
        """Put the whole text of a message on the clipboard, as it was written."""
        message = message_of(index)
        parts = (message.text, message.why, message.next_step)
        self._copy("\n".join(part for part in parts if part), Spot(message.id, Hit(Target.COPY)))

    def close_selection(self) -> None:
        """Take away the text widget, if one is open."""
        if self._delegate.browser is not None:
            hint = self._delegate.EndEditHint.NoHint
            self._delegate.closeEditor.emit(self._delegate.browser, hint)

    # Following and layout

    def _set_following(self, following: bool) -> None:
        if following != self._following:
            self._following = following
            self.following_changed.emit(following)

    def _on_range_changed(self, minimum: int, maximum: int) -> None:
        self.verticalScrollBar().setEnabled(maximum > minimum)
        if self._following:
            self.verticalScrollBar().setValue(maximum)

    def _visible_rows(self) -> list[QModelIndex]:
        model = self.model()
        first = self.indexAt(QPoint(self.viewport().width() // 2, 0))
        if model is None or not first.isValid():
            return []
        rows, bottom = [], self.viewport().height()
        for row in range(first.row(), model.rowCount()):
            index = model.index(row, 0)
            if self.visualRect(index).top() >= bottom:
                break
            rows.append(index)
        return rows

    def _lay_out_visible(self) -> bool:
        """Lay out rows on screen that had estimated heights; True when one was wrong."""
        cache, width, wrong = self._delegate.cache, self._width, False
        for index in self._visible_rows():
            message = message_of(index)
            if not cache.is_laid_out(message, width):
                estimate = self.visualRect(index).height()
                wrong |= cache.content(message, width).geometry.height != estimate
        return wrong

    def _settle(self, anchor: tuple[QPersistentModelIndex, int] | None = None) -> None:
        """Lay out until every row on screen has its true height, the anchor row held in place."""
        if self._laying_out or self.model() is None:
            return
        anchor = anchor or self._anchor()
        self._laying_out = True
        try:
            while self._lay_out_visible():
                self._lay_out_rows()
                self._hold(anchor)
        finally:
            self._laying_out = False

    def _lay_out_rows(self) -> None:
        model = self.model()
        if isinstance(model, ChatModel):
            with self._delegate.layout_pass(model, self._width):
                super().doItemsLayout()

    def _anchor(self, *, last: bool = False) -> tuple[QPersistentModelIndex, int] | None:
        """The first (or last) row on screen with where its top is."""
        rows = self._visible_rows()
        if not rows:
            return None
        index = rows[-1 if last else 0]
        return QPersistentModelIndex(index), self.visualRect(index).top()

    def _hold(self, anchor: tuple[QPersistentModelIndex, int] | None) -> None:
        bar = self.verticalScrollBar()
        if self._following:
            bar.setValue(bar.maximum())
        elif anchor and anchor[0].isValid():
            row = self.model().index(anchor[0].row(), 0)
            bar.setValue(bar.value() + self.visualRect(row).top() - anchor[1])

    # What a click does

    def _spot_at(self, position: QPoint) -> Spot | None:
        index = self.indexAt(position)
        if not index.isValid():
            return None
        row = self.visualRect(index)
        hit = self._delegate.content(index, row.width()).geometry.hit(position - row.topLeft())
        if hit and hit.target is Target.REGENERATE and not can_regenerate(index):
            hit = None
        return Spot(message_of(index).id, hit)

    def _trigger(self, index: QModelIndex, hit: Hit) -> None:
        message = message_of(index)
        match hit.target:
            case Target.COPY:
                self.copy_message(index)
            case Target.COPY_CODE:
                content = self._delegate.content(index, self._width)
                if code := content.blocks[hit.number].code:
                    self._copy(code.text, Spot(message.id, hit))
            case Target.REGENERATE:
                self.regenerate_requested.emit(message.id)
            case Target.COMPARE:
                self.compare_requested.emit(message.id)
            case Target.RACE:
                self.action_requested.emit(f"race:{message.id}")
            case Target.PIN:
                self.action_requested.emit(f"pin:{message.id}")
            case Target.ACTION:
                self.action_requested.emit(message.actions[hit.number].id)
            case Target.SUGGESTION if message.note:
                self.action_requested.emit(message.note.actions[hit.number].id)
            case Target.DETAILS:
                chat_model(index).toggle_note(message.id)
            case Target.TEXT:
                self._open_selection(index, hit)

    def _copy(self, text: str, spot: Spot) -> None:
        QGuiApplication.clipboard().setText(text)
        self._delegate.copied = spot
        self._copied_timer.start()
        self.viewport().update()

    def _forget_copied(self) -> None:
        self._delegate.copied = None
        self.viewport().update()

    def _open_selection(self, index: QModelIndex, hit: Hit) -> None:
        self.close_selection()
        self._delegate.selecting = Spot(message_of(index).id, hit)
        self.edit(index)

    def _forward(self, event: QMouseEvent) -> None:
        """Let the text widget see the mouse press that opened it, and the drag that follows."""
        if self._delegate.browser is None:
            return
        target = self._delegate.browser.viewport()
        local = target.mapFromGlobal(event.globalPosition())
        copy = QMouseEvent(
            event.type(),
            local,
            event.globalPosition(),
            event.button(),
            event.buttons(),
            event.modifiers(),
        )
        QGuiApplication.sendEvent(target, copy)

    def _shape_at(self, spot: Spot | None, position: QPoint) -> Qt.CursorShape:
        if spot is None or spot.hit is None:
            return Qt.CursorShape.ArrowCursor
        if spot.hit.target is not Target.TEXT:
            return Qt.CursorShape.PointingHandCursor
        index = self.indexAt(position)
        row = self.visualRect(index)
        content = self._delegate.content(index, row.width())
        place = content.geometry.blocks[spot.hit.number].text.translated(row.topLeft())
        layout = content.blocks[spot.hit.number].document.documentLayout()
        link = layout.anchorAt((position - place.topLeft()).toPointF())
        return Qt.CursorShape.PointingHandCursor if link else Qt.CursorShape.IBeamCursor

    def _hover(self, spot: Spot | None, shape: Qt.CursorShape) -> None:
        self.viewport().setCursor(shape)
        if spot != self._delegate.hovered:
            self._delegate.hovered = spot
            self.viewport().update()

    def _choose_newest(self) -> bool:
        """Put the keyboard on the newest row if it is on none; True when that was so."""
        if self.currentIndex().isValid() or self.model() is None:
            return False
        self.setCurrentIndex(self.model().index(self.model().rowCount() - 1, 0))
        return True

    def _row_menu(self, index: QPersistentModelIndex, hit: Hit | None) -> QMenu:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for label, target in row_entries(index, self._delegate.content(index, self._width), hit):
            menu.addAction(label).triggered.connect(partial(self._chosen, index, target))
        return menu

    def _chosen(self, index: QPersistentModelIndex, hit: Hit) -> None:
        if index.isValid():  # the row may have gone while the menu was open
            self._trigger(self.model().index(index.row(), 0), hit)

    # Qt overrides

    def doItemsLayout(self) -> None:
        anchor = None if self._following else self._anchor()
        self._laying_out = True
        try:
            self._lay_out_rows()
            self._hold(anchor)
        finally:
            self._laying_out = False
        self._settle(anchor)

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        if not self._laying_out:
            bar = self.verticalScrollBar()
            self._set_following(bar.value() >= bar.maximum() - BOTTOM_TOLERANCE)
        super().scrollContentsBy(dx, dy)
        # Rows that come in at the top push the others down: those already read are held.
        self._settle(self._anchor(last=dy > 0))

    def dataChanged(
        self, top_left: _Index, bottom_right: _Index, roles: Sequence[int] = ()
    ) -> None:
        index = self.model().index(top_left.row(), 0)
        message = message_of(index)
        if message.state != "streaming" and self._selects(message.id):
            self.close_selection()
        before = self._delegate.cache.height(message, self._width)
        content = self._delegate.content(index, self._width)
        height = content.geometry.height
        if height != before or top_left.row() != bottom_right.row():
            super().dataChanged(top_left, bottom_right, roles)
            return
        # Laying out all rows is for when a height changed; a piece of text mostly fits.
        if self._delegate.browser is not None and self._selects(message.id):
            self._delegate.setEditorData(self._delegate.browser, index)
        changed = self.visualRect(index)
        if content.live:
            # Only the line that grew and those below it: drawing a long answer for each token
            # takes the interpreter from the engine.
            text_top = content.geometry.blocks[-1].text.top()
            changed.setTop(changed.top() + text_top + content.live.dirty_top)
        self.viewport().update(changed)

    def paintEvent(self, event: QPaintEvent) -> None:
        self._delegate.exposed = event.rect()
        super().paintEvent(event)

    def rowsInserted(self, parent: _Index, start: int, end: int) -> None:
        super().rowsInserted(parent, start, end)
        if not self._delegate.by_keyboard and self._delegate.browser is None:
            self.setCurrentIndex(QModelIndex())  # the keyboard begins at the newest row again

    def _selects(self, message_id: str) -> bool:
        selecting = self._delegate.selecting
        return selecting is not None and selecting.message_id == message_id

    def closeEditor(self, editor: QWidget, hint: ChatDelegate.EndEditHint) -> None:
        self._dragging = False
        super().closeEditor(editor, hint)
        self.viewport().update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._delegate.by_keyboard = False
        self.close_selection()
        position = event.position().toPoint()
        spot = self._spot_at(position)
        self.setCurrentIndex(self.indexAt(position))
        if event.button() != Qt.MouseButton.LeftButton or spot is None or spot.hit is None:
            return
        if spot.hit.target is Target.TEXT:
            self._trigger(self.indexAt(position), spot.hit)
            self._dragging = True
            self._forward(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._dragging:
            self._forward(event)
            return
        position = event.position().toPoint()
        spot = self._spot_at(position)
        self._hover(spot, self._shape_at(spot, position))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if self._dragging:
            self._dragging = False
            self._forward(event)
            return
        position = event.position().toPoint()
        spot = self._spot_at(position)
        if event.button() == Qt.MouseButton.LeftButton and spot and spot.hit:
            self._trigger(self.indexAt(position), spot.hit)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.mousePressEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        self._hover(None, Qt.CursorShape.ArrowCursor)
        super().leaveEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        by_key = (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
        self._delegate.by_keyboard = event.reason() in by_key
        self._choose_newest()  # Qt would choose the oldest row and scroll away to it
        super().focusInEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        index = self.currentIndex()
        key = Qt.Key(event.key())
        bar = self.verticalScrollBar()
        page = bar.pageStep() - bar.singleStep()
        scroll_to = {
            Qt.Key.Key_PageUp: bar.value() - page,
            Qt.Key.Key_PageDown: bar.value() + page,
            Qt.Key.Key_Home: bar.minimum(),
            Qt.Key.Key_End: bar.maximum(),
        }
        if key in scroll_to:
            bar.setValue(scroll_to[key])
        elif index.isValid() and event.matches(QKeySequence.StandardKey.Copy):
            self.copy_message(index)
        elif index.isValid() and key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            is_error = bool(message_of(index).actions)
            self._trigger(index, Hit(Target.ACTION if is_error else Target.TEXT))
        elif key in (Qt.Key.Key_Up, Qt.Key.Key_Down):
            self._delegate.by_keyboard = True
            if not self._choose_newest():
                super().keyPressEvent(event)
        else:
            event.ignore()

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        by_key = event.reason() == QContextMenuEvent.Reason.Keyboard
        index = self.currentIndex() if by_key else self.indexAt(event.pos())
        if not index.isValid():
            return
        spot = None if by_key else self._spot_at(event.pos())
        at = self.visualRect(index).center() if by_key else event.pos()
        menu = self._row_menu(QPersistentModelIndex(index), spot.hit if spot else None)
        menu.popup(self.viewport().mapToGlobal(at))

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self._delegate.cache.clear()
            self.scheduleDelayedItemsLayout()
