"""When the next step comes up."""

from __future__ import annotations

from app.explained.reading import Reading, reading_s
from app.explained.story import Step, StoryBook
from app.explained.story import Story as Told
from engine.events import TokenEvent
from tests.app.telemetry.story import Story, loaded


def decoding(num_tokens: int = 3) -> Told:
    """A story whose answer is under way."""
    book = StoryBook(loaded)
    events = Story(num_tokens=9).events()
    tokens = [index for index, event in enumerate(events) if isinstance(event, TokenEvent)]
    book.handle(events[: tokens[num_tokens - 1] + 1])
    return book.story("r1")


def test_goes_on_a_step_at_a_time_once_read() -> None:
    """However far the engine is, each step is read first."""
    reading = Reading(decoding())
    assert not reading.advance()
    shown = []
    for _ in range(6):
        reading.was_read = True
        if reading.advance():
            shown.append(reading.shown)
        assert not reading.advance()
    assert shown == [Step.EMBED, Step.PREFILL, Step.FIRST_TOKEN, Step.DECODE]


def test_waits_for_the_engine() -> None:
    """A step that was read stays until the engine goes on."""
    story = Told("r1")
    reading = Reading(story)
    reading.was_read = True
    assert not reading.advance()
    story.prompt_tokens = 20
    assert reading.advance()


def test_pages_turned_by_hand_stay() -> None:
    """Back and Next stop the going on; Follow leads to where the engine is."""
    reading = Reading(decoding())
    reading.next()
    reading.next()
    reading.back()
    reading.was_read = True
    assert (reading.shown, reading.advance(), reading.can_follow) == (Step.EMBED, False, True)
    reading.follow()
    assert (reading.shown, reading.can_follow) == (Step.DECODE, False)


def test_no_further_than_the_engine() -> None:
    """Next ends where there is nothing to tell yet, Back at the first step."""
    reading = Reading(Told("r1"))
    reading.next()
    reading.back()
    assert (reading.shown, reading.can_go_on, reading.can_go_back) == (Step.TOKENIZE, False, False)


def test_goes_on_to_the_end_after_the_answer() -> None:
    """A fast answer ends before it was read; its story is told to the end all the same."""
    reading = Reading(decoding())
    reading.story.ending = "stop"
    for _ in Step:
        reading.was_read = True
        reading.advance()
    assert reading.shown is Step.DETOKENIZE


def test_an_answer_that_ended_is_turned_by_hand() -> None:
    """Nothing moves by itself where nothing happens any more."""
    story = decoding()
    story.ending = "stop"
    reading = Reading(story)
    reading.was_read = True
    assert not reading.advance()
    assert not reading.can_follow
    for _ in Step:
        reading.next()
    assert reading.shown is Step.DETOKENIZE


def test_reading_takes_time_by_language() -> None:
    """A minute for 238 English words or 390 Chinese characters; never under three seconds."""
    assert round(reading_s("word " * 238, "en")) == 60
    assert round(reading_s("字" * 390, "zh")) == 60
    assert reading_s("Short.", "en") == 3.0
