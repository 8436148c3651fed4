"""The quiet line of figures under an answer: what it says and how much of it fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication

from app.chat.store import AnswerStats, MessageState
from app.telemetry.format import Quantity, count, milliseconds, tokens_per_second

ITEM_GAP = 16

translate = QCoreApplication.translate


@dataclass(frozen=True, slots=True)
class Run:
    """Words of one weight; figures are strong, their labels faint."""

    text: str
    strong: bool = False


Item = tuple[Run, ...]


def stats_items(stats: AnswerStats | None, state: MessageState) -> list[Item]:
    """What the line says, the most telling first; figures without a value are left out."""
    items: list[Item] = []
    if note := _ending(stats, state):
        items.append((Run(note),))
    if stats is None:
        return items
    if stats.ttft_ms is not None:
        items.append((Run("TTFT "), Run(milliseconds(stats.ttft_ms).text, strong=True)))
    items += _pace(translate("StatsLine", "prefill"), stats.prefill_tok_s)
    if stats.cached_tokens:
        cached = Run(f"{translate('StatsLine', 'cached')} ")
        items.append((cached, Run(count(stats.cached_tokens), strong=True)))
    items += _pace(translate("StatsLine", "decode"), stats.decode_tok_s)
    if stats.itl_p50_ms is not None:
        items.append(_latency(milliseconds(stats.itl_p50_ms), milliseconds(stats.itl_p95_ms)))
    one = stats.completion_tokens == 1
    words = translate("StatsLine", "token") if one else translate("StatsLine", "tokens")
    items.append((Run(count(stats.completion_tokens), strong=True), Run(f" {words}")))
    return items


def _pace(label: str, rate: float | None) -> list[Item]:
    if rate is None:
        return []
    return [(Run(f"{label} "), Run(tokens_per_second(rate).text, strong=True))]


def _latency(p50: Quantity, p95: Quantity) -> Item:
    """Both percentiles; the unit stands once where it is the same."""
    first = p50.value if p50.unit == p95.unit else p50.text
    return (Run("ITL p50 "), Run(first, True), Run(" p95 "), Run(p95.text, strong=True))


def fitting(items: Sequence[Item], width: float, measure: Callable[[Run], float]) -> list[Item]:
    """The first items whose runs, as `measure` has them, fit into `width` without wrapping."""
    kept: list[Item] = []
    used = 0.0
    for item in items:
        used += sum(measure(run) for run in item) + (ITEM_GAP if kept else 0)
        if used > width:
            break
        kept.append(item)
    return kept


def plain_text(items: Sequence[Item]) -> str:
    """The line as one string, for screen readers."""
    return "  ".join("".join(run.text for run in item) for item in items)


def _ending(stats: AnswerStats | None, state: MessageState) -> str:
    reason = stats.finish_reason if stats else None
    if state == "stopped" or reason == "cancelled":
        return translate("StatsLine", "Stopped")
    if state == "failed" or reason == "failed":
        return translate("StatsLine", "Failed")
    if reason == "length":
        return translate("StatsLine", "Token limit reached")
    if reason == "context_full":
        return translate("StatsLine", "Context full")
    return ""
