"""The planner's readings and its table of weights, as words and figures."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication

from app.model_menus import FORMAT_NAMES
from app.telemetry.format import (
    NO_VALUE,
    Quantity,
    count,
    memory,
    milliseconds,
    three_digits,
    tokens_per_second,
)
from engine.planner.plan import KVLevel, Plan, Planning, WeightLevel
from engine.prediction import PROMPT_TOKENS

_OTHER_NAMES = {"fp8_ds_mla": "fp8_ds_mla"}  # vLLM's own word


@dataclass(frozen=True, slots=True)
class Figure:
    """A reading: its name, its value with its unit, what it means."""

    title: str
    quantity: Quantity
    tip: str


def figures(planning: Planning, plan: Plan) -> tuple[Figure, ...]:
    """The six readings, in the order shown."""
    tokens = _tr("tokens")
    context = count(plan.choice.context)
    speed, unknown = plan.speed, why_no_speed(planning)
    return (
        Figure(
            _tr("KV per token"),
            _small(plan.kv_bytes_per_token),
            _tr("Keys and values of one token in all layers: {0} bytes").format(
                count(plan.kv_bytes_per_token)
            ),
        ),
        Figure(
            _tr("KV cache"),
            memory(plan.kv_bytes),
            _tr("One text of {0} tokens; a load reserves {1}").format(
                context, memory(plan.kv_pool_bytes).text
            ),
        ),
        Figure(
            _tr("Longest context"),
            Quantity(count(plan.longest_context), tokens),
            _tr("With these formats; the model was made for {0} tokens").format(
                count(planning.model.footprint.context_length)
            ),
        ),
        Figure(
            _tr("At once"),
            Quantity(count(plan.sequences), f"× {context} {tokens}"),
            _tr("How many texts of this length fit beside each other"),
        ),
        Figure(
            _tr("First token"),
            milliseconds(speed.ttft_ms if speed else None),
            unknown or _tr("Predicted, for a prompt of {0} tokens").format(count(PROMPT_TOKENS)),
        ),
        Figure(
            _tr("Decode"),
            tokens_per_second(speed.decode_tok_s if speed else None),
            unknown or _tr("Predicted, with {0} tokens in the cache").format(count(PROMPT_TOKENS)),
        ),
    )


def empty_figures() -> tuple[Figure, ...]:
    """The readings while nothing is known."""
    titles = ("KV per token", "KV cache", "Longest context", "At once", "First token", "Decode")
    return tuple(Figure(_tr(title), Quantity(NO_VALUE, ""), "") for title in titles)


def why_no_speed(planning: Planning) -> str:
    """Why nothing is predicted, and how to change it; nothing where there is a prediction."""
    if not planning.model.can_run:
        return _tr("Shape only: this program cannot run it yet")
    if not planning.machine.speeds:
        return _tr("Known once this machine has been measured: the first load does it")
    return ""


def verdict(planning: Planning, plan: Plan) -> str:
    """Whether it fits, of what it is made and of how much."""
    words = _tr("Fits") if plan.fits else _tr("Does not fit")
    parts = [
        _tr("weights {0}").format(memory(plan.weight_bytes).text),
        _tr("KV cache {0}").format(memory(plan.kv_pool_bytes).text),
    ]
    if planning.model.can_run:
        parts.append(_tr("workspace {0}").format(memory(plan.workspace_bytes).text))
    return _tr("{verdict}: {parts} take {total} of {there}").format(
        verdict=words,
        parts=", ".join(parts),
        total=memory(plan.required_bytes).text,
        there=memory(plan.budget_bytes).text,
    )


def origin(planning: Planning) -> str:
    """Where the sizes are from, and what this program cannot do with them."""
    model = planning.model
    if model.parameters >= 999.5e6:
        size = _tr("{0} B parameters").format(three_digits(model.parameters / 1e9))
    else:
        size = _tr("{0} M parameters").format(three_digits(model.parameters / 1e6))
    place = model.source
    if model.is_built_in:
        place = _tr("built-in shape, config.json of {0}").format(model.source)
    why = why_no_speed(planning)
    if why:
        return " · ".join((why, size, place))
    predicted = _tr("speeds are predicted, for a prompt of {0} tokens").format(count(PROMPT_TOKENS))
    return " · ".join((size, place, predicted))


def level_row(level: WeightLevel, plan: Plan) -> tuple[str, str, str, str]:
    """A row of the table of weights: format, nominal, with scales, verdict."""
    nominal = memory(level.nominal_bytes).text
    if level.num_bytes is None:
        return (level.label, nominal, NO_VALUE, "")
    fits = level.name in plan.fitting_levels
    return (
        level.label,
        nominal,
        memory(level.num_bytes).text,
        _tr("fits") if fits else _tr("does not fit"),
    )


def level_titles() -> tuple[str, str, str, str]:
    """The table's header."""
    return (_tr("Weights"), _tr("nominal"), _tr("with scales"), "")


def kv_titles(plan: Plan) -> tuple[str, str, str]:
    """The header of the table of KV formats."""
    tokens = _tr("{0} tokens").format(count(plan.choice.context))
    return (_tr("KV cache"), _tr("per token"), tokens)


def kv_row(level: KVLevel) -> tuple[str, str, str]:
    """A row of it: format, bytes per token, bytes of the chosen context."""
    per_token = _tr("{0} B").format(count(level.bytes_per_token))
    return (format_name(level.name), per_token, memory(level.num_bytes).text)


def format_name(name: str) -> str:
    """A KV or weight format as the menus write it."""
    return _OTHER_NAMES.get(name) or FORMAT_NAMES.get(name, name.upper())


def _small(num_bytes: int) -> Quantity:
    """Bytes of one token: KB below a megabyte."""
    if num_bytes < 999_500:
        return Quantity(three_digits(num_bytes / 1e3), "KB")
    return memory(num_bytes)


def _tr(text: str) -> str:
    return QCoreApplication.translate("Planner", text)
