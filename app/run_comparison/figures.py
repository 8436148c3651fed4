"""What a comparison says of its runs: names, figures, and their ratios to the baseline's. No Qt.

A ratio is a run's figure divided by the baseline's, whichever way is better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from app.run_comparison.pinned_run import PinnedRun
from engine.events import RequestMetrics

Needs = Literal["nothing", "same tokens", "same prompt"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the table: a field of RequestMetrics, and which way is better.

    `needs`: what two runs must share for their ratio to say something. "same prompt": the whole
    of it computed by both; "same tokens": the length they reached, for what grows with it.
    """

    name: str
    better: Literal["less", "more"]
    needs: Needs


FIGURES = (
    Figure("ttft_ms", "less", "same prompt"),
    Figure("prefill_tok_s", "more", "same prompt"),
    Figure("decode_tok_s", "more", "nothing"),
    Figure("itl_p50_ms", "less", "nothing"),
    Figure("itl_p95_ms", "less", "nothing"),
    Figure("itl_p99_ms", "less", "nothing"),
    Figure("kv_bytes_used", "less", "same tokens"),
    Figure("weight_bytes", "less", "nothing"),
    Figure("peak_memory_bytes", "less", "nothing"),
)
# What tells two runs apart, in the order a name has it.
NAMED_BY = ("model", "weight_format", "kv_format", "context_length", "threads", "device")


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure of a run; `ratio` is None for the baseline and where there is none to speak of."""

    value: float | None
    ratio: float | None
    is_best: bool


def differing(runs: Sequence[PinnedRun]) -> tuple[str, ...]:
    """Those of NAMED_BY in which the runs are not all alike."""
    return tuple(name for name in NAMED_BY if len({getattr(run.metrics, name) for run in runs}) > 1)


def cells(figure: Figure, runs: Sequence[PinnedRun], baseline: PinnedRun) -> list[Cell]:
    """A figure of all runs. The best of those that can be compared is marked, unless all agree."""
    values = [_value(run.metrics, figure.name) for run in runs]
    ratios = [_ratio(figure, run, baseline) for run in runs]
    takes_part = [ratio or (run is baseline) for run, ratio in zip(runs, ratios, strict=True)]
    compared = {v for v, yes in zip(values, takes_part, strict=True) if yes and v is not None}
    best = None
    if len(compared) > 1:
        best = min(compared) if figure.better == "less" else max(compared)
    return [
        Cell(value, ratio, bool(yes) and value is not None and value == best)
        for value, ratio, yes in zip(values, ratios, takes_part, strict=True)
    ]


def same_prompt(run: PinnedRun, other: PinnedRun) -> bool:
    """Whether both were asked the same, to the token."""
    is_same_model = run.metrics.model == other.metrics.model
    return is_same_model and run.prompt_sha256 == other.prompt_sha256


def as_rows(runs: Sequence[PinnedRun], baseline: PinnedRun) -> list[Mapping[str, object]]:
    """A table for files, a row a run: columns as in requests.csv, then `<figure>_ratio`."""
    ratios = {figure.name: cells(figure, runs, baseline) for figure in FIGURES}
    counts = ("prompt_tokens", "cached_tokens", "completion_tokens", "finish_reason")
    rows: list[Mapping[str, object]] = []
    for number, run in enumerate(runs):
        row: dict[str, object] = {
            name: getattr(run.metrics, name)
            for name in ("request_id", "started_at", *NAMED_BY, *counts)
        }
        row |= {figure.name: getattr(run.metrics, figure.name) for figure in FIGURES}
        row |= {f"{name}_ratio": found[number].ratio for name, found in ratios.items()}
        rows.append(row | {"is_baseline": run is baseline})
    return rows


def _ratio(figure: Figure, run: PinnedRun, baseline: PinnedRun) -> float | None:
    value, base = (_value(each.metrics, figure.name) for each in (run, baseline))
    if run is baseline or value is None or not base or not _comparable(figure, run, baseline):
        return None
    return value / base


def _comparable(figure: Figure, run: PinnedRun, other: PinnedRun) -> bool:
    a, b = run.metrics, other.metrics
    if figure.needs == "same prompt":
        # Of what the cache had, a run was spared a part.
        return same_prompt(run, other) and not (a.cached_tokens or b.cached_tokens)
    if figure.needs == "same tokens":
        return a.prompt_tokens + a.completion_tokens == b.prompt_tokens + b.completion_tokens
    return True


def _value(metrics: RequestMetrics, name: str) -> float | None:
    value: float | None = getattr(metrics, name)
    return value
