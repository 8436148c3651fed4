"""A sweep in words."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QCoreApplication

from app.model_menus import FORMAT_NAMES
from app.race.words import factor
from app.sweep.sweeping import SweepRow
from app.telemetry.format import count, three_digits

# What the plot shows, and the table after the combination: names as in a row of `bench`.
PLOTTED = ("decode_tok_s", "prefill_tok_s", "ttft_ms", "itl_p95_ms")


def title(name: str) -> str:
    """What a figure is called, with its unit."""
    return {
        "decode_tok_s": _tr("Decode, tok/s"),
        "prefill_tok_s": _tr("Prefill, tok/s"),
        "ttft_ms": _tr("First token (TTFT), ms"),
        "itl_p95_ms": _tr("ITL p95, ms"),
        "kv_bytes_used": _tr("KV cache, MB"),
    }[name]


def column_title(name: str) -> str:
    """The same where there is little room."""
    return {"ttft_ms": _tr("TTFT, ms"), "kv_bytes_used": _tr("KV, MB")}.get(name, title(name))


def figure(row: SweepRow, name: str) -> str:
    """A figure in the unit of its title."""
    value = row.value(name)
    return three_digits(value / 1e6 if value is not None and "_bytes" in name else value)


def format_name(name: str) -> str:
    """A weight or KV format as it is written in the menus."""
    return {"as-stored": _tr("As stored"), "auto": _tr("Automatic")}.get(
        name, FORMAT_NAMES.get(name, name.upper())
    )


def line_name(row: SweepRow, *, with_kv: bool) -> str:
    """Formats of a line in the plot; the cache's only where there are several."""
    weights = format_name(row.weights)
    return _tr("{0}, {1} KV").format(weights, format_name(row.kv)) if with_kv else weights


def row_text(row: SweepRow) -> str:
    """A combination as part of a sentence."""
    return _tr("{0} at {1} tokens").format(line_name(row, with_kv=True), count(row.prompt_tokens))


def headline(rows: Sequence[SweepRow]) -> str:
    """The fastest decode, and how far it is from the slowest at the same context."""
    measured = [row for row in rows if row.value("decode_tok_s")]
    if not measured:
        return _tr("Nothing was measured") if rows else _tr("Measure many settings at once")
    best = max(measured, key=lambda row: row.value("decode_tok_s") or 0.0)
    pace = best.value("decode_tok_s") or 0.0
    same = [row for row in measured if row.prompt_tokens == best.prompt_tokens]
    slowest = min(same, key=lambda row: row.value("decode_tok_s") or 0.0)
    text = _tr("{0} decodes fastest: {1} tok/s").format(row_text(best), three_digits(pace))
    if slowest is best:
        return text
    ratio = pace / (slowest.value("decode_tok_s") or pace)
    name = line_name(slowest, with_kv=slowest.kv != best.kv)
    return _tr("{0}, {1} the pace of {2}").format(text, factor(ratio), name)


def _tr(text: str) -> str:
    return QCoreApplication.translate("Sweep", text)
