"""`phasescope bench --sweep`: its options, its progress on stderr and what it prints at the end."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from engine.cli_options import positive
from engine.config import WEIGHT_FORMATS, EngineConfig
from engine.json_lines import JsonLines, add_progress_option
from engine.kv_formats import KV_FORMATS
from engine.measuring import Workload
from engine.progress_line import ProgressLine
from engine.session import create_session
from engine.sweep import Sweep, SweepPlan, SweepProgress, SweepResult

DEFAULT_WEIGHTS = ("bf16", "int8", "int4")
DEFAULT_KV = ("auto",)
DEFAULT_CONTEXTS = (512, 2048)
_NUM_NAMES = 2  # columns of words, before those of figures
_COLUMNS = ("weights", "KV", "context", "TTFT ms", "prefill tok/s", "decode tok/s", "ITL p95 ms")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a sweep."""
    group = parser.add_argument_group(
        "sweep", "measure every combination; the lists are separated by commas"
    )
    group.add_argument("--sweep", action="store_true", help="measure all of the following")
    group.add_argument(
        "--sweep-weights",
        type=_some_of(WEIGHT_FORMATS),
        metavar="FORMATS",
        help=f"weight formats (default: {','.join(DEFAULT_WEIGHTS)})",
    )
    group.add_argument(
        "--sweep-kv",
        type=_some_of(KV_FORMATS),
        metavar="FORMATS",
        help="KV cache formats (default: auto, follows the weights)",
    )
    group.add_argument(
        "--sweep-contexts",
        type=_numbers,
        metavar="TOKENS",
        help="contexts, each filled by a prompt of so many tokens "
        f"(default: {','.join(map(str, DEFAULT_CONTEXTS))})",
    )
    add_progress_option(group)


def run(args: argparse.Namespace, config: EngineConfig, workload: Workload) -> None:
    """Measure and print. Raises EngineError, ValueError.

    Ctrl-C ends it with what there is; it goes on to the caller once that is printed.
    """
    plan = SweepPlan(
        config,
        workload,
        args.sweep_weights or DEFAULT_WEIGHTS,
        args.sweep_kv or DEFAULT_KV,
        args.sweep_contexts or DEFAULT_CONTEXTS,
    )
    if args.progress == "json":
        with JsonLines() as lines:
            result, interruption = _measured(plan, lambda at: lines.write("progress", at))
            lines.write("result", result)
            if interruption:
                raise interruption
        return
    with ProgressLine() as line:
        result, interruption = _measured(plan, lambda at: line.show(_progress(at)))
    if not args.json:
        sys.stdout.write(table(result))
    sys.stdout.write(json.dumps(asdict(result)) + "\n")
    if interruption:
        raise interruption


def arguments_of(plan: SweepPlan) -> list[str]:
    """The command line that measures a plan of one request at a time."""
    config, work = plan.config, plan.workload
    threads = () if config.threads is None else ("--threads", str(config.threads))
    return [
        *("bench", "--model", config.model_path, "--device", config.device, *threads),
        *("--generate", str(work.generate), "--repeat", str(work.repeat), "--sweep"),
        *("--sweep-weights", ",".join(plan.weights), "--sweep-kv", ",".join(plan.kv)),
        *("--sweep-contexts", ",".join(map(str, plan.contexts))),
    ]


def refuse_mixed(args: argparse.Namespace) -> None:
    """Raise ValueError for options of a sweep without --sweep, and for single values with it."""
    if args.sweep:
        for name, instead in (("weights", "weights"), ("kv", "kv"), ("context", "contexts")):
            if getattr(args, name) is not None:
                raise ValueError(f"--{name}: a sweep takes --sweep-{instead}")
        return
    for name in ("weights", "kv", "contexts"):
        if getattr(args, f"sweep_{name}") is not None:
            raise ValueError(f"--sweep-{name} needs --sweep")
    if args.progress == "json":
        raise ValueError("--progress json needs --sweep")


def table(result: SweepResult) -> str:
    """Rows in columns, then what was left out and why."""
    rows = [_COLUMNS, *(_cells(row) for row in result.sweep)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_line(row, widths) for row in rows] if result.sweep else []
    lines += (
        f"left out: weights {each.weights}, KV {each.kv}, context {each.prompt_tokens:,}: "
        f"{each.why}"
        for each in result.skipped
    )
    return "".join(f"{line}\n" for line in lines)


def _measured(
    plan: SweepPlan, tell: Callable[[SweepProgress], object]
) -> tuple[SweepResult, KeyboardInterrupt | None]:
    session = create_session()
    sweep = Sweep(session, plan, tell)
    try:
        sweep.run()
    except KeyboardInterrupt as interruption:
        return sweep.result, interruption
    finally:
        session.close()
    return sweep.result, None


def _progress(at: SweepProgress) -> str:
    return f"{100 * at.share:.0f} %, {at.text}"


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    figures = (row["ttft_ms"], row["prefill_tok_s"], row["decode_tok_s"], row["itl_ms"]["p95"])
    texts = ("–" if figure is None else f"{figure:,.1f}" for figure in figures)
    return row["weights"], row["kv"], f"{row['prompt_tokens']:,}", *texts


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Names to the left, figures to the right."""
    parts = [
        cell.ljust(width) if column < _NUM_NAMES else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(parts).rstrip()


def _some_of(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """An argparse type: names out of `known`, separated by commas."""

    def parse(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(","))
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        return names

    return parse


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(positive(part) for part in text.split(","))
