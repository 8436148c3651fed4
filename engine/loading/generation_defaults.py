"""How a model wants to be sampled and which tokens end its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.config import SamplingParams

# Ours, for files that say nothing (every GGUF): lively, yet seldom off the road.
DEFAULT_SAMPLING = SamplingParams(temperature=0.7, top_p=0.9)

# What `transformers` samples with when generation_config.json says do_sample and no more.
_LIBRARY_SAMPLING: dict[str, Any] = {"temperature": 1.0, "top_k": 50, "top_p": 1.0}

# Control tokens that end a turn; a model that has one ends its answers with it, whatever the
# eos of its tokenizer is (Llama 3: eos <|end_of_text|>, turns end with <|eot_id|>).
END_OF_TURN_TOKENS = frozenset(
    {
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<|end_of_turn|>",
        "<end_of_turn>",
        "<|endofturn|>",
        "<|eot|>",
    }
)


def token_ids(value: object) -> frozenset[int]:
    """The ids in a config's value: an int, a list of ints, or nothing."""
    values = value if isinstance(value, list) else [value]
    return frozenset(
        item
        for item in values
        if isinstance(item, int) and not isinstance(item, bool) and item >= 0
    )


def default_sampling(config: Mapping[str, Any]) -> SamplingParams:
    """Sampling from a generation_config.json, which may be empty.

    A value that makes no sense is passed over: a wrong default must not keep a model from loading.
    """
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
    given = {name: config[name] for name in names if _is_valid(name, config.get(name))}
    if config.get("do_sample") is False:
        return SamplingParams(repetition_penalty=given.get("repetition_penalty", 1.0))
    if not given and not config.get("do_sample"):
        return DEFAULT_SAMPLING
    return SamplingParams(**_LIBRARY_SAMPLING | given)


def _is_valid(name: str, value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (name == "top_k" and not isinstance(value, int)):
        return False
    accepted: dict[str, Any] = {name: value}
    try:
        SamplingParams(**accepted)
    except ValueError:
        return False
    return True
