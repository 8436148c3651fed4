"""What a story knows after which events."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.explained.story import DecodeStep, Step, StoryBook
from app.explained.story import Story as Told
from app.telemetry.request_trace import RequestTrace
from engine.events import (
    ContextCut,
    Event,
    GenerationFailed,
    GenerationFinished,
    PrefillDone,
    PrefillProgress,
    StepStats,
    TokenEvent,
)
from tests.app.telemetry.story import PER_TOKEN, Story, loaded

WEIGHTS = 90_000_000


def told(events: list[Event], request_id: str = "r1") -> Told:
    """The story of a request after these events."""
    book = StoryBook(loaded)
    book.handle(events)
    return book.story(request_id)


def up_to(kind: type, story: Story, number: int = 1) -> list[Event]:
    """The events up to the `number`th one of a kind, with what is said of its step."""
    events = story.events()
    places = [index for index, event in enumerate(events) if isinstance(event, kind)]
    return events[: places[number - 1] + 1]


def test_steps_are_reached_when_the_engine_is_there() -> None:
    """Send, chunk, first token, second token, end: each moves the story on."""
    story = Story(num_tokens=5)
    assert told([]).current is Step.TOKENIZE
    assert told(up_to(PrefillProgress, story)).current is Step.PREFILL
    assert told(up_to(TokenEvent, story)).current is Step.FIRST_TOKEN
    assert told(up_to(TokenEvent, story, 2)).current is Step.DECODE
    assert told(story.events()).current is Step.DETOKENIZE


def test_prefill_figures_are_those_of_the_events() -> None:
    """Tokens, chunks, times and cache bytes of a prompt of 300 tokens in chunks of 128."""
    story = Story(prompt_tokens=300, queue_ms=4.0)
    known = told(story.events())
    done = next(event for event in story.events() if isinstance(event, PrefillDone))
    assert (known.prompt_tokens, known.num_chunks) == (300, 3)
    assert (known.queue_ms, known.prefill_ms) == (done.queue_ms, done.prefill_ms)
    assert known.prompt_kv_bytes == 300 * PER_TOKEN
    assert known.ttft_ms == pytest.approx(done.queue_ms + done.prefill_ms)


def test_a_cached_prefix_is_not_computed() -> None:
    """What was found counts as cached, the rest as computed."""
    known = told(Story(prompt_tokens=300, cached_tokens=256).events())
    assert (known.cached_tokens, known.computed_tokens, known.num_chunks) == (256, 44, 1)


def decoded(step: StepStats, index: int = 11, context: int = 143) -> DecodeStep | None:
    """What is known of a token after the step that made it."""
    used = context * PER_TOKEN
    token = TokenEvent("r1", 7, index, 5, " a", 2_000, 1_000, 9.5, context + 1, used, used)
    return told([token, step]).decode


def stats(context: int = 143, **changes: object) -> StepStats:
    """A decode step of one sequence, by the arithmetic of engine/costs.py."""
    num_bytes = WEIGHTS + (context + 1) * PER_TOKEN  # its cache read, and one token written
    step = StepStats(7, 2_000, "decode", 1, 1, 9.0, 1, num_bytes, None, None)
    return replace(step, **changes)  # type: ignore[arg-type]


def test_a_decode_step_is_split_into_weights_and_cache() -> None:
    """The weights are what is left of the bytes without cache read and token written."""
    step = decoded(stats())
    assert step is not None
    assert (step.token, step.weight_bytes, step.kv_bytes) == (12, WEIGHTS, 143 * PER_TOKEN)
    assert step.bytes_per_s == pytest.approx((WEIGHTS + 144 * PER_TOKEN) / 9e-3)


def test_a_shared_step_is_not_split() -> None:
    """Whose cache was read is not known where several answers shared the step."""
    step = decoded(stats(num_seqs=2))
    assert step is not None
    assert (step.weight_bytes, step.num_seqs, step.reads_a_prompt) == (None, 2, False)
    mixed = decoded(stats(num_seqs=2, phase="mixed"))
    assert mixed is not None
    assert mixed.reads_a_prompt


@pytest.mark.parametrize("changes", [{"phase": "prefill"}, {"step_id": 8}])
def test_other_steps_are_no_decode_step(changes: dict[str, object]) -> None:
    """A token that came by reading everything anew, or from another step, has no such figures."""
    assert decoded(stats(**changes)) is None


def test_stopped_while_the_prompt_is_read() -> None:
    """The story stays where it was stopped, and no later step can be turned to."""
    story = Story(prompt_tokens=300)
    end = next(event for event in story.events() if isinstance(event, GenerationFinished))
    known = told([*up_to(PrefillProgress, story), replace(end, finish_reason="cancelled")])
    assert (known.ending, known.current, known.reached) == (
        "cancelled",
        Step.PREFILL,
        Step.PREFILL,
    )
    assert (known.tokens_done, known.prompt_tokens) == (128, 300)


def test_a_request_that_fails_at_once() -> None:
    """Nothing but the failure is known."""
    known = told([GenerationFailed("r1", 5, "It failed.", "Why.", "What next.")])
    assert (known.ending, known.reached, known.prompt_tokens) == ("failed", Step.TOKENIZE, None)


def test_two_requests_at_once_have_a_story_each() -> None:
    """Events in one stream are kept apart by their request."""
    one, other = Story("a", num_tokens=4), Story("b", prompt_tokens=40, num_tokens=9)
    mixed = sorted(one.items + other.items, key=lambda item: item[0])
    book = StoryBook(loaded)
    book.handle([item for _, item in mixed])  # type: ignore[misc]
    assert [book.story(name).num_tokens for name in ("a", "b")] == [4, 9]
    assert [book.story(name).prompt_tokens for name in ("a", "b")] == [256, 40]


def test_a_cut_before_the_prompt_and_a_slide_on_the_way() -> None:
    """The same event means two things, by when it is told."""
    cut = ContextCut("r1", 1, 2, 90, 4, 60)
    known = told([cut, *up_to(TokenEvent, Story(), 3), replace(cut, dropped_tokens=120)])
    assert known.prompt_cut == cut
    assert known.slide is not None
    assert (known.slide.dropped_tokens, known.slide_token) == (120, 4)


def texts(*pieces: str) -> Told:
    """The story of an answer whose tokens gave these texts."""
    tokens = [event for event in Story(num_tokens=9).events() if isinstance(event, TokenEvent)]
    return told([replace(t, text=text) for t, text in zip(tokens, pieces, strict=False)])


def test_held_back_text_is_told_while_it_is_held() -> None:
    """A token without text moves the story to the detokenizer, until its text is out."""
    assert texts(" a", " b", "").current is Step.DETOKENIZE
    known = texts(" a", " b", "", "字")
    assert (known.current, known.num_held, known.held_token) == (Step.DECODE, 1, 3)


def test_a_recording_without_text_claims_nothing_about_text() -> None:
    """Where no token has text, none is said to be held back."""
    known = texts("", "", "")
    assert (known.holds_back, known.has_text) == (False, False)


def test_a_recording_set_back_begins_again() -> None:
    """Chunks are not counted twice when a prompt is read from its start again."""
    events = Story(prompt_tokens=300).events()
    book = StoryBook(loaded)
    book.handle(events)
    book.handle(events)
    assert book.story("r1").num_chunks == 3


def test_what_was_not_watched_is_told_from_the_panels() -> None:
    """A story begun after the answer has all figures that the panels' record has."""
    story = Story(prompt_tokens=300, cached_tokens=16)
    trace = RequestTrace("r1", story.t_send_ns)
    for event in story.events():
        if not isinstance(event, StepStats):
            trace.handle(event)  # type: ignore[arg-type]
    known = StoryBook(loaded).story("r1", trace)
    watched = told(story.events())
    same = ("prompt_tokens", "cached_tokens", "prefill_ms", "num_tokens", "ending", "current")
    assert [getattr(known, name) for name in same] == [getattr(watched, name) for name in same]
    assert known.ttft_ms == pytest.approx(watched.ttft_ms)
    assert known.prompt_kv_bytes == watched.prompt_kv_bytes
    assert known.num_chunks is None
