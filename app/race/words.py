"""A race in words: what was changed, and how it came out."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QCoreApplication

from app.model_menus import FORMAT_NAMES
from app.race.comparison import Speedup
from app.race.race import Race
from app.telemetry.format import count, milliseconds, three_digits, tokens_per_second
from engine.config import EngineConfig
from engine.events import RequestMetrics

FIELDS = ("weight_format", "kv_format", "context_length", "threads", "device")


def changed_fields(config: EngineConfig, other: EngineConfig) -> list[str]:
    """Those of FIELDS in which two configs differ."""
    return [name for name in FIELDS if getattr(config, name) != getattr(other, name)]


def short_name(config: EngineConfig, other: EngineConfig) -> str:
    """What a config has that another has not: "INT4", "INT8 cache, 2 threads"."""
    return ", ".join(
        value_text(name, getattr(config, name)) for name in changed_fields(config, other)
    )


def value_text(field: str, value: Any) -> str:
    """A value of one of FIELDS, as part of a sentence."""
    match field:
        case "weight_format":
            return FORMAT_NAMES.get(value, _tr("weights as stored"))
        case "kv_format":
            name = FORMAT_NAMES.get(value)
            return _tr("{0} cache").format(name) if name else _tr("automatic cache format")
        case "context_length":
            return _tr("{0} of context").format(count(value)) if value else _tr("automatic context")
        case "threads":
            return _tr("{0} threads").format(count(value)) if value else _tr("automatic threads")
        case _:
            return _tr("automatic device") if value == "auto" else str(value).upper()


def factor(value: float) -> str:
    """A ratio of speeds: "1.57x"."""
    return f"{three_digits(value)}x"


def outcome(predicted: Speedup, measured: Speedup) -> str:
    """The decode in one sentence."""
    if measured.decode is None:
        return _tr("Too few tokens to compare")
    if predicted.decode is None:
        return _tr("Decode: measured {0}").format(factor(measured.decode))
    text = _tr("Decode: predicted {0}, measured {1}")
    return text.format(factor(predicted.decode), factor(measured.decode))


def figures(race: Race, second: RequestMetrics, predicted: Speedup, measured: Speedup) -> str:
    """Both runs' paces and waits, and what keeps them from being compared."""
    first = race.first.metrics
    paces = _tr("{0} before, {1} now.").format(
        three_digits(first.decode_tok_s), tokens_per_second(second.decode_tok_s).text
    )
    return " ".join(
        part for part in (paces, _wait(first, second, predicted, measured), *_notes(race)) if part
    )


def _wait(
    first: RequestMetrics, second: RequestMetrics, predicted: Speedup, measured: Speedup
) -> str:
    before, now = milliseconds(first.ttft_ms).text, milliseconds(second.ttft_ms).text
    if measured.ttft is None:
        text = _tr(
            "First token after {0} before, {1} now, not to be compared: the first run had {2} of "
            "its {3} prompt tokens from the cache, this one computed all."
        )
        return text.format(before, now, count(first.cached_tokens), count(first.prompt_tokens))
    if predicted.ttft is None:
        text = _tr("First token after {0} before, {1} now: measured {2}.")
        return text.format(before, now, factor(measured.ttft))
    text = _tr("First token after {0} before, {1} now: predicted {2}, measured {3}.")
    return text.format(before, now, factor(predicted.ttft), factor(measured.ttft))


def _notes(race: Race) -> tuple[str, ...]:
    company = _tr("Another answer ran meanwhile, which slows this one.") if race.had_company else ""
    return company, race.problem


def _tr(text: str) -> str:
    return QCoreApplication.translate("Race", text)
