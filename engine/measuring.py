"""Synthetic requests, run to the end and added up: how `bench` and `bench --sweep` measure.

Random prompts of a fixed seed, greedy, end tokens ignored; one run to warm up, then medians over
the repeats, and over the requests where there are several at once.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from engine.config import EngineConfig, GenerationRequest
from engine.events import GenerationFailed, GenerationFinished, ModelLoaded, TokenEvent
from engine.session import EngineError, Session

_PROMPT_SEED = 0
_PERCENTILES = ("p50", "p90", "p95", "p99")


@dataclass(frozen=True, slots=True)
class Workload:
    """What is run: tokens of each prompt and answer, requests at once, runs after the warm-up."""

    prompt_tokens: int = 512
    generate: int = 128
    repeat: int = 5
    concurrency: int = 1

    @property
    def context(self) -> int:
        """Tokens of a whole request."""
        return self.prompt_tokens + self.generate

    def room_in(self, config: EngineConfig) -> EngineConfig:
        """The config without prefix reuse, and with a pool in which nobody is preempted."""
        config = replace(config, prefix_caching=False)
        if self.concurrency == 1:
            return config
        pool = self.concurrency * (self.context + config.block_size)
        rows = max(config.max_num_seqs, self.concurrency)
        return replace(config, kv_pool_tokens=pool, max_num_seqs=rows)


def measure(
    session: Session,
    loaded: ModelLoaded,
    workload: Workload,
    on_run: Callable[[int], object] = lambda _: None,
) -> dict[str, Any]:
    """A row as `bench --json` prints it; its fields are listed in docs/metrics.md.

    `on_run` is told how many runs are done, the warm-up counted. Raises EngineError.
    """
    vocab_size = loaded.model.vocab_size
    prompts = [
        _prompt(workload.prompt_tokens, vocab_size, index) for index in range(workload.concurrency)
    ]
    _run(session, "warm-up", prompts, workload.generate)
    on_run(1)
    runs = []
    for index in range(workload.repeat):
        runs.append(_run(session, f"run-{index}", prompts, workload.generate))
        on_run(index + 2)
    return _summary(loaded, runs)


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


def _run(session: Session, name: str, prompts: list[tuple[int, ...]], num_tokens: int) -> _Run:
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
