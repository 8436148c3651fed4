"""The rows of the chats list: chats under the headings of their days, and the Qt model of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum

from PySide6.QtCore import (
    QAbstractListModel,
    QCoreApplication,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    Qt,
    Signal,
)

from app.chat.store import Chat

translate = QCoreApplication.translate
# The pace of the answer under way in a chat, as text; None where there is none.
PACE_ROLE = Qt.ItemDataRole.UserRole + 1
_NO_PARENT = QModelIndex()
_Index = QModelIndex | QPersistentModelIndex


class Group(StrEnum):
    """How long ago a chat was used."""

    TODAY = "today"
    YESTERDAY = "yesterday"
    LAST_WEEK = "last week"
    EARLIER = "earlier"


@dataclass(frozen=True, slots=True)
class Row:
    """A chat, or a heading when `chat_id` is None."""

    text: str
    chat_id: str | None = None

    @property
    def is_heading(self) -> bool:
        """Whether the row only names the group below it."""
        return self.chat_id is None


def group_of(used: date, today: date) -> Group:
    """The heading for a chat last used on a day; days yet to come count as today."""
    if used >= today:
        return Group.TODAY
    if used == today - timedelta(days=1):
        return Group.YESTERDAY
    return Group.LAST_WEEK if used >= today - timedelta(days=7) else Group.EARLIER


def heading(group: Group) -> str:
    """The words of a heading."""
    return {
        Group.TODAY: translate("ChatsList", "Today"),
        Group.YESTERDAY: translate("ChatsList", "Yesterday"),
        Group.LAST_WEEK: translate("ChatsList", "Last week"),
        Group.EARLIER: translate("ChatsList", "Earlier"),
    }[group]


def shown_title(chat: Chat) -> str:
    """The chat's title, or what an empty chat is called."""
    return chat.title or translate("ChatsList", "New chat")


def grouped_rows(chats: Iterable[Chat], search: str, today: date) -> list[Row]:
    """Chats whose title holds `search`, newest first, each group under its heading."""
    wanted = search.casefold().strip()
    rows: list[Row] = []
    last: Group | None = None
    for chat in sorted(chats, key=lambda chat: chat.updated_at, reverse=True):
        title = shown_title(chat)
        if wanted not in title.casefold():
            continue
        group = group_of(chat.updated_at.astimezone().date(), today)
        if group is not last:
            rows.append(Row(heading(group)))
            last = group
        rows.append(Row(title, chat.id))
    return rows


class ChatRowsModel(QAbstractListModel):
    """Rows of the list. A chat's row can be edited: that asks for another title.

    Signals:
        rename_requested: chat id and the new title.
    """

    rename_requested = Signal(str, str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: Sequence[Row] = ()
        self._paces: Mapping[str, str] = {}

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Show other rows; the same ones again change nothing."""
        if list(rows) == list(self._rows):
            return
        self.beginResetModel()
        self._rows = rows
        self.endResetModel()

    def set_paces(self, paces: Mapping[str, str]) -> None:
        """Show how fast the answers under way are: chat id -> pace."""
        before, self._paces = self._paces, dict(paces)
        for number, row in enumerate(self._rows):
            if row.chat_id and before.get(row.chat_id) != paces.get(row.chat_id):
                index = self.index(number)
                self.dataChanged.emit(index, index, [PACE_ROLE])

    def row_at(self, index: _Index) -> Row | None:
        """The row of an index; None for an invalid one."""
        return self._rows[index.row()] if index.isValid() else None

    def index_of(self, chat_id: str) -> QModelIndex:
        """Where a chat is; invalid when it is not shown."""
        for number, row in enumerate(self._rows):
            if row.chat_id == chat_id:
                return self.index(number)
        return QModelIndex()

    # Qt overrides

    def rowCount(self, parent: _Index = _NO_PARENT) -> int:
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        row = self.row_at(index)
        if row and role == PACE_ROLE:
            return self._paces.get(row.chat_id or "")
        shown = (
            Qt.ItemDataRole.DisplayRole,
            Qt.ItemDataRole.EditRole,
            Qt.ItemDataRole.ToolTipRole,
        )
        return row.text if row and role in shown else None

    def flags(self, index: _Index) -> Qt.ItemFlag:
        row = self.row_at(index)
        if row is None or row.is_heading:
            return Qt.ItemFlag.NoItemFlags
        return super().flags(index) | Qt.ItemFlag.ItemIsEditable

    def setData(self, index: _Index, value: object, role: int = Qt.ItemDataRole.EditRole) -> bool:
        row = self.row_at(index)
        title = " ".join(str(value).split())
        if row is None or row.chat_id is None or not title or title == row.text:
            return False
        self.rename_requested.emit(row.chat_id, title)
        return True
