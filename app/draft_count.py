"""How many tokens the draft would add to the context, counted by the engine."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.engine_link.controller import EngineController
from app.engine_link.worker import EngineProblem
from engine.config import Message

# Encoding holds the engine's thread, about 1 ms for so many characters: a longer draft waits
# until no answer is under way.
QUICK_CHARACTERS = 20_000


class DraftCount(QObject):
    """Counts the open draft alone: what the template puts around an empty one is taken off.

    Signals:
        counted(int): tokens of the draft, 0 when there is none or no model to count them.
    """

    counted = Signal(int)

    def __init__(self, controller: EngineController, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._controller = controller
        self._text = ""
        self._ticket = self._empty_ticket = 0
        self._empty_tokens = 0
        self._is_late = False
        controller.tokens_counted.connect(self._on_counted)
        controller.model_loaded.connect(self._on_model_loaded)
        controller.model_unloaded.connect(self._ask)
        controller.state_changed.connect(self._ask_if_late)

    def set_draft(self, text: str) -> None:
        """Count this text from now on."""
        self._text = text
        self._ask()

    def _on_model_loaded(self) -> None:
        self._empty_ticket = self._controller.count_tokens([Message("user", "")])
        self._ask()

    def _ask(self) -> None:
        busy = bool(self._controller.active_requests)
        self._is_late = busy and len(self._text) > QUICK_CHARACTERS
        if not self._text.strip() or self._controller.model is None:
            self._ticket = 0  # an answer still on its way is of another draft
            self.counted.emit(0)
        elif not self._is_late:
            self._ticket = self._controller.count_tokens([Message("user", self._text)])

    def _ask_if_late(self) -> None:
        if self._is_late:
            self._ask()

    def _on_counted(self, ticket: int, answer: int | EngineProblem) -> None:
        tokens = 0 if isinstance(answer, EngineProblem) else answer
        if ticket == self._empty_ticket:
            self._empty_tokens = tokens
        elif ticket == self._ticket:
            self.counted.emit(max(0, tokens - self._empty_tokens))
