"""A comparison in words: what runs are called, what came out, what cannot be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from PySide6.QtCore import QCoreApplication

from app.model_menus import FORMAT_NAMES
from app.race.words import factor
from app.run_comparison.figures import Figure, cells, differing, same_prompt
from app.run_comparison.pinned_run import PinnedRun
from app.telemetry.format import NO_VALUE, count, three_digits
from engine.events import RequestMetrics

MEGA = 1e6
UNKNOWN = NO_VALUE


def figure_title(name: str) -> str:
    """What a row of the table is called, with its unit."""
    return {
        "ttft_ms": _tr("First token (TTFT), ms"),
        "prefill_tok_s": _tr("Prefill, tok/s"),
        "decode_tok_s": _tr("Decode, tok/s"),
        "itl_p50_ms": _tr("ITL p50, ms"),
        "itl_p95_ms": _tr("ITL p95, ms"),
        "itl_p99_ms": _tr("ITL p99, ms"),
        "kv_bytes_used": _tr("KV cache in use, MB"),
        "weight_bytes": _tr("Weights, MB"),
        "peak_memory_bytes": _tr("Peak memory, MB"),
    }[name]


def figure_text(name: str, value: float | None) -> str:
    """A figure in the unit of its row."""
    in_mega = value is not None and name.endswith(("_bytes", "_bytes_used"))
    return three_digits(value / MEGA if in_mega and value is not None else value)


def names(runs: Sequence[PinnedRun]) -> list[str]:
    """What each run is called beside the others: by as few differences as tell them apart.

    Where none do, also by when it ran.
    """
    fields = differing(runs)
    found = [""] * len(runs)
    for number in range(1, len(fields) + 1):
        found = [", ".join(setting(r.metrics, f) for f in fields[:number]) for r in runs]
        if len(set(found)) == len(runs):
            break
    times = Counter(found)
    return [
        name if name and times[name] == 1 else ", ".join(filter(None, (name, _clock_time(run))))
        for name, run in zip(found, runs, strict=True)
    ]


def setting_title(field: str) -> str:
    """What a row of the table is called that says what was set."""
    return {
        "model": _tr("Model"),
        "weight_format": _tr("Weights"),
        "kv_format": _tr("KV cache"),
        "context_length": _tr("Context"),
        "threads": _tr("Threads"),
        "device": _tr("Device"),
    }[field]


def described(run: PinnedRun) -> str:
    """A run by itself: as what it ran, of which model, then when and how much."""
    m = run.metrics
    fields = ("weight_format", "kv_format", "context_length", "threads")
    config = ", ".join(setting(m, field) for field in fields)
    when = datetime.fromisoformat(m.started_at).astimezone().strftime("%Y-%m-%d %H:%M")
    size = _tr("{0} + {1} tokens").format(count(m.prompt_tokens), count(m.completion_tokens))
    return f"{config}\n{m.model}\n{when}, {size}"


def headline(runs: Sequence[PinnedRun], baseline: PinnedRun, called: Sequence[str]) -> str:
    """Which run decodes fastest, and by how much."""
    pace = cells(Figure("decode_tok_s", "more", "nothing"), runs, baseline)
    best = next((i for i, cell in enumerate(pace) if cell.is_best), None)
    if best is None:
        return _tr("All decode at the same pace")
    first = called[runs.index(baseline)]
    ratio = pace[best].ratio
    if ratio is not None:
        text = _tr("{0} decodes fastest: {1} the pace of {2}")
        return text.format(called[best], factor(ratio), first)
    others = [(cell.ratio, name) for cell, name in zip(pace, called, strict=True) if cell.ratio]
    if not others:
        return _tr("{0} decodes fastest").format(first)
    nearest, name = max(others)
    return _tr("{0} decodes fastest; {1} reaches {2} of it").format(first, name, factor(nearest))


def notes(runs: Sequence[PinnedRun], baseline: PinnedRun) -> str:
    """Why some ratios are missing; empty where none is."""
    others = [run for run in runs if run is not baseline]
    said = []
    if not all(same_prompt(run, baseline) for run in others):
        said.append(_tr("Not the same prompt: the waits for it are not compared."))
    elif any(run.metrics.cached_tokens for run in runs):
        said.append(
            _tr("A part of the prompt came from the cache: the waits for it are not compared.")
        )
    lengths = {run.metrics.prompt_tokens + run.metrics.completion_tokens for run in runs}
    if len(lengths) > 1:
        said.append(_tr("Not the same length: caches in use are not compared."))
    return " ".join(said)


def setting(metrics: RequestMetrics, field: str) -> str:
    """What one of NAMED_BY was, in a word or two."""
    value = getattr(metrics, field)
    match field:
        case "weight_format":
            return FORMAT_NAMES.get(value, _tr("as stored"))
        case "kv_format":
            return _tr("{0} KV").format(FORMAT_NAMES.get(value, value.upper()))
        case "context_length":
            return _tr("{0} context").format(count(value))
        case "threads":
            return _tr("{0} threads").format(count(value))
        case _:
            return str(value)


def _clock_time(run: PinnedRun) -> str:
    return datetime.fromisoformat(run.metrics.started_at).astimezone().strftime("%H:%M:%S")


def _tr(text: str) -> str:
    return QCoreApplication.translate("RunComparison", text)
