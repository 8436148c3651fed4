"""The story of an answer: events in, the step the engine is at and its figures out. No Qt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from app.telemetry.request_trace import RequestTrace
from engine.config import kv_bytes
from engine.events import (
    ContextCut,
    Event,
    FinishReason,
    GenerationFailed,
    GenerationFinished,
    LoadEvent,
    ModelLoaded,
    PrefillDone,
    PrefillProgress,
    StepStats,
    TokenEvent,
)


class Step(IntEnum):
    """What is told, in the order in which it happens first."""

    TOKENIZE = 0
    EMBED = 1
    PREFILL = 2
    FIRST_TOKEN = 3
    DECODE = 4
    DETOKENIZE = 5


StoryEvent = (
    ContextCut | PrefillProgress | PrefillDone | TokenEvent | GenerationFinished | GenerationFailed
)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Sizes of the model that answers; `kv_token_bytes` is what a token adds to the cache."""

    hidden_size: int
    vocab_size: int
    num_layers: int
    kv_token_bytes: int


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """The newest decode step: its token counts from 1, `bytes` are weights, KV read and written.

    `weight_bytes` and `kv_bytes` are parts of it, None where the step served others too.
    """

    token: int
    itl_ms: float
    step_ms: float
    bytes: int
    weight_bytes: int | None
    kv_bytes: int | None
    num_seqs: int
    reads_a_prompt: bool

    @property
    def bytes_per_s(self) -> float:
        """`bytes` / step time, the numerator of MBU."""
        return self.bytes / (self.step_ms / 1e3)


class Story:
    """The growing record of one request, as far as it is told. Figures are None until known.

    `held_tokens` gave no text when they came, the first and the newest of them by number from 1;
    nothing is said of them where no token had text, as in a recording without it. `num_chunks` is
    None where the prefill was not watched. `prompt_cut` was told before the prompt was read,
    `slide` on the way.
    """

    def __init__(self, request_id: str, model: ModelFacts | None = None) -> None:
        self.request_id = request_id
        self.model = model
        self.prompt_cut: ContextCut | None = None
        self.tokens_done = 0
        self.prompt_tokens: int | None = None
        self.cached_tokens = 0
        self.num_chunks: int | None = 0
        self.queue_ms: float | None = None
        self.prefill_ms: float | None = None
        self.prompt_kv_bytes: int | None = None
        self.ttft_ms: float | None = None
        self.num_tokens = 0
        self.decode: DecodeStep | None = None
        self.slide: ContextCut | None = None
        self.slide_token = 0  # the first one after it
        self.has_text = False
        self.num_held = 0
        self.held_token: int | None = None
        self.is_holding = False
        self.ending: FinishReason | None = None
        self._pending: TokenEvent | None = None

    # --- where it is ----------------------------------------------------------------------

    @property
    def computed_tokens(self) -> int | None:
        """Prompt tokens that the cache did not have."""
        return None if self.prompt_tokens is None else self.prompt_tokens - self.cached_tokens

    @property
    def holds_back(self) -> bool:
        """Whether the newest token gave no text, and others did."""
        return self.has_text and self.is_holding

    @property
    def current(self) -> Step:
        """The step the engine is at; after the end, the last one that was come to."""
        if self.num_tokens > 1:
            return Step.DETOKENIZE if self.holds_back or self.ending else Step.DECODE
        if self.num_tokens == 1:
            return Step.DETOKENIZE if self.ending else Step.FIRST_TOKEN
        if self.prefill_ms is not None:
            return Step.FIRST_TOKEN
        return Step.PREFILL if self.prompt_tokens is not None else Step.TOKENIZE

    @property
    def reached(self) -> Step:
        """The last step that can be told: text comes with the first token already."""
        return Step.DETOKENIZE if self.num_tokens > 1 else self.current

    # --- what happens ---------------------------------------------------------------------

    def handle(self, event: StoryEvent) -> None:
        """Take in one event of this request."""
        match event:
            case ContextCut():
                self._on_cut(event)
            case PrefillProgress():
                self._on_progress(event)
            case PrefillDone():
                self._on_prefill_done(event)
            case TokenEvent():
                self._on_token(event)
            case GenerationFinished():
                self.ending = event.finish_reason
                self.is_holding = False
            case GenerationFailed():
                self.ending = "failed"

    def handle_step(self, step: StepStats) -> None:
        """Take in a step of the engine; it counts if it made the newest token by decoding."""
        token, self._pending = self._pending, None
        if token is None or token.step_id != step.step_id or token.itl_ms is None:
            return
        if step.phase == "prefill":
            return  # a context that slid, or no cache: the token came from reading all of it
        weights = kv_read = None
        if step.num_seqs == 1 and self.model is not None:
            # A decode step reads what the sequence sees, the token it just stored included, and
            # writes that one: engine/costs.py.
            kv_read = token.kv_bytes_used
            weights = step.bytes - kv_read - self.model.kv_token_bytes
        self.decode = DecodeStep(
            token.index + 1,
            token.itl_ms,
            step.step_ms,
            step.bytes,
            weights,
            kv_read,
            step.num_seqs,
            step.phase == "mixed",
        )

    def _on_cut(self, cut: ContextCut) -> None:
        if self.num_tokens:
            self.slide, self.slide_token = cut, self.num_tokens + 1
        else:
            self.prompt_cut = cut

    def _on_progress(self, event: PrefillProgress) -> None:
        self.tokens_done, self.prompt_tokens = event.tokens_done, event.tokens_total
        self.cached_tokens = event.cached_tokens
        self.prompt_kv_bytes = event.kv_bytes_used
        if self.num_chunks is not None:
            self.num_chunks += 1

    def _on_prefill_done(self, event: PrefillDone) -> None:
        self.tokens_done = self.prompt_tokens = event.prompt_tokens
        self.cached_tokens = event.cached_tokens
        self.queue_ms, self.prefill_ms = event.queue_ms, event.prefill_ms
        self.prompt_kv_bytes = event.kv_bytes_used

    def _on_token(self, event: TokenEvent) -> None:
        self.num_tokens = event.index + 1
        if event.index == 0:
            self.ttft_ms = (event.t_ns - event.t_send_ns) / 1e6
        self.has_text = self.has_text or bool(event.text)
        self.is_holding = not event.text
        if self.is_holding:
            self.num_held += 1
            self.held_token = self.num_tokens
        self._pending = event

    # --- told late ------------------------------------------------------------------------

    @classmethod
    def of_trace(cls, trace: RequestTrace, model: ModelFacts | None) -> Story:
        """The story of a request that was not watched, from what the panels know of it."""
        story = cls(trace.request_id, model)
        story.num_chunks = None
        story.prompt_tokens, story.tokens_done = trace.tokens_total, trace.tokens_done
        story.cached_tokens = trace.cached_tokens
        story.queue_ms, story.prefill_ms = trace.queue_ms, trace.prefill_ms
        story.num_tokens = len(trace.tokens)
        story.ending = trace.finish_reason
        if trace.ttft_s is not None:
            story.ttft_ms = trace.ttft_s * 1e3
            first = int(trace.kv["t_s"].searchsorted(trace.ttft_s))
            story.prompt_kv_bytes = int(trace.kv["used"][first])
        return story


