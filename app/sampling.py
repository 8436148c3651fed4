"""Sampling as the person set it: their values where given, the model's own elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from app.settings.schema import (
    MAX_TOKENS,
    MIN_P,
    REPETITION_PENALTY,
    SEED,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    Setting,
)
from app.settings.store import Settings
from engine.config import SamplingParams

# In the order of the popover; each key is the field of SamplingParams, save the last.
SAMPLING_SETTINGS: tuple[Setting[Any], ...] = (
    TEMPERATURE,
    TOP_K,
    TOP_P,
    MIN_P,
    REPETITION_PENALTY,
    SEED,
    MAX_TOKENS,
)


def effective_sampling(settings: Settings, default: SamplingParams) -> SamplingParams:
    """The parameters of the next answer; `default` is what the model's files ask for."""
    given = {
        setting.key: value
        for setting in SAMPLING_SETTINGS
        if setting is not MAX_TOKENS and (value := settings.get(setting)) is not None
    }
    return replace(default, **given)


def parse(setting: Setting[Any], text: str) -> object:
    """The value typed into a field; None when it is empty. Raises ValueError when impossible."""
    text = text.strip().replace(",", ".")
    if not text:
        return None
    value = setting.type(text)
    if not setting.accepts(value):
        raise ValueError(limits(setting))
    return value


def limits(setting: Setting[Any]) -> str:
    """What may be entered, e.g. "0 to 100"."""
    if setting.maximum is None:
        return f"{setting.minimum:,g} +"
    return f"{setting.minimum:,g} – {setting.maximum:,g}"
