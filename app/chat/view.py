"""The conversation: messages, or what stands in their place, and how far loading is."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QMetaObject, QModelIndex, QObject, Qt, Signal
from PySide6.QtWidgets import QApplication, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.chat.bubble_layout import SCROLL_BAR_WIDTH
from app.chat.empty_state import EmptyState
from app.chat.loading_card import LoadingCard
from app.chat.message_list import MessageList
from app.chat.model import ChatModel
from app.chat.store import Chat
from app.chat.styles import button_style, scroll_bar_style
from app.theme import CONTROL_PX, Theme


class ChatView(QWidget):
    """Shows one `ChatModel`; another one takes its place with `set_model`.

    Attributes:
        empty_state: shown while the conversation has no message.
        loading_card: shown by `set_loading`, in place of the empty state or below the messages.

    Signals:
        regenerate_requested: the message id of the answer to make anew.
        compare_requested: that of the answer to compare with the cache off.
        action_requested: the id of an error card's action.
        example_chosen: the text of an example prompt.
    """

    regenerate_requested = Signal(str)
    compare_requested = Signal(str)
    action_requested = Signal(str)
    example_chosen = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._loading = False
        self._connections: list[QMetaObject.Connection] = []
        self._list = MessageList(theme, self)
        self.empty_state = EmptyState(theme, self)
        self._card_place = QWidget(self)
        self.loading_card = LoadingCard(theme, self._card_place)
        self._jump = QPushButton(self.tr("Jump to latest"), self._list)
        self._jump.setCursor(Qt.CursorShape.PointingHandCursor)
        self._jump.clicked.connect(self._list.follow)
        self._jump.hide()
        self._lay_out()
        self._list.installEventFilter(self)
        self._list.regenerate_requested.connect(self.regenerate_requested)
        self._list.compare_requested.connect(self.compare_requested)
        self._list.action_requested.connect(self.action_requested)
        self._list.following_changed.connect(self._show_what_fits)
        self.empty_state.example_chosen.connect(self.example_chosen)
        self.setFocusProxy(self._list)
        self._model = ChatModel(Chat.new(), self)
        self.set_model(self._model)
        self.set_theme(theme)

    @property
    def model(self) -> ChatModel:
        """The conversation on show."""
        return self._model

    def set_model(self, model: ChatModel) -> None:
        """Show another conversation from its end; the one before goes on unseen."""
        for connection in self._connections:
            QObject.disconnect(connection)
        self._model = model
        self._list.close_selection()
        self._list.setModel(model)
        self._connections = [
            model.rowsInserted.connect(self._on_rows_inserted),
            model.rowsRemoved.connect(self._show_what_fits),
            model.modelReset.connect(self._on_reset),
        ]
        self._list.follow()
        self._show_what_fits()

    def set_model_name(self, name: str) -> None:
        """Say in the empty state which language model answers; empty when none is loaded."""
        self.empty_state.set_model_name(name)

    def set_loading(self, loading: bool) -> None:
        """Show or hide the loading card."""
        self._loading = loading
        self._show_what_fits()

    def copy_last_answer(self) -> bool:
        """Put the newest answer on the clipboard; False when there is none."""
        for row in range(self._model.rowCount() - 1, -1, -1):
            if self._model.message(row).role == "assistant":
                self._list.copy_message(self._model.index(row))
                return True
        return False

    def set_theme(self, theme: Theme) -> None:
        """Draw with other colours or sizes."""
        self.empty_state.set_theme(theme)
        self.loading_card.set_theme(theme)
        self._list.set_theme(theme)
        self._list.setStyleSheet(
            f"QListView {{ background: {theme.window}; }}" + scroll_bar_style(theme)
        )
        self._jump.setFont(theme.font(CONTROL_PX))
        self._jump.setStyleSheet(button_style(theme))
        self._place_jump()

    def _lay_out(self) -> None:
        card_row = QHBoxLayout(self._card_place)
        card_row.setContentsMargins(16, 8, 16 + SCROLL_BAR_WIDTH, 8)
        card_row.addStretch(1)
        card_row.addWidget(self.loading_card, 100, Qt.AlignmentFlag.AlignVCenter)
        card_row.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self._list, 1)
        layout.addWidget(self.empty_state, 1)
        layout.addWidget(self._card_place)

    def _show_what_fits(self) -> None:
        has_messages = self._model.rowCount() > 0
        focused = QApplication.focusWidget()
        if has_messages and focused and self.empty_state.isAncestorOf(focused):
            focused.clearFocus()  # else Qt hands it on as if by Tab, with a focus ring
        self._list.setVisible(has_messages)
        self.empty_state.setVisible(not has_messages and not self._loading)
        self._card_place.setVisible(self._loading)
        self._jump.setVisible(has_messages and not self._list.following)

    def _on_rows_inserted(self, _parent: QModelIndex, _first: int, last: int) -> None:
        if self._model.message(last).role == "user":
            self._list.follow()  # who sends wants to see what comes
        self._show_what_fits()

    def _on_reset(self) -> None:
        self._list.close_selection()
        self._list.follow()
        self._show_what_fits()

    def _place_jump(self) -> None:
        self._jump.adjustSize()
        x = (self._list.width() - self._jump.width()) // 2
        self._jump.move(x, self._list.height() - self._jump.height() - 12)

    # Qt overrides

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self._list and event.type() == QEvent.Type.Resize:
            self._place_jump()
        return super().eventFilter(watched, event)