class StoryBook:
    """The stories of all requests that are watched, and the engine's steps given to them.

    A prompt that is read from the start again, as by a player that was set back, begins anew.
    `loaded` answers which model is loaded now.
    """

    def __init__(self, loaded: Callable[[], ModelLoaded | None]) -> None:
        self._loaded = loaded
        self._stories: dict[str, Story] = {}
        self._awaiting: list[Story] = []

    def handle(self, events: Sequence[Event | LoadEvent]) -> None:
        """Take in what the engine said, in order."""
        for event in events:
            if isinstance(event, StepStats):
                # It is told after the tokens that it made.
                for story in self._awaiting:
                    story.handle_step(event)
                self._awaiting.clear()
            elif isinstance(event, StoryEvent):
                story = self.story(event.request_id)
                if isinstance(event, PrefillProgress) and event.tokens_done <= story.tokens_done:
                    # A recording that is played again from an earlier moment.
                    story = self._stories[event.request_id] = Story(event.request_id, story.model)
                story.handle(event)
                if isinstance(event, TokenEvent):
                    self._awaiting.append(story)

    def story(self, request_id: str, trace: RequestTrace | None = None) -> Story:
        """A request's story; of one that is new, as much as `trace` knows of it."""
        if request_id not in self._stories:
            self._stories[request_id] = self._begin(request_id, trace)
        return self._stories[request_id]

    def _begin(self, request_id: str, trace: RequestTrace | None) -> Story:
        loaded = self._loaded()
        if trace is None or not (trace.tokens_done or trace.end_s is not None):
            return Story(request_id, model_facts(loaded))
        if loaded and trace.metrics and trace.metrics.model != loaded.model.name:
            loaded = None  # another model answered
        return Story.of_trace(trace, model_facts(loaded))


def model_facts(loaded: ModelLoaded | None) -> ModelFacts | None:
    """What a story tells of a model."""
    if loaded is None:
        return None
    info = loaded.model
    return ModelFacts(
        info.hidden_size, info.vocab_size, info.num_layers, kv_bytes(loaded.kv_groups, 1)
    )
