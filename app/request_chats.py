"""Which chat a request was sent from, for panels that show requests beside each other."""

from __future__ import annotations

from PySide6.QtCore import QObject

from app.chat.chat_rows import shown_title
from app.conversations import Conversations
from app.telemetry.block_cells import ChatOfRequest


class RequestChats(QObject):
    """Notes the open chat of every request that is sent. Knows nothing of panels."""

    def __init__(self, conversations: Conversations, parent: QObject) -> None:
        super().__init__(parent)
        self._conversations = conversations
        self._chat_ids: dict[str, str] = {}
        conversations.request_sent.connect(self._note)

    def chat_of(self, request_id: str) -> ChatOfRequest | None:
        """The chat of a request; None if that was deleted or there never was one."""
        chat_id = self._chat_ids.get(request_id)
        model = self._conversations.library.model(chat_id) if chat_id else None
        if model is None:
            return None
        return ChatOfRequest(shown_title(model.chat), model is self._conversations.current)

    def _note(self, request_id: str) -> None:
        self._chat_ids[request_id] = self._conversations.current.chat.id
