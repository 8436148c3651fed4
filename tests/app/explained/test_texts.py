"""Both languages say the same, with every figure filled in."""

from __future__ import annotations

import re
from dataclasses import replace
from string import Formatter

import pytest

from app.explained.explanation import explain, welcome
from app.explained.story import DecodeStep, Step, StoryBook
from app.explained.story import Story as Told
from app.explained.texts import TEXTS, Language, Words
from engine.events import ContextCut, FinishReason
from tests.app.telemetry.story import Story, loaded

LANGUAGES: tuple[Language, ...] = ("en", "zh")


def placeholders(text: str) -> list[str]:
    """The names in braces, sorted."""
    return sorted(name for _, name, _, _ in Formatter().parse(text) if name)


@pytest.mark.parametrize("key", TEXTS)
def test_both_languages_have_the_same_figures(key: str) -> None:
    """A text that lost a figure in one language is found."""
    words: Words = TEXTS[key]
    assert words.en
    assert re.search(r"[\u4e00-\u9fff]", words.zh) or key == "place"
    assert placeholders(words.en) == placeholders(words.zh)


def watched(**given: int) -> Told:
    """An answer of 110 tokens that was watched from Send to its end."""
    book = StoryBook(loaded)
    book.handle(Story(**given).events())  # type: ignore[arg-type]
    return book.story("r1")


def variants() -> dict[str, Told]:
    """Stories that between them say every sentence there is."""
    found = {
        "empty": Told("r1"),
        "plain": watched(),
        "one chunk": watched(prompt_tokens=40),
        "cached": watched(prompt_tokens=300, cached_tokens=256),
        "held": watched(),
        "holding": watched(),
        "slid": watched(),
        "cut": watched(),
        "shared": watched(),
        "mixed": watched(),
        "unwatched": watched(),
        "no model": watched(),
        "reading": Told("r1"),
        "only end": Told("r1"),
    }
    found["held"].num_held, found["held"].held_token = 2, 14
    found["holding"].is_holding, found["holding"].held_token = True, 14
    cut = ContextCut("r1", 1, 2, 90, 4, 60)
    found["slid"].slide, found["slid"].slide_token = cut, 57
    found["cut"].prompt_cut = cut
    step = found["plain"].decode
    assert step is not None
    whole = replace(step, weight_bytes=None, kv_bytes=None)
    found["shared"].decode = replace(whole, num_seqs=2)
    found["mixed"].decode = replace(whole, num_seqs=2, reads_a_prompt=True)
    found["no model"].model, found["no model"].decode = None, whole
    found["unwatched"].num_chunks, found["unwatched"].queue_ms = None, None
    found["reading"].tokens_done, found["reading"].prompt_tokens = 128, 300
    found["only end"].prompt_tokens, found["only end"].prefill_ms = 20, 8.0
    found["only end"].ending = "stop"
    for reason in ("length", "context_full", "cancelled", "failed"):
        ended = found[reason] = watched()
        ended.ending = reason
    return found


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_sentence_is_said_and_filled_in(language: Language) -> None:
    """No brace is left, and no text of the table is never used."""
    said = set(welcome(language).sentences)
    for story in variants().values():
        for step in Step:
            explanation = explain(story, step, language)
            said |= {explanation.title, *explanation.sentences}
    assert not [text for text in said if "{" in text or "None" in text]
    card = {"place", "back", "next", "follow", "close", "card", "offer", "welcome_title"}
    unused = [
        key
        for key, words in TEXTS.items()
        if key not in card and not any(_could_be(getattr(words, language), text) for text in said)
    ]
    assert not unused


def test_figures_are_those_of_the_answer() -> None:
    """A teacher who checks the card against the panels finds the same figures."""
    story = watched(prompt_tokens=300)
    assert "became 300 tokens" in explain(story, Step.TOKENIZE, "en").body
    assert "300 tokens in 3 chunks, 146 ms" in explain(story, Step.PREFILL, "en").body
    assert "the cache then holds 6.91 MB" in explain(story, Step.PREFILL, "en").body
    assert "First token after 146 ms (TTFT)" in explain(story, Step.FIRST_TOKEN, "en").body
    assert "300 个词元分 3 块算完，用时 146 ms" in explain(story, Step.PREFILL, "zh").body


def test_a_decode_step_in_figures() -> None:
    """What was read in which time, and the rate that follows from both."""
    story = watched()
    story.decode = DecodeStep(12, 9.2, 9.0, 142_000_000, 138_000_000, 4_000_000, 1, False)
    body = explain(story, Step.DECODE, "en").body
    assert "Token 12: read 138 MB of weights, 4.00 MB of cache in 9.00 ms = 15.8 GB/s." in body
    assert "Token to token (ITL) took 9.20 ms" in body


@pytest.mark.parametrize(
    ("ending", "step"), [("cancelled", Step.PREFILL), ("failed", Step.PREFILL)]
)
def test_an_early_end_is_told_where_it_came(ending: FinishReason, step: Step) -> None:
    """The step at which it ended says so, the one before does not."""
    story = Told("r1")
    story.prompt_tokens, story.tokens_done, story.ending = 300, 128, ending
    sentence = TEXTS[f"end_{ending}"].en
    assert sentence in explain(story, step, "en").sentences
    assert sentence not in explain(story, Step(step - 1), "en").sentences


def _could_be(template: str, text: str) -> bool:
    parts = (re.escape(part) for part in re.split(r"\{\w+\}", template))
    return re.fullmatch(".+?".join(parts), text) is not None
