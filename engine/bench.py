"""`phasescope bench`: the engine measured without a window. `python -m engine.bench` is the same.

Synthetic prompts, greedy, end tokens ignored, prefix reuse off; one run to warm up, then medians
over the repeats, and over the requests where there are several at once. The last line on stdout is
one JSON object. With --sweep every combination of formats and contexts is measured so, one after
the other; Ctrl-C ends a sweep with what has been measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from engine import sweep_command
from engine.cli_options import add_common_options, config_from, positive
from engine.config import DEFAULT_CONTEXT_LENGTH, EngineConfig
from engine.load_blocking import load_or_raise
from engine.measuring import Workload, measure
from engine.session import create_session


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bench`."""
    add_common_options(parser)
    group = parser.add_argument_group("measuring")
    group.add_argument("--prompt-tokens", type=positive, default=512, metavar="N")
    group.add_argument("--generate", type=positive, default=128, metavar="N")
    group.add_argument("--repeat", type=positive, default=5, metavar="N")
    group.add_argument(
        "--concurrency",
        type=positive,
        default=1,
        metavar="N",
        help="requests at once, each with its own prompt; total_decode_tok_s in the JSON line is "
        "the tokens of all of them after the last one's first token and up to the first one's last "
        "token, over the time between these two; null where the first ended before the last began",
    )
    group.add_argument("--json", action="store_true", help="print the JSON line only")
    sweep_command.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Measure and print. Raises EngineError, and ValueError for options that cannot be."""
    sweep_command.refuse_mixed(args)
    workload = Workload(args.prompt_tokens, args.generate, args.repeat, args.concurrency)
    config = config_from(args)
    if args.sweep:
        sweep_command.run(args, config, workload)
        return
    session = create_session()
    try:
        loaded = load_or_raise(session, _config(config, workload))
        result = measure(session, loaded, workload)
    finally:
        session.close()
    if not args.json:
        sys.stdout.write(_table(result))
    sys.stdout.write(json.dumps(result) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 failed, 2 wrong arguments (argparse)."""
    from engine.cli import main as cli_main

    return cli_main(["bench", *(sys.argv[1:] if argv is None else argv)])


def _config(config: EngineConfig, workload: Workload) -> EngineConfig:
    if config.context_length is None and workload.context > DEFAULT_CONTEXT_LENGTH:
        config = replace(config, context_length=workload.context)
    return workload.room_in(config)


def _table(result: dict[str, Any]) -> str:
    lines = [
        f"{result['model']}, weights {result['weights']}, KV {result['kv']}, "
        f"{result['device']}, {result['threads']} threads, kernels {result['kernels']}",
        f"prefill  {_number(result['prefill_tok_s'])} tok/s   TTFT {_number(result['ttft_ms'])} ms",
        f"decode   {_number(result['decode_tok_s'])} tok/s   "
        f"ITL p50 {_number(result['itl_ms']['p50'])} p95 {_number(result['itl_ms']['p95'])} ms",
    ]
    return "\n".join(lines) + "\n"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


if __name__ == "__main__":
    sys.exit(main())
