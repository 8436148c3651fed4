"""The list of chats: new, search, select, rename, delete with a way back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from PySide6.QtCore import QEvent, QModelIndex, QObject, QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListView,
    QMenu,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.chat.chat_row_delegate import ChatRowDelegate
from app.chat.chat_rows import PACE_ROLE, ChatRowsModel, grouped_rows
from app.chat.elided_label import ElidedLabel
from app.chat.store import Chat
from app.chat.styles import button_style, input_style, label_style, scroll_bar_style
from app.theme import CONTROL_PX, LABEL_PX, Theme

UNDO_MS = 8000


class ChatsList(QWidget):
    """Shows chats under the headings of their days.

    It changes nothing itself: it asks, and shows what `set_chats` gives it.

    Signals:
        new_requested: a new chat is wanted.
        chat_selected: the id of the chat to show.
        rename_requested: chat id and new title.
        delete_requested: chat id; for some seconds it can be asked back.
        undo_delete_requested: the chat deleted last is wanted back.
        stop_requested: the chat whose answer is to stop.
    """

    new_requested = Signal()
    chat_selected = Signal(str)
    rename_requested = Signal(str, str)
    delete_requested = Signal(str)
    undo_delete_requested = Signal()
    stop_requested = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._chats: list[Chat] = []
        self._current: str | None = None
        self._is_renaming = False
        self._stopped_by_click = False
        self._rows = ChatRowsModel(self)
        self._delegate = ChatRowDelegate(theme, self)
        self._new = QPushButton(self.tr("+ New chat"))
        self._search = QLineEdit(placeholderText=self.tr("Search chats"))
        self._list = QListView()
        self._nothing = QLabel(wordWrap=True, alignment=Qt.AlignmentFlag.AlignCenter)
        self._undo_bar = QFrame()
        self._undo_text = ElidedLabel()
        self._undo = QPushButton(self.tr("Undo"))
        self._undo_timer = QTimer(self, singleShot=True, interval=UNDO_MS)
        self._set_up_list()
        self._lay_out()
        self._connect()
        self.set_theme(theme)
        self._show_rows()

    def set_chats(self, chats: Sequence[Chat]) -> None:
        """Show these chats; the selected one stays selected while it is among them."""
        self._chats = list(chats)
        self._show_rows()

    def set_paces(self, paces: Mapping[str, str]) -> None:
        """Show the pace of answers under way and a way to stop each: chat id -> pace."""
        self._rows.set_paces(paces)

    def set_current(self, chat_id: str) -> None:
        """Mark the chat that is on show."""
        self._current = chat_id
        self._mark_current()

    def rename_current(self) -> None:
        """Open the title of the marked chat for editing, in its row."""
        self._list.edit(self._list.currentIndex())

    def delete_current(self) -> None:
        """Ask for the marked chat to be deleted."""
        self._delete(self._list.currentIndex())

    def set_theme(self, theme: Theme) -> None:
        """Draw with other colours or sizes."""
        self._delegate.set_theme(theme)
        control = theme.font(CONTROL_PX)
        for widget in (self._new, self._search, self._list, self._undo_text, self._undo):
            widget.setFont(control)
        self._nothing.setFont(theme.font(LABEL_PX + 1))
        self._nothing.setStyleSheet(label_style(theme.muted))
        self._new.setStyleSheet(button_style(theme) + "QPushButton { text-align: left; }")
        self._search.setStyleSheet(input_style(theme))
        clear = "QListView { background: transparent; }"
        self._list.setStyleSheet(clear + scroll_bar_style(theme))
        self._undo.setStyleSheet(button_style(theme))
        self._undo_text.setStyleSheet(label_style(theme.text))
        self._undo_bar.setStyleSheet(
            f"#undoBar {{ background: {theme.raised}; border: 1px solid {theme.line};"
            " border-radius: 8px; }"
        )
        self._list.scheduleDelayedItemsLayout()

    def _set_up_list(self) -> None:
        self._list.setModel(self._rows)
        self._list.setItemDelegate(self._delegate)
        self._list.setFrameShape(QFrame.Shape.NoFrame)
        self._list.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self._list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._list.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self._list.setMouseTracking(True)
        self._list.setEditTriggers(
            QAbstractItemView.EditTrigger.EditKeyPressed
            | QAbstractItemView.EditTrigger.DoubleClicked
        )
        self._list.setAccessibleName(self.tr("Chats"))
        self._search.setAccessibleName(self.tr("Search chats"))

    def _lay_out(self) -> None:
        self._undo_bar.setObjectName("undoBar")
        self._undo_bar.hide()
        undo_row = QHBoxLayout(self._undo_bar)
        undo_row.setContentsMargins(12, 8, 8, 8)
        undo_row.addWidget(self._undo_text, 1)
        undo_row.addWidget(self._undo)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(8, 8, 8, 8)
        layout.setSpacing(8)
        layout.addWidget(self._new)
        layout.addWidget(self._search)
        layout.addWidget(self._list, 1)
        layout.addWidget(self._nothing, 1, Qt.AlignmentFlag.AlignTop)
        layout.addWidget(self._undo_bar)
        self.setMinimumWidth(160)

    def _connect(self) -> None:
        self._new.clicked.connect(self.new_requested)
        self._search.textChanged.connect(self._show_rows)
        self._rows.rename_requested.connect(self.rename_requested)
        self._list.clicked.connect(self._select)
        self._list.activated.connect(self._select)
        self._list.customContextMenuRequested.connect(self._open_menu)
        self._undo.clicked.connect(self._ask_back)
        self._undo_timer.timeout.connect(self._undo_bar.hide)
        self._list.installEventFilter(self)
        self._delegate.editing_changed.connect(self._on_editing_changed)
        self._delegate.stop_requested.connect(self._on_stop_requested)

    def _show_rows(self) -> None:
        if self._is_renaming:
            return  # the rows would take the open title away; they are shown once it closes
        # The local day: that is what "today" means to the person.
        today = date.today()
        rows = grouped_rows(self._chats, self._search.text(), today)
        position = self._list.verticalScrollBar().value()
        self._rows.set_rows(rows)
        self._list.verticalScrollBar().setValue(position)
        self._list.setVisible(bool(rows))
        self._nothing.setVisible(not rows)
        words = self.tr("No chat matches.") if self._chats else self.tr("No chats yet.")
        self._nothing.setText(words)
        self._mark_current()

    def _on_editing_changed(self, editing: bool) -> None:
        self._is_renaming = editing
        self._show_rows()

    def _mark_current(self) -> None:
        index = self._rows.index_of(self._current) if self._current else QModelIndex()
        self._list.setCurrentIndex(index)

    def _on_stop_requested(self, chat_id: str) -> None:
        self._stopped_by_click = True
        self.stop_requested.emit(chat_id)

    def _select(self, index: QModelIndex) -> None:
        if self._stopped_by_click:  # the same click reaches the row as well
            self._stopped_by_click = False
            self._mark_current()
            return
        row = self._rows.row_at(index)
        if row and row.chat_id and row.chat_id != self._current:
            self._current = row.chat_id
            self.chat_selected.emit(row.chat_id)

    def _delete(self, index: QModelIndex) -> None:
        row = self._rows.row_at(index)
        if row is None or row.chat_id is None:
            return
        self._undo_text.set_whole_text(self.tr("Deleted “%1”").replace("%1", row.text))
        self._undo_bar.show()
        self._undo_timer.start()
        self.delete_requested.emit(row.chat_id)

    def _ask_back(self) -> None:
        self._undo_timer.stop()
        self._undo_bar.hide()
        self.undo_delete_requested.emit()

    def _open_menu(self, position: QPoint) -> None:
        index = self._list.indexAt(position)
        row = self._rows.row_at(index)
        if row is None or row.is_heading:
            return
        self._list.setCurrentIndex(index)
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        if index.data(PACE_ROLE):
            chat_id = str(row.chat_id)
            stop = menu.addAction(self.tr("Stop"))
            stop.triggered.connect(lambda: self.stop_requested.emit(chat_id))
        menu.addAction(self.tr("Rename")).triggered.connect(self.rename_current)
        menu.addAction(self.tr("Delete")).triggered.connect(self.delete_current)
        menu.popup(self._list.viewport().mapToGlobal(position))

    # Qt overrides

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if (
            watched is self._list
            and isinstance(event, QKeyEvent)
            and event.type() == QEvent.Type.KeyPress
            and event.key() == Qt.Key.Key_Delete
        ):
            self.delete_current()
            return True
        return super().eventFilter(watched, event)
