"""`phasescope bench`: the engine measured without a window. `python -m engine.bench` is the same.

Synthetic prompts, greedy, end tokens ignored, prefix reuse off; one run to warm up, then medians
over the repeats, and over the requests where there are several at once. The last line on stdout is
one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from engine.cli_options import add_common_options, config_from
from engine.config import DEFAULT_CONTEXT_LENGTH, EngineConfig, GenerationRequest
from engine.events import GenerationFailed, GenerationFinished, ModelLoaded, TokenEvent
from engine.load_blocking import load_or_raise
from engine.session import EngineError, Session, create_session

_PROMPT_SEED = 0
_PERCENTILES = ("p50", "p90", "p95", "p99")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bench`."""
    add_common_options(parser)
    group = parser.add_argument_group("measuring")
    group.add_argument("--prompt-tokens", type=_positive, default=512, metavar="N")
    group.add_argument("--generate", type=_positive, default=128, metavar="N")
    group.add_argument("--repeat", type=_positive, default=5, metavar="N")
    group.add_argument(
        "--concurrency",
        type=_positive,
        default=1,
        metavar="N",
        help="requests at once, each with its own prompt; total_decode_tok_s in the JSON line is "
        "the tokens of all of them after the last one's first token and up to the first one's last "
        "token, over the time between these two; null where the first ended before the last began",
    )
    group.add_argument("--json", action="store_true", help="print the JSON line only")


def run(args: argparse.Namespace) -> None:
    """Measure and print. Raises EngineError."""
    session = create_session()
    try:
        loaded = load_or_raise(session, _config(args))
        vocab_size = loaded.model.vocab_size
        prompts = [_prompt(args.prompt_tokens, vocab_size, i) for i in range(args.concurrency)]
        _measure(session, "warm-up", prompts, args.generate)
        runs = [_measure(session, f"run-{i}", prompts, args.generate) for i in range(args.repeat)]
    finally:
        session.close()
    result = _summary(loaded, runs)
    if not args.json:
        sys.stdout.write(_table(result))
    sys.stdout.write(json.dumps(result) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 failed, 2 wrong arguments (argparse)."""
    from engine.cli import main as cli_main

    return cli_main(["bench", *(sys.argv[1:] if argv is None else argv)])


def _config(args: argparse.Namespace) -> EngineConfig:
    config = replace(config_from(args), prefix_caching=False)
    needed = args.prompt_tokens + args.generate
    if config.context_length is None and needed > DEFAULT_CONTEXT_LENGTH:
        config = replace(config, context_length=needed)
    if args.concurrency == 1:
        return config
    # Every request keeps its blocks to the end: nobody may be preempted while time is taken.
    pool = args.concurrency * (needed + config.block_size)
    rows = max(config.max_num_seqs, args.concurrency)
    return replace(config, kv_pool_tokens=pool, max_num_seqs=rows)


def _prompt(num_tokens: int, vocab_size: int, index: int) -> tuple[int, ...]:
    rng = random.Random(_PROMPT_SEED + index)
    return tuple(rng.randrange(vocab_size) for _ in range(num_tokens))


@dataclass(slots=True)
class _Run:
    """What the requests of one run came to; `stamps_ns` says by request when each token came."""

    itl_ms: list[float] = field(default_factory=list)
    finished: list[GenerationFinished] = field(default_factory=list)
    stamps_ns: dict[str, list[int]] = field(default_factory=dict)

    @property
    def total_decode_tok_s(self) -> float | None:
        """Tokens a second of all requests together while all of them decoded."""
        begin = max(stamps[0] for stamps in self.stamps_ns.values())
        end = min(stamps[-1] for stamps in self.stamps_ns.values())
        if end <= begin:
            return None  # the first one ended before the last one began to decode
        everything = chain.from_iterable(self.stamps_ns.values())
        return sum(begin < stamp <= end for stamp in everything) / (end - begin) * 1e9


def _measure(session: Session, name: str, prompts: list[tuple[int, ...]], num_tokens: int) -> _Run:
    for index, prompt in enumerate(prompts):
        request = GenerationRequest(
            f"{name}-{index}", prompt_ids=prompt, max_tokens=num_tokens, ignore_eos=True
        )
        session.submit(request)
    run = _Run()
    while session.has_work():
        for event in session.step():
            if isinstance(event, TokenEvent):
                run.stamps_ns.setdefault(event.request_id, []).append(event.t_ns)
                if event.itl_ms is not None:
                    run.itl_ms.append(event.itl_ms)
            elif isinstance(event, GenerationFinished):
                run.finished.append(event)
            elif isinstance(event, GenerationFailed):
                raise EngineError(event.what, event.why, event.next)
    if len(run.finished) != len(prompts):
        raise RuntimeError("the session ended a request without saying so")
    return run


def _summary(loaded: ModelLoaded, runs: list[_Run]) -> dict[str, Any]:
    metrics = [finished.metrics for run in runs for finished in run.finished]
    last = metrics[-1]

    def median(name: str) -> float | None:
        values = [getattr(m, name) for m in metrics if getattr(m, name) is not None]
        return statistics.median(values) if values else None

    means = [statistics.fmean(run.itl_ms) for run in runs if run.itl_ms]
    totals = [total for run in runs if (total := run.total_decode_tok_s) is not None]
    itl = {p: median(f"itl_{p}_ms") for p in _PERCENTILES}
    itl["mean"] = statistics.median(means) if means else None
    return {
        "model": last.model,
        "parameters": loaded.model.parameters,
        "device": last.device,
        "weights": last.weight_format,
        "kv": last.kv_format,
        "threads": last.threads,
        "prompt_tokens": last.prompt_tokens,
        "completion_tokens": last.completion_tokens,
        "load_s": loaded.load_s,
        "warmup_s": loaded.warmup_s,
        "ttft_ms": median("ttft_ms"),
        "prefill_tok_s": median("prefill_tok_s"),
        "decode_tok_s": median("decode_tok_s"),
        "itl_ms": itl,
        "weight_bytes": last.weight_bytes,
        "kv_bytes_used": last.kv_bytes_used,
        "kv_bytes_allocated": last.kv_bytes_allocated,
        "kv_bytes_reserved": last.kv_bytes_reserved,
        "peak_memory_bytes": last.peak_memory_bytes,
        "kernels": last.kernels,
        "concurrency": len(runs[0].finished),
        "total_decode_tok_s": statistics.median(totals) if totals else None,
    }


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


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
