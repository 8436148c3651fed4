"""The quiet line of figures under an answer: what it says and how much of it fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication

from app.chat.store import AnswerStats, MessageState

NO_VALUE = "–"
ITEM_GAP = 16

translate = QCoreApplication.translate


@dataclass(frozen=True, slots=True)
class Run:
    """Words of one weight; figures are strong, their labels faint."""

    text: str
    strong: bool = False


Item = tuple[Run, ...]


def figure(value: float | None) -> str:
    """Three significant digits, thousands separated, never scientific; en dash for no value."""
    if value is None:
        return NO_VALUE
    if value == 0:
        return "0"
    magnitude = len(f"{abs(value):.0f}") if abs(value) >= 1 else 0
    decimals = max(0, 3 - magnitude)
    if magnitude > 3:
        step = 10 ** (magnitude - 3)
        return f"{round(value / step) * step:,}"
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration(value_ms: float | None) -> str:
    """A time with its unit: milliseconds, from one second on seconds."""
    if value_ms is not None and value_ms >= 1000:
        return f"{figure(value_ms / 1000)} s"
    return f"{figure(value_ms)} ms"


def stats_items(stats: AnswerStats | None, state: MessageState) -> list[Item]:
    """What the line says, the most telling first; figures without a value are left out."""
    items: list[Item] = []
    if note := _ending(stats, state):
        items.append((Run(note),))
    if stats is None:
        return items
    if stats.ttft_ms is not None:
        items.append((Run("TTFT "), Run(duration(stats.ttft_ms), strong=True)))
    for label, value in (
        (translate("StatsLine", "prefill"), stats.prefill_tok_s),
        (translate("StatsLine", "decode"), stats.decode_tok_s),
    ):
        if value is not None:
            items.append((Run(f"{label} "), Run(f"{figure(value)} tok/s", strong=True)))
    if stats.itl_p50_ms is not None:
        p50, p95 = figure(stats.itl_p50_ms), figure(stats.itl_p95_ms)
        items.append((Run("ITL p50 "), Run(p50, True), Run(" p95 "), Run(f"{p95} ms", strong=True)))
    items.append(
        (
            Run(f"{stats.completion_tokens:,}", strong=True),
            Run(" " + translate("StatsLine", "tokens")),
        )
    )
    return items


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
    """The line as one string, for tooltips and screen readers."""
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
