"""Decode against what memory allows: long contexts, four requests at once, a large model.

- growth: ms a token after prompts of several lengths, starter model, context 8,192; the growth
  is compared with the time that reading the cache takes at the bandwidth measured beside it.
- four: tokens a second of four requests at once beside one, by `bench --concurrency`.
- large: a model of Llama-3.2-1B's shape with random weights made in memory: time to read as many
  bytes as its weights have, over the time of a step.

Bandwidth and steps alternate in one process; medians. See README.md.

    python -m tests.benchmarks.decode_floor [growth] [four] [large] [--threads 2] ...
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from engine.config import EngineConfig, GenerationRequest, kv_bytes
from engine.events import ModelLoaded, TokenEvent
from engine.load_blocking import load_or_raise
from engine.session import Session, create_session
from engine.starter import starter_model_path
from kernels.select import select_kernels
from tests.benchmarks.lone_step import lone_step
from tests.benchmarks.measuring import (
    QUIET_PERCENT,
    machine,
    run_for_json,
    wait_until_quiet,
)
from tests.benchmarks.random_model import LLAMA_1B, build, step_weight_bytes

CPU = torch.device("cpu")
CONTEXT_LENGTH = 8192
MAX_GROWTH, MIN_FOUR, MIN_BANDWIDTH_SHARE = 1.5, 2.2, 0.7
LARGE_CONTEXT = 64  # its cache is next to nothing beside the weights
PARTS = ("growth", "four", "large")

Row = dict[str, Any]


def main() -> int:
    """Exit code: 0 every target is met, 1 one is not."""
    args = _arguments()
    torch.set_num_threads(args.threads)
    measures = {"growth": growth, "four": four, "large": large}
    busiest, rows = 0.0, []
    for part in args.parts:
        busiest = max(busiest, wait_until_quiet())
        rows += measures[part](args)
    if busiest > QUIET_PERCENT:
        print(f"The machine was up to {busiest:.0f} % busy before a part: do not trust this.")
    report = {"machine": machine(), "threads": args.threads, "weights": args.weights}
    print(json.dumps(report | {"busy_pct": busiest, "rows": rows}))
    return 0 if all(row["met"] for row in rows) else 1


def growth(args: argparse.Namespace) -> list[Row]:
    """ms a token by context, and what it grows by over what reading the cache costs."""
    steps: dict[int, list[float]] = {context: [] for context in args.contexts}
    bandwidth: list[float] = []
    with _starter(args) as (session, loaded):
        data = torch.zeros(loaded.weight_bytes // 4)
        rng = random.Random(0)
        prompt = [rng.randrange(loaded.model.vocab_size) for _ in range(max(args.contexts))]
        _decode_ms(session, prompt[: args.contexts[0]], args.generate)
        for _ in range(args.rounds):
            for context in args.contexts:
                steps[context].append(_decode_ms(session, prompt[:context], args.generate))
                bandwidth.append(data.numel() * 4 / read_ms(data))
    return [
        _growth_row(context, steps, kv_bytes(loaded.kv_groups, 1), statistics.median(bandwidth))
        for context in args.contexts[1:]
    ]


def _growth_row(
    context: int, steps: dict[int, list[float]], kv_bytes_per_token: int, bandwidth: float
) -> Row:
    """`bandwidth` in bytes a millisecond; growth is the median of what each round gives."""
    first = next(iter(steps))
    floor_ms = (context - first) * kv_bytes_per_token / bandwidth
    gains = (here - base for here, base in zip(steps[context], steps[first], strict=True))
    ratio = statistics.median(gains) / floor_ms
    step_ms, base_ms = statistics.median(steps[context]), statistics.median(steps[first])
    print(
        f"context {context:>5}: {step_ms:.2f} ms a token, {base_ms:.2f} at {first}; growth "
        f"{ratio:.2f} x reading the cache at {bandwidth / 1e6:.1f} GB/s (at most {MAX_GROWTH})",
        flush=True,
    )
    row: Row = {"part": "growth", "context": context, "step_ms": step_ms, "base_ms": base_ms}
    return row | {"floor_ms": floor_ms, "ratio": ratio, "met": ratio <= MAX_GROWTH}


def four(args: argparse.Namespace) -> list[Row]:
    """All requests' tokens a second over one's, pairs in alternation."""
    alone, together, ratios = [], [], []
    for _ in range(args.alternations):
        wait_until_quiet()
        alone.append(_total_tok_s(args, 1))
        wait_until_quiet()
        together.append(_total_tok_s(args, 4))
        ratios.append(together[-1] / alone[-1])
    ratio = statistics.median(ratios)
    print(
        f"four requests at once: {statistics.median(together):.1f} tok/s, one "
        f"{statistics.median(alone):.1f}: {ratio:.2f} x (at least {MIN_FOUR})",
        flush=True,
    )
    row: Row = {"part": "four", "one_tok_s": alone, "four_tok_s": together, "ratio": ratio}
    return [row | {"met": ratio >= MIN_FOUR}]


def large(args: argparse.Namespace) -> list[Row]:
    """Share of the measured bandwidth that a step of Llama-3.2-1B's shape reaches."""
    kernels = select_kernels(CPU, threads=args.threads)
    rows = []
    for weights in ("int8", "int4"):
        model = build(LLAMA_1B, weights, kernels, CPU, CONTEXT_LENGTH)
        step = lone_step(model, "bf16", LARGE_CONTEXT)
        num_bytes = step_weight_bytes(model)
        data = torch.zeros(num_bytes // 4)
        steps, reads = [], []
        for _ in range(args.rounds + 1):
            steps.append(step())
            reads.append(read_ms(data))
        # The first of each is warm-up: a step is recorded in it.
        step_ms, read = statistics.median(steps[1:]), statistics.median(reads[1:])
        print(
            f"Llama-3.2-1B's shape, {weights}: {num_bytes / 1e6:,.0f} MB, {step_ms:.1f} ms a "
            f"token, {num_bytes / step_ms / 1e6:.1f} GB/s, {read / step_ms:.0%} of a torch sum",
            flush=True,
        )
        row: Row = {"part": "large", "weights": weights, "step_ms": step_ms}
        rows.append(row | {"share": read / step_ms, "met": read / step_ms >= MIN_BANDWIDTH_SHARE})
    return rows


def read_ms(data: torch.Tensor) -> float:
    """Time to read a tensor once with all threads."""
    start = time.perf_counter()
    data.sum()
    return (time.perf_counter() - start) * 1e3


def _total_tok_s(args: argparse.Namespace, concurrency: int) -> float:
    command = [sys.executable, "-m", "engine.bench", "--json", "--repeat", "1"]
    command += ["--weights", args.weights, "--threads", str(args.threads)]
    command += ["--prompt-tokens", str(args.prompt_tokens), "--generate", str(args.generate)]
    total: float | None = run_for_json([*command, "--concurrency", str(concurrency)])[
        "total_decode_tok_s"
    ]
    if total is None:
        raise SystemExit("The first answer ended before the last one began: --generate more.")
    return total


@contextmanager
def _starter(args: argparse.Namespace) -> Iterator[tuple[Session, ModelLoaded]]:
    """A session with the starter model, and what loading it told."""
    path = starter_model_path()
    if path is None:
        raise SystemExit("the starter model is not installed")
    session = create_session()
    try:
        config = EngineConfig(
            path,
            weight_format=args.weights,
            threads=args.threads,
            context_length=CONTEXT_LENGTH,
            prefix_caching=False,
        )
        yield session, load_or_raise(session, config)
    finally:
        session.close()


def _decode_ms(session: Session, prompt: list[int], tokens: int) -> float:
    """Median ms between the tokens of an answer."""
    request = GenerationRequest("r", prompt_ids=tuple(prompt), max_tokens=tokens, ignore_eos=True)
    tokens_out = [e for e in session.generate(request) if isinstance(e, TokenEvent)]
    return statistics.median(e.itl_ms for e in tokens_out if e.itl_ms is not None)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Decode against what memory allows.")
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--weights", default="int8", help="of growth and four")
    parser.add_argument("--contexts", nargs="+", type=int, default=[128, 1024, 4096, 8000])
    parser.add_argument("--rounds", type=int, default=5, help="of growth and large")
    parser.add_argument("--generate", type=int, default=64, help="tokens a request, at least 2")
    parser.add_argument("--prompt-tokens", type=int, default=128, help="of four")
    parser.add_argument("--alternations", type=int, default=5, help="of four")
    args = parser.parse_args()
    args.parts = args.parts or list(PARTS)
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}")
    if args.generate < 2 or max(args.contexts) + args.generate > CONTEXT_LENGTH:
        parser.error(f"contexts and --generate (2 or more) must fit into {CONTEXT_LENGTH} tokens")
    return args


if __name__ == "__main__":
    sys.exit(main())
