"""The pace of every answer under way, for the chats list."""

from __future__ import annotations

from PySide6.QtCore import QObject

from app.chat.chats_list import ChatsList
from app.conversations import Conversations
from app.telemetry.format import tokens_per_second
from app.telemetry.telemetry_model import TelemetryModel


class ChatPaces(QObject):
    """Tells the chats list how fast its chats are answered. Knows nothing of the engine."""

    def __init__(
        self,
        conversations: Conversations,
        telemetry: TelemetryModel,
        chats_list: ChatsList,
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._conversations = conversations
        self._telemetry = telemetry
        self._list = chats_list
        telemetry.changed.connect(self._show)
        conversations.activity_changed.connect(self._show)

    def _show(self) -> None:
        running = self._conversations.generating_chats()
        self._list.set_paces({chat: self._pace(request) for chat, request in running.items()})

    def _pace(self, request_id: str) -> str:
        trace = self._telemetry.request(request_id)
        pace = trace.decode_tok_s if trace else None
        return self.tr("reading") if pace is None else tokens_per_second(pace).text
