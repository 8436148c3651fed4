"""What each answer of this session was asked and measured, so that it can be run once more."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from uuid import uuid4

from PySide6.QtCore import QObject

from app.chat.model import ChatModel
from app.conversations import Conversations
from app.engine_link.controller import EngineController
from app.model_loading import ModelLoading
from engine.config import EngineConfig, GenerationRequest, SamplingParams
from engine.events import GenerationFinished, ModelLoaded, RequestMetrics


@dataclass(frozen=True, slots=True, eq=False)
class AnswerRun:
    """One answer that has ended.

    `wanted` is the config as it was asked for, with "auto" in it; `loaded` what came of it.
    `prompt_ids` is the prompt to the token, after any cut; four bytes each.
    """

    metrics: RequestMetrics
    wanted: EngineConfig
    loaded: ModelLoaded
    sampling: SamplingParams
    prompt_ids: array[int]

    def request(self) -> GenerationRequest:
        """The same prompt and as many tokens: neither an end token nor a stop string ends it."""
        return GenerationRequest(
            uuid4().hex,
            prompt_ids=tuple(self.prompt_ids),
            sampling=replace(self.sampling, seed=self.metrics.seed, stop=()),
            max_tokens=self.metrics.completion_tokens,
            ignore_eos=True,
        )


class AnswerRuns(QObject):
    """Keeps the runs of this session's answers, by message."""

    def __init__(
        self,
        controller: EngineController,
        conversations: Conversations,
        loading: ModelLoading,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._controller, self._conversations = controller, conversations
        self._loading = loading
        self._runs: dict[str, AnswerRun] = {}
        conversations.answered.connect(self._on_answered)

    def run_of(self, message_id: str) -> AnswerRun | None:
        """The run of an answer; None for one of an earlier session."""
        return self._runs.get(message_id)

    def _on_answered(self, _chat: ChatModel, message_id: str, event: GenerationFinished) -> None:
        loaded, wanted = self._controller.model, self._loading.wanted
        request = self._conversations.asked(message_id)
        if loaded is None or wanted is None or request is None or not event.token_ids:
            return
        ids = array("I", event.prompt_ids)
        self._runs[message_id] = AnswerRun(event.metrics, wanted, loaded, request.sampling, ids)
