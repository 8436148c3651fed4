"""What was said in each request of this session, found again in its chat when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QObject

from app.chat.model import ChatModel
from app.chat.store import ChatMessage
from app.conversations import Conversations
from app.export.session_data import RequestWords
from engine.events import GenerationFinished


class RequestTexts(QObject):
    """Notes which message answered which request; keeps no text itself."""

    def __init__(self, conversations: Conversations, parent: QObject) -> None:
        super().__init__(parent)
        self._answers: dict[str, tuple[ChatModel, str]] = {}
        conversations.answered.connect(self._note)

    def words_of(self, request_id: str, *, with_text: bool) -> RequestWords:
        """The verdict under an answer; prompt and answer only `with_text`. Empty if deleted."""
        model, message_id = self._answers.get(request_id, (None, ""))
        messages = model.chat.messages if model else []
        row = next((i for i, m in enumerate(messages) if m.id == message_id), None)
        if row is None:
            return RequestWords()
        note = messages[row].note
        return RequestWords(
            prompt=_question(messages[:row]) if with_text else "",
            answer=messages[row].text if with_text else "",
            verdict=note.headline if note else "",
            verdict_details=note.text if note else "",
        )

    def _note(self, model: ChatModel, message_id: str, event: GenerationFinished) -> None:
        self._answers[event.metrics.request_id] = (model, message_id)


def _question(before: Sequence[ChatMessage]) -> str:
    return next((m.text for m in reversed(before) if m.role == "user"), "")
