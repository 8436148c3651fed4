"""From facts to a verdict and its cause: docs/metrics.md, "Diagnosis"."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from engine.diagnosis.facts import AnswerFacts, Phase, PhaseSteps
from engine.diagnosis.machine import Hindrance
from engine.prediction import decode_s, prefill_s

Verdict = Literal["slow to start", "slow to stream", "fast"]
# queue: waited for its turn. company: steps served other chats too. chunks: the prompt came in
# pieces too small to fill the arithmetic units. host: the time between the operations. throttled:
# slowed down while it ran. interference: slower than bytes and FLOPs say. neither: fast, and
# far from both roofs. arithmetic, weights, kv: what the phase does at the device's pace.
Cause = Literal[
    "queue",
    "company",
    "chunks",
    "host",
    "throttled",
    "interference",
    "neither",
    "arithmetic",
    "weights",
    "kv",
]

# A wait of a second is where a person's flow of thought breaks (Miller 1968; Card, Moran and
# Newell 1983).
SLOW_START_MS = 1_000.0
# Silent reading is 238 words a minute (Brysbaert 2019), some 5 tokens a second; who skims takes in
# about three times as much.
SLOW_STREAM_TOK_S = 15.0
# The pace of fewer tokens is an accident.
MIN_STREAM_TOKENS = 8
# A share of a phase's time from which on it is the cause and not a part of it.
LARGE_SHARE = 0.3
# Longer than predicted by this factor is beyond what the prediction gets wrong: 0.8 to 1.3 in
# docs/measurements.md.
FAR_SLOWER = 1.6
# The last quarter's ITL against the first one's, what a longer context explains taken out.
SLOWED_DOWN = 1.3
# Below this share of its roof a phase is not limited by it.
NEAR_ROOF_PCT = 50.0
# Below this many rows a matrix product waits for its weights (BF16: peak over bandwidth is some
# hundred FLOPs a byte on a GPU, some ten on a CPU, and a weight of 2 bytes takes 2 FLOPs a row).
SMALL_CHUNK = 64


@dataclass(frozen=True, slots=True)
class TokenReads:
    """Bytes that a token of the answer read: weights, and keys and values."""

    weight_bytes: float
    kv_bytes: float

    @property
    def kv_share(self) -> float:
        """Keys' and values' part of all, 0 to 1."""
        total = self.weight_bytes + self.kv_bytes
        return self.kv_bytes / total if total else 0.0


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict, the phase that decided it and its cause.

    `expected_tok_s` is the pace that bytes and FLOPs predict for the phase; None: not known.
    `slowdown`: the last quarter's ITL over the first one's; None: too short to say. `host_share`:
    the part of the stream's time, 0 to 1, in which nothing was computed for the model.
    `hindrances`: what held the machine back during the phase, by its sensors.
    """

    verdict: Verdict
    phase: Phase
    cause: Cause
    reads: TokenReads | None = None
    expected_tok_s: float | None = None
    slowdown: float | None = None
    host_share: float | None = None
    hindrances: tuple[Hindrance, ...] = ()


def find(facts: AnswerFacts) -> Finding | None:
    """Judge an answer; None where no token came, or the cache was off on purpose."""
    ttft_ms = facts.metrics.ttft_ms
    if ttft_ms is None or not facts.metrics.use_cache:
        return None
    start, stream = ttft_ms > SLOW_START_MS, streams_slowly(facts.metrics.decode_tok_s, facts)
    waited_longer = ttft_ms >= facts.stream_ms
    if start and (waited_longer or not stream):
        return _finding(facts, "slow to start", "start")
    if stream:
        return _finding(facts, "slow to stream", "stream")
    return _finding(facts, "fast", "start" if waited_longer else "stream")


def streams_slowly(decode_tok_s: float | None, facts: AnswerFacts) -> bool:
    """Whether a pace is one that a person waits for; of a few tokens it is not said."""
    enough = facts.metrics.completion_tokens >= MIN_STREAM_TOKENS
    return enough and decode_tok_s is not None and decode_tok_s < SLOW_STREAM_TOK_S


def _finding(facts: AnswerFacts, verdict: Verdict, phase: Phase) -> Finding:
    reads = _reads(facts)
    measured = Finding(
        verdict,
        phase,
        "arithmetic",
        reads,
        _expected(facts, phase),
        _slowdown(facts, reads),
        _host_share(facts),
        facts.machine(phase).hindrances(facts.on_gpu),
    )
    cause = _start_cause(facts, measured) if phase == "start" else _stream_cause(facts, measured)
    return replace(measured, cause=cause)


