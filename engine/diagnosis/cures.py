"""What to try: changes of the configuration, and what bytes and FLOPs say that each would gain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from engine.config import EngineConfig
from engine.diagnosis.facts import AnswerFacts, Phase
from engine.diagnosis.verdict import MIN_STREAM_TOKENS, Finding, find, streams_slowly
from engine.events import RequestMetrics
from engine.footprint import resolve_kv_format
from engine.planner.plan import Planning
from engine.prediction import ModelWork, decode_bytes, decode_s, prefill_s

Field = Literal[
    "weight_format", "kv_format", "threads", "device", "max_num_batched_tokens", "prefix_caching"
]

MAX_SUGGESTIONS = 2
# Less would hardly be felt, and lies within the error of the prediction.
MIN_GAIN = 1.15
# The gentlest first: the one that cures is enough.
_SMALLER_WEIGHTS = ("int8", "int4")
# Smaller ones save memory, but are read hardly faster (docs/measurements.md: a step of SmolLM2 over
# 8,000 tokens takes 18.8 ms in BF16, 13.0 in INT8, 13.3 in K8V4 and 18.3 in INT4).
_SMALLER_KV = "int8"
_DENSE = {"fp32", "bf16", "fp16"}
# Fewer computed tokens do not tell a prompt's pace, as in engine.model_library.measured.
MIN_PREFILL_TOKENS = 128


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change of one field of the config.

    `gain`: how many times faster the phase would be. None: this machine has not been measured so.
    `bytes_ratio`: what a token would read, of what it reads now; None where that stays.
    `perplexity_change`: by what share it would be higher than now. None: not measured, or it stays
    (`keeps_quality`).
    """

    field: Field
    value: str | int | bool | None
    gain: float | None = None
    bytes_ratio: float | None = None
    perplexity_change: float | None = None
    keeps_quality: bool = True

    def applied(self, config: EngineConfig) -> EngineConfig:
        """The config with this change."""
        return replace(config, **{self.field: self.value})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found, and what to try, the most promising first."""

    finding: Finding
    suggestions: tuple[Suggestion, ...] = ()


@dataclass(frozen=True, slots=True)
class Expectation:
    """A suggestion that was taken: what the pace of its phase was and should become."""

    suggestion: Suggestion
    phase: Phase
    before_tok_s: float
    predicted_tok_s: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was predicted, and what then was measured."""

    expectation: Expectation
    measured_tok_s: float


def diagnose(facts: AnswerFacts) -> Diagnosis | None:
    """Judge an answer; None where there is nothing to judge."""
    finding = find(facts)
    return Diagnosis(finding, _suggestions(facts, finding)) if finding else None


def expect(facts: AnswerFacts, finding: Finding, suggestion: Suggestion) -> Expectation | None:
    """What to hold the next answer against once the suggestion is applied."""
    pace = facts.pace(finding.phase)
    if pace is None:
        return None
    predicted = pace * suggestion.gain if suggestion.gain else None
    return Expectation(suggestion, finding.phase, pace, predicted)


def outcome(expectation: Expectation, metrics: RequestMetrics) -> Outcome | None:
    """Hold an answer against what was expected; None where it is too short to tell."""
    if expectation.phase == "start":
        enough = metrics.prompt_tokens - metrics.cached_tokens >= MIN_PREFILL_TOKENS
        pace = metrics.prefill_tok_s
    else:
        enough = metrics.completion_tokens >= MIN_STREAM_TOKENS
        pace = metrics.decode_tok_s
    return Outcome(expectation, pace) if enough and pace is not None else None


def _suggestions(facts: AnswerFacts, finding: Finding) -> tuple[Suggestion, ...]:
    if finding.cause in ("queue", "company", "host"):
        return ()  # other formats do not shorten the wait for others, nor the host's own work
    faster = [*_formats(facts, finding), *_threads(facts, finding), *_devices(facts)]
    faster.sort(key=lambda each: each.gain or 0.0, reverse=True)
    return (*_settings(facts, finding), *faster)[:MAX_SUGGESTIONS]


def _settings(facts: AnswerFacts, finding: Finding) -> Iterator[Suggestion]:
    """What makes a prompt slow without need."""
    if finding.verdict != "slow to start":
        return
    default = EngineConfig(facts.wanted.model_path).max_num_batched_tokens
    if finding.cause == "chunks" and facts.wanted.max_num_batched_tokens < default:
        yield Suggestion("max_num_batched_tokens", default)
    if not facts.wanted.prefix_caching:
        yield Suggestion("prefix_caching", True)


def _formats(facts: AnswerFacts, finding: Finding) -> Iterator[Suggestion]:
    weights = [_weights(facts, finding, each) for each in _SMALLER_WEIGHTS]
    yield from _gentlest(facts, finding, [each for each in weights if each])
    if finding.phase == "stream":
        cache = _cache(facts, finding, _SMALLER_KV)
        if cache is not None and (cache.gain or 0.0) >= MIN_GAIN:
            yield cache


