"""Ratios and names of pinned runs: what is compared, what is not, and what is best."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.run_comparison.figures import FIGURES, Figure, as_rows, cells
from app.run_comparison.pinned_run import PinnedRun
from app.run_comparison.words import figure_text, figure_title, headline, names, notes
from engine.events import RequestMetrics

BASE = RequestMetrics(
    request_id="a",
    started_at="2026-01-15T09:30:00Z",
    t_send_ns=0,
    model="Tiny",
    device="CPU",
    weight_format="int8",
    kv_format="bf16",
    context_length=4096,
    kernels="native",
    prompt_tokens=100,
    cached_tokens=0,
    completion_tokens=20,
    finish_reason="length",
    queue_ms=0.0,
    ttft_ms=200.0,
    prefill_ms=190.0,
    prefill_tok_s=500.0,
    decode_tok_s=50.0,
    tpot_ms=20.0,
    itl_p50_ms=20.0,
    itl_p90_ms=22.0,
    itl_p95_ms=24.0,
    itl_p99_ms=30.0,
    e2el_ms=600.0,
    kv_bytes_used=2_000_000,
    kv_bytes_allocated=2_000_000,
    weight_bytes=140_000_000,
    peak_memory_bytes=600_000_000,
    temperature=0.0,
    top_p=1.0,
    top_k=0,
    seed=0,
    kv_bytes_reserved=90_000_000,
    threads=2,
    warmup_s=0.1,
)
TTFT, DECODE, KV = FIGURES[0], FIGURES[2], FIGURES[6]


def run(name: str, prompt: tuple[int, ...] = (1, 2, 3), **changes: object) -> PinnedRun:
    metrics = replace(BASE, request_id=name, **changes)  # type: ignore[arg-type]
    return PinnedRun.of(metrics, "tiny.gguf", array("I", prompt), [20.0, 21.0])


def test_a_ratio_is_the_figure_by_the_baselines() -> None:
    """Whichever way is better; the best of a row is marked."""
    slow, fast = run("a"), run("b", weight_format="int4", decode_tok_s=78.5, ttft_ms=210.0)
    pace = cells(DECODE, [slow, fast], slow)
    assert [cell.ratio for cell in pace] == [None, pytest.approx(1.57)]
    assert [cell.is_best for cell in pace] == [False, True]
    wait = cells(TTFT, [slow, fast], slow)
    assert [cell.ratio for cell in wait] == [None, pytest.approx(1.05)]
    assert [cell.is_best for cell in wait] == [True, False]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (run("b", prompt=(9,), ttft_ms=20.0), "Not the same prompt"),
        (run("b", cached_tokens=64, ttft_ms=20.0), "came from the cache"),
        (run("b", model="Other", ttft_ms=20.0), "Not the same prompt"),
    ],
)
def test_waits_are_compared_only_for_the_same_work(other: PinnedRun, said: str) -> None:
    """A wait for less work is shown, but has no ratio, is not the best, and it is said why."""
    base = run("a")
    cell = cells(TTFT, [base, other], base)[1]
    assert (cell.value, cell.ratio, cell.is_best) == (20.0, None, False)
    assert said in notes([base, other], base)
    assert cells(DECODE, [base, replace(other)], base)[1].ratio == pytest.approx(1.0)


def test_caches_in_use_are_compared_at_the_same_length() -> None:
    """Another number of tokens is another cache."""
    base, longer = run("a"), run("b", completion_tokens=40, kv_bytes_used=3_000_000)
    assert cells(KV, [base, longer], base)[1].ratio is None
    assert "Not the same length" in notes([base, longer], base)
    assert notes([base, run("c")], base) == ""


def test_names_say_what_differs() -> None:
    """As few settings as tell runs apart; when they ran, where none does."""
    int8, int4 = run("a"), run("b", weight_format="int4", threads=1)
    assert names([int8, int4]) == ["INT8", "INT4"]
    assert names([int8, replace(int4), run("c", threads=1)]) == [
        "INT8, 2 threads",
        "INT4, 1 threads",
        "INT8, 1 threads",
    ]
    first, second = names([int8, run("d", started_at="2026-01-15T09:31:00Z")])
    assert first != second
    assert first.endswith("30:00")
    assert second.endswith("31:00")


def test_the_headline_names_the_fastest() -> None:
    """Against the baseline, or what comes nearest to it."""
    base, fast, slow = run("a"), run("b", decode_tok_s=100.0), run("c", decode_tok_s=40.0)
    called = ["A", "B", "C"]
    said = headline([base, fast, slow], base, called)
    assert said == "B decodes fastest: 2.00x the pace of A"
    assert headline([base, slow], base, ["A", "C"]) == "A decodes fastest; C reaches 0.800x of it"
    assert headline([base, run("d")], base, ["A", "D"]) == "All decode at the same pace"


def test_every_figure_has_a_title_and_a_unit() -> None:
    """Bytes are told in MB; what is missing is a dash."""
    for figure in FIGURES:
        assert figure_title(figure.name)
        assert figure_text(figure.name, None) == "–"
    assert figure_text("weight_bytes", 140e6) == "140"
    assert figure_text("ttft_ms", 140.0) == "140"


@given(st.lists(st.floats(0.01, 1e6) | st.none(), min_size=2, max_size=6), st.integers(0, 5))
def test_the_best_is_the_best_of_what_is_compared(paces: list[float | None], which: int) -> None:
    """For any figures: ratio x baseline is the value, and no value is better than the best."""
    runs = [run(str(i), decode_tok_s=pace) for i, pace in enumerate(paces)]
    base = runs[which % len(runs)]
    figure = Figure("decode_tok_s", "more", "nothing")
    found = cells(figure, runs, base)
    of_base = base.metrics.decode_tok_s
    for each, cell in zip(runs, found, strict=True):
        assert cell.value == each.metrics.decode_tok_s
        if cell.ratio is not None:
            assert of_base is not None
            assert cell.ratio * of_base == pytest.approx(cell.value)
    best = [cell.value for cell in found if cell.is_best]
    compared = [c.value for c, r in zip(found, runs, strict=True) if c.ratio or r is base]
    assert all(b == max(v for v in compared if v is not None) for b in best)


def test_a_table_for_files_has_the_names_of_requests_csv() -> None:
    """With a ratio after each figure and the baseline marked."""
    base, fast = run("a"), run("b", decode_tok_s=100.0)
    first, second = as_rows([base, fast], base)
    assert (first["decode_tok_s"], first["decode_tok_s_ratio"], first["is_baseline"]) == (
        50.0,
        None,
        True,
    )
    assert (second["decode_tok_s_ratio"], second["is_baseline"]) == (2.0, False)
    assert second["weight_format"] == "int8"
