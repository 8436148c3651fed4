"""The figures under an answer: exact words, and as many as fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat.stats_line import ITEM_GAP, Run, fitting, plain_text, stats_items
from app.chat.store import AnswerStats, MessageState

STATS = AnswerStats(
    ttft_ms=182.4,
    prefill_tok_s=2213.0,
    decode_tok_s=141.2,
    itl_p50_ms=7.1,
    itl_p95_ms=8.4,
    prompt_tokens=300,
    completion_tokens=268,
)


def test_the_whole_line() -> None:
    """The line says what the drawings say."""
    assert plain_text(stats_items(STATS, "done")) == (
        "TTFT 182 ms  prefill 2,210 tok/s  decode 141 tok/s  ITL p50 7.10 p95 8.40 ms  268 tokens"
    )


def test_tokens_found_in_the_cache_stand_by_the_prefill() -> None:
    """A turn that used the cache again says how many tokens it did not compute."""
    stats = AnswerStats(prefill_tok_s=900, cached_tokens=1280, completion_tokens=2)
    line = plain_text(stats_items(stats, "done"))
    assert line == "prefill 900 tok/s  cached 1,280  2 tokens"


def test_figures_are_strong_and_labels_are_not() -> None:
    """Weight tells figure from label."""
    runs = [run for item in stats_items(STATS, "done") for run in item]
    assert Run("TTFT ") in runs
    assert Run("182 ms", strong=True) in runs


@pytest.mark.parametrize(
    ("state", "reason", "note"),
    [
        ("stopped", "cancelled", "Stopped"),
        ("done", "length", "Token limit reached"),
        ("done", "context_full", "Context full"),
        ("failed", "failed", "Failed"),
    ],
)
def test_an_early_end_is_said_first(state: MessageState, reason: str, note: str) -> None:
    """An answer that did not end by itself says why, before the figures."""
    stats = AnswerStats(finish_reason=reason, completion_tokens=3)  # type: ignore[arg-type]
    assert plain_text(stats_items(stats, state)) == f"{note}  3 tokens"


def test_an_answer_of_one_token_has_no_pace() -> None:
    """Figures without a value are left out instead of shown as nought."""
    line = plain_text(stats_items(AnswerStats(ttft_ms=90, completion_tokens=1), "done"))
    assert line == "TTFT 90.0 ms  1 token"


def test_percentiles_of_different_units_each_say_theirs() -> None:
    """One token that took seconds does not make the others look slow."""
    stats = AnswerStats(itl_p50_ms=7.1, itl_p95_ms=2400, completion_tokens=2)
    assert plain_text(stats_items(stats, "done")) == "ITL p50 7.10 ms p95 2.40 s  2 tokens"


@given(st.integers(0, 900))
def test_items_drop_from_the_right(width: int) -> None:
    """A narrow line holds the first items, whole, and never more than fits."""
    items = stats_items(STATS, "done")
    kept = fitting(items, width, lambda run: 7.0 * len(run.text))
    assert kept == items[: len(kept)]
    used = [sum(7.0 * len(run.text) for run in item) for item in kept]
    assert sum(used) + ITEM_GAP * max(0, len(kept) - 1) <= width
    if width >= 700:
        assert kept == items
