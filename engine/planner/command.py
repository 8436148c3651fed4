"""`phasescope plan`: what a model would take and reach on this machine, before it is loaded.

MODEL is a file or folder, or the name of a well-known model, which need not be downloaded: its
shape is built in. Told are the weights at each level, nominal (parameters x bits) and as they would
be kept, scales included; bytes per token and for a whole context in each KV format; whether it fits
here, the longest context that does, how many sequences of the chosen length fit at once; and the
predicted speed. The last line of --json is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from engine.cli_options import add_device_option, add_threads_option, checked
from engine.config import WEIGHT_FORMATS
from engine.footprint import CONTEXT_CHOICES
from engine.kv_formats import KV_FORMATS
from engine.planner.plan import (
    Plan,
    PlannedModel,
    Planning,
    Question,
    WeightLevel,
    kv_level,
    make_plan,
)
from engine.planner.shapes import SHAPES
from engine.prediction import PROMPT_TOKENS
from engine.session import EngineError
from engine.starter import STARTER_NAME, starter_model_path

NO_VALUE = "–"
_NOT_MEASURED = (
    "not predicted: this machine was not measured yet; loading any model with these threads "
    "measures it, e.g. phasescope generate --prompt Hello --max-tokens 1"
)
SHAPE_ONLY = "shape only: this program cannot run it yet"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `plan`."""
    names = ", ".join(shape.name for shape in SHAPES)
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL|NAME",
        help=f"a .gguf file or a safetensors folder (default: the starter, {STARTER_NAME}), or one "
        f"of: {names}",
    )
    parser.add_argument(
        "--context",
        type=checked("context_length"),
        metavar="TOKENS",
        help="context length (default: what a load would take, 4,096 for a name)",
    )
    parser.add_argument("--weights", choices=WEIGHT_FORMATS, help="weight format")
    parser.add_argument(
        "--kv",
        choices=(*KV_FORMATS, "fp8_ds_mla"),
        default="auto",
        help="KV cache format (default: auto, follows the weights)",
    )
    add_device_option(parser)
    add_threads_option(parser)
    parser.add_argument("--json", action="store_true", help="print the JSON line only")


def run(args: argparse.Namespace) -> None:
    """Plan and print. Raises EngineError, and ValueError for what is not planned."""
    model = args.model or starter_model_path()
    if model is None:
        raise EngineError(
            "There is no model to plan for.",
            "None was named and the starter model is not installed.",
            "Name a file, a folder or a well-known model: see phasescope plan --help.",
        )
    from engine.devices import default_threads  # imports torch: not for --help
    from engine.planner.facts import read_planning

    threads = args.threads or default_threads(spare_core=False)
    planning = read_planning(model, args.device or "auto", threads, loaded=None)
    plan = make_plan(planning, Question(args.weights, args.kv, args.context))
    if not args.json:
        sys.stdout.write(text(planning, plan))
    sys.stdout.write(json.dumps(as_json(planning, plan)) + "\n")


def as_json(planning: Planning, plan: Plan) -> dict[str, Any]:
    """The plan as one object; bytes are whole numbers, what is not known is null."""
    model, machine, choice, speed = planning.model, planning.machine, plan.choice, plan.speed
    return {
        "model": model.name,
        "source": model.source,
        "can_run": model.can_run,
        "parameters": model.parameters,
        "device": machine.device,
        "threads": machine.threads,
        "weights": choice.weights,
        "kv": choice.kv,
        "context_length": choice.context,
        "kv_bytes_per_token": plan.kv_bytes_per_token,
        "kv_bytes": plan.kv_bytes,
        "weight_bytes": plan.weight_bytes,
        "kv_bytes_reserved": plan.kv_pool_bytes,
        "workspace_bytes": plan.workspace_bytes,
        "required_bytes": plan.required_bytes,
        "available_bytes": plan.budget_bytes,
        "fits": plan.fits,
        "longest_context": plan.longest_context,
        "sequences": plan.sequences,
        "ttft_ms": speed.ttft_ms if speed else None,
        "decode_tok_s": speed.decode_tok_s if speed else None,
        "weight_levels": [
            {
                "format": level.name,
                "nominal_bits": level.nominal_bits,
                "nominal_bytes": level.nominal_bytes,
                "bytes": level.num_bytes,
                "fits": level.name in plan.fitting_levels if level.num_bytes else None,
            }
            for level in model.levels
        ],
        "kv_levels": [
            {"format": each.name, "bytes_per_token": each.bytes_per_token, "bytes": each.num_bytes}
            for each in plan.kv_levels
        ],
    }


