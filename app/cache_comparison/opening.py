"""Opens the comparison for an answer of the open chat."""

from __future__ import annotations

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from app.appearance import Appearance
from app.cache_comparison.dialog import FEWEST_TOKENS, ComparisonDialog
from app.cache_comparison.run import ComparisonRun
from app.conversations import Conversations
from app.engine_link.controller import EngineController
from app.run_bar import run_values
from app.telemetry.telemetry_model import TelemetryModel
from engine.events import ModelLoaded

# Without the cache the time grows with the square: the starter model takes a minute or two.
PROPOSED_TOKENS = 300


class CacheComparisons(QObject):
    """Owns the one comparison there is; another one takes its place."""

    def __init__(
        self,
        window: QWidget,
        appearance: Appearance,
        conversations: Conversations,
        controller: EngineController,
        telemetry: TelemetryModel,
    ) -> None:
        super().__init__(window)
        self._window, self._appearance = window, appearance
        self._conversations, self._controller = conversations, controller
        self._telemetry = telemetry
        self._dialog: ComparisonDialog | None = None

    def open(self, message_id: str | None = None) -> ComparisonDialog | None:
        """Offer to compare an answer, the newest by default; None when there is none to compare."""
        loaded, answer = self._controller.model, self._conversations.answer(message_id)
        if loaded is None or answer is None or answer.stats is None:
            return None
        request = self._conversations.asked(answer.id)
        if request is None:
            return None
        if self._dialog is not None:
            self._dialog.close()
        most = (loaded.config.context_length or 0) - answer.stats.prompt_tokens
        proposed = max(FEWEST_TOKENS, min(answer.stats.completion_tokens, PROPOSED_TOKENS, most))
        run = ComparisonRun(self._controller, self._telemetry)
        self._dialog = ComparisonDialog(
            self._appearance.theme,
            run,
            request,
            self._facts(loaded),
            (proposed, most),
            self._window,
        )
        self._appearance.theme_changed.connect(self._dialog.set_theme)
        self._dialog.finished.connect(self._forget)
        self._dialog.show()
        return self._dialog

    def _facts(self, loaded: ModelLoaded) -> str:
        values = run_values(loaded, loaded.config)
        return self.tr("{0}, weights {1}, KV cache {2}, {3}").format(
            values.model, values.weights, values.kv, loaded.device_name
        )

    def _forget(self) -> None:
        self._dialog = None