def _start_cause(facts: AnswerFacts, measured: Finding) -> Cause:
    metrics = facts.metrics
    if measured.verdict == "fast":
        return "neither" if _is_far_below_roofs(facts.prefill) else "arithmetic"
    if (metrics.queue_ms or 0.0) >= LARGE_SHARE * (metrics.ttft_ms or 0.0):
        return "queue"
    if _is_shared(facts.prefill):
        return "company"
    if _rows_a_step(facts.prefill) < SMALL_CHUNK and facts.prefill.count > 1:
        return "chunks"
    if _is_held_up(metrics.prefill_tok_s, measured):
        return "interference"
    return "arithmetic"


def _stream_cause(facts: AnswerFacts, measured: Finding) -> Cause:
    is_slow, reads = measured.verdict != "fast", measured.reads
    if is_slow and _is_shared(facts.decode):
        return "company"
    if (measured.host_share or 0.0) >= LARGE_SHARE:
        return "host"
    if is_slow and (measured.slowdown or 0.0) >= SLOWED_DOWN:
        return "throttled"
    if is_slow and _is_held_up(facts.metrics.decode_tok_s, measured):
        return "interference"
    if not is_slow and _is_far_below_roofs(facts.decode):
        return "neither"
    return "kv" if reads is not None and reads.kv_share > 0.5 else "weights"


def _is_far_below_roofs(steps: PhaseSteps) -> bool:
    shares = (steps.mfu_pct, steps.mbu_pct)
    return all(share is not None and share < NEAR_ROOF_PCT for share in shares)


def _is_shared(steps: PhaseSteps) -> bool:
    return steps.seconds > 0 and steps.shared_s >= LARGE_SHARE * steps.seconds


def _rows_a_step(steps: PhaseSteps) -> float:
    return steps.tokens / steps.count if steps.count else float("inf")


def _is_held_up(pace: float | None, measured: Finding) -> bool:
    """Far slower than predicted; where nothing can be predicted, when the sensors say why."""
    expected = measured.expected_tok_s
    if expected is None:
        return any(each != "battery" for each in measured.hindrances)
    return pace is not None and pace * FAR_SLOWER < expected


def _host_share(facts: AnswerFacts) -> float | None:
    total_s = facts.stream_ms / 1e3
    steps = facts.decode
    busy_s = steps.seconds if steps.busy_s is None else steps.busy_s
    if total_s <= 0 or steps.count == 0:
        return None
    return max(0.0, 1 - busy_s / total_s)


def _reads(facts: AnswerFacts) -> TokenReads | None:
    """By the engine's own count, where nobody else's cache is in it."""
    steps, metrics = facts.decode, facts.metrics
    if steps.count == 0 or _is_shared(steps):
        return None
    most = metrics.prompt_tokens + metrics.completion_tokens
    a_step = steps.bytes / steps.count
    kv = min(a_step, metrics.kv_bytes_used * facts.mean_context / max(1, most))
    return TokenReads(a_step - kv, kv)


def _expected(facts: AnswerFacts, phase: Phase) -> float | None:
    work, planning = facts.work(), facts.planning
    device = planning.machine.speeds.get(facts.wanted.weight_format) if planning else None
    if work is None or device is None:
        return None
    if phase == "stream":
        return 1 / decode_s(work, device, facts.mean_context)
    tokens = max(1, facts.computed_tokens)
    return tokens / prefill_s(work, device, tokens, facts.metrics.cached_tokens)


def _slowdown(facts: AnswerFacts, reads: TokenReads | None) -> float | None:
    """By medians, so that one late token says nothing."""
    itl_ms = facts.itl_ms
    quarter = len(itl_ms) // 4
    if quarter < MIN_STREAM_TOKENS:
        return None
    first, last = (float(np.median(part)) for part in (itl_ms[:quarter], itl_ms[-quarter:]))
    if first <= 0:
        return None
    # Over the answer the cache grows by this share of what a token reads.
    grown = facts.metrics.completion_tokens / max(1, facts.mean_context)
    explained = 1 + (reads.kv_share * grown if reads else 0.0)
    return last / first / explained