def text(planning: Planning, plan: Plan) -> str:
    """The plan as tables for a person."""
    model = planning.model
    return "\n".join(
        [
            _heading(model),
            "",
            *_columns([_WEIGHT_TITLES, *(_weight_row(each, plan) for each in model.levels)]),
            "",
            *_columns(_kv_rows(model, plan)),
            "",
            *_verdict(planning, plan),
            "",
        ]
    )


_WEIGHT_TITLES = ("weights", "nominal", "with scales", "")


def _heading(model: PlannedModel) -> str:
    origin = "built-in shape, config.json of " if model.is_built_in else ""
    in_billions = model.parameters >= 999.5e6
    size = _three_digits(model.parameters / (1e9 if in_billions else 1e6))
    parameters = f"{size} {'B' if in_billions else 'M'}"
    lines = [
        f"{model.name}: {parameters} parameters, made for {model.footprint.context_length:,} "
        f"tokens ({origin}{model.source})"
    ]
    if not model.can_run:
        lines.append(SHAPE_ONLY)
    return "\n".join(lines)


def _weight_row(level: WeightLevel, plan: Plan) -> tuple[str, ...]:
    if level.num_bytes is None:
        return (level.label, _bytes(level.nominal_bytes), NO_VALUE, "")
    verdict = "fits" if level.name in plan.fitting_levels else "does not fit"
    return (level.label, _bytes(level.nominal_bytes), _bytes(level.num_bytes), verdict)


def _kv_rows(model: PlannedModel, plan: Plan) -> list[tuple[str, ...]]:
    own = model.footprint.context_length
    contexts = sorted({plan.choice.context, *(c for c in CONTEXT_CHOICES if c >= 4096), own})
    contexts = [each for each in contexts if each <= own]
    titles = ("KV cache", "bytes/token", *(f"{each:,}" for each in contexts))
    rows = [
        (
            each.name,
            f"{each.bytes_per_token:,}",
            *(
                _bytes(kv_level(each.name, model.footprint.kv_groups[each.name], c).num_bytes)
                for c in contexts
            ),
        )
        for each in plan.kv_levels
    ]
    return [titles, *rows]


def _verdict(planning: Planning, plan: Plan) -> list[str]:
    choice, model = plan.choice, planning.model
    work = f" + workspace {_bytes(plan.workspace_bytes)}" if model.can_run else ""
    return [
        f"weights {choice.weights}, KV {choice.kv}, context {choice.context:,} on "
        f"{planning.machine.device}: {'fits' if plan.fits else 'does not fit'}",
        f"  takes      weights {_bytes(plan.weight_bytes)} + KV pool {_bytes(plan.kv_pool_bytes)}"
        f"{work} = {_bytes(plan.required_bytes)} of {_bytes(plan.budget_bytes)} available",
        f"  one text   {choice.context:,} tokens x {plan.kv_bytes_per_token:,} bytes"
        f"{_windows(plan)} = {plan.kv_bytes / 2**30:,.4g} GiB",
        f"  longest    {_longest(plan, model)}",
        f"  at once    {plan.sequences:,} of {choice.context:,} tokens",
        f"  speed      {_speed(planning, plan)}",
    ]


def _windows(plan: Plan) -> str:
    whole = plan.choice.context * plan.kv_bytes_per_token
    return "" if plan.kv_bytes == whole else ", less what has left the windows,"


def _longest(plan: Plan, model: PlannedModel) -> str:
    if plan.longest_context is None:
        return "none: there is no room beside the weights"
    own = plan.longest_context == model.footprint.context_length
    return f"{plan.longest_context:,} tokens" + (", the model's own" if own else "")


def _speed(planning: Planning, plan: Plan) -> str:
    if not planning.model.can_run:
        return f"{NO_VALUE}, {SHAPE_ONLY}"
    if plan.speed is None:
        return f"{NO_VALUE}, {_NOT_MEASURED}"
    return (
        f"first token after {_duration(plan.speed.ttft_ms)} for {PROMPT_TOKENS:,} tokens, then "
        f"{_three_digits(plan.speed.decode_tok_s)} tok/s (predicted)"
    )


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    """The rows as lines, the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _bytes(num_bytes: int) -> str:
    """Decimal, three significant digits, as everywhere in the program."""
    if num_bytes >= 999.5e6:
        return f"{_three_digits(num_bytes / 1e9)} GB"
    return f"{_three_digits(num_bytes / 1e6)} MB"


def _duration(ms: float) -> str:
    return f"{_three_digits(ms / 1e3)} s" if ms >= 999.5 else f"{_three_digits(ms)} ms"


def _three_digits(value: float) -> str:
    rounded = float(f"{value:.2e}")
    whole_digits = len(f"{rounded:.0f}") if rounded >= 1 else 1
    return f"{rounded:,.{max(0, 3 - whole_digits)}f}"