def _gentlest(
    facts: AnswerFacts, finding: Finding, choices: list[Suggestion]
) -> Iterator[Suggestion]:
    """The first that ends the slowness, else the fastest; of a fast run simply the first."""
    worth = [each for each in choices if (each.gain or 0.0) >= MIN_GAIN]
    if not worth:
        return
    cures = [each for each in worth if _cures(facts, finding, each.gain or 0.0)]
    yield cures[0] if cures else max(worth, key=lambda each: each.gain or 0.0)


def _cures(facts: AnswerFacts, finding: Finding, gain: float) -> bool:
    if finding.verdict == "fast":
        return True
    metrics = facts.metrics
    if finding.phase == "stream":
        return not streams_slowly((metrics.decode_tok_s or 0.0) * gain, facts)
    faster = replace(metrics, ttft_ms=(metrics.ttft_ms or 0.0) / gain)
    again = find(replace(facts, metrics=faster))
    return again is not None and again.verdict != "slow to start"


def _weights(facts: AnswerFacts, finding: Finding, name: str) -> Suggestion | None:
    phase = finding.phase
    work, then = facts.work(), facts.work(weights=name)
    planning = facts.planning
    if work is None or then is None or planning is None or name == facts.wanted.weight_format:
        return None
    config = replace(facts.wanted, weight_format=name)
    if not _fits(planning, config, facts):
        return None
    now = _seconds(facts, phase, planning, facts.wanted.weight_format, work)
    seconds = _seconds(facts, phase, planning, name, then)
    if now is None or seconds is None:
        return None
    return Suggestion(
        "weight_format",
        name,
        gain=_gain(finding, now, seconds),
        bytes_ratio=_bytes_ratio(facts, work, then) if phase == "stream" else None,
        perplexity_change=_perplexity_change(facts, name),
        keeps_quality=False,
    )


def _cache(facts: AnswerFacts, finding: Finding, name: str) -> Suggestion | None:
    work, then, planning = facts.work(), facts.work(kv=name), facts.planning
    if work is None or then is None or planning is None or name == facts.wanted.kv_format:
        return None
    weights = facts.wanted.weight_format
    now = _seconds(facts, "stream", planning, weights, work)
    seconds = _seconds(facts, "stream", planning, weights, then)
    if now is None or seconds is None:
        return None
    ratio = _bytes_ratio(facts, work, then)
    return Suggestion("kv_format", name, _gain(finding, now, seconds), ratio, keeps_quality=False)


def _devices(facts: AnswerFacts) -> Iterator[Suggestion]:
    if not facts.on_gpu and any(name.startswith("cuda") for name in facts.devices):
        yield Suggestion("device", "cuda")


def _threads(facts: AnswerFacts, finding: Finding) -> Iterator[Suggestion]:
    unbound = facts.unbound
    if facts.on_gpu or unbound is None or unbound.machine.threads <= facts.metrics.threads:
        return
    if "others" in finding.hindrances:
        return  # there is no core left for them
    gain = _threads_gain(facts, finding, unbound)
    if gain is None or gain >= MIN_GAIN:
        yield Suggestion("threads", None, gain)


def _threads_gain(facts: AnswerFacts, finding: Finding, unbound: Planning) -> float | None:
    work, weights = facts.work(), facts.wanted.weight_format
    if work is None or facts.planning is None:
        return None
    now = _seconds(facts, finding.phase, facts.planning, weights, work)
    then = _seconds(facts, finding.phase, unbound, weights, work)
    return _gain(finding, now, then) if now is not None and then is not None else None


def _gain(finding: Finding, now_s: float, then_s: float) -> float:
    """How many times faster: what passes between a stream's operations stays as it is."""
    rest = (finding.host_share or 0.0) if finding.phase == "stream" else 0.0
    return 1 / (rest + (1 - rest) * then_s / now_s)


def _seconds(
    facts: AnswerFacts, phase: Phase, planning: Planning, weights: str, work: ModelWork
) -> float | None:
    """What the phase would take: one token, or the whole prompt."""
    device = planning.machine.speeds.get(weights)
    if device is None:
        return None
    if phase == "stream":
        return decode_s(work, device, facts.mean_context)
    return prefill_s(work, device, max(1, facts.computed_tokens), facts.metrics.cached_tokens)


def _bytes_ratio(facts: AnswerFacts, now: ModelWork, then: ModelWork) -> float:
    context = facts.mean_context
    return decode_bytes(then, context) / decode_bytes(now, context)


def _fits(planning: Planning, config: EngineConfig, facts: AnswerFacts) -> bool:
    kv_format = resolve_kv_format(config.weight_format, config.kv_format)
    needed = planning.model.footprint.required_bytes(
        config, kv_format, facts.metrics.context_length
    )
    return needed <= planning.machine.budget_bytes


def _perplexity_change(facts: AnswerFacts, name: str) -> float | None:
    """Against the present weights, where both were measured under the same conditions."""
    then, now = facts.qualities.get(name), facts.qualities.get(facts.wanted.weight_format)
    if then is None:
        return None
    if now is not None:
        return then.perplexity / now.perplexity - 1
    # Dense formats are within 0.1 % of each other: against either is against the present one.
    is_dense = {facts.wanted.weight_format, then.conditions.reference_weights} <= _DENSE
    return then.change if is_dense else None
