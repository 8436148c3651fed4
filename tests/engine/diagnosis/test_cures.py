"""What is suggested, what it is said to gain, and how it is held against the next answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.diagnosis.cures import (
    MAX_SUGGESTIONS,
    MIN_GAIN,
    Diagnosis,
    Suggestion,
    diagnose,
    expect,
    outcome,
)
from engine.diagnosis.facts import AnswerFacts
from engine.prediction import decode_s
from engine.quality.kept import Conditions, KeptQuality
from tests.engine.diagnosis.stories import BITS, KV_TOKEN, answer, planning

UNDER = Conditions("text.txt", "0", 1_000, 512, 256, "prefill", "Model", "fp32")


def diagnosed(facts: AnswerFacts) -> Diagnosis:
    diagnosis = diagnose(facts)
    assert diagnosis is not None
    return diagnosis


def suggested(facts: AnswerFacts) -> dict[tuple[str, object], Suggestion]:
    return {(each.field, each.value): each for each in diagnosed(facts).suggestions}


def test_gain_of_a_format_is_that_of_the_prediction() -> None:
    """The factor is the time of a token now over that in the other format, cache included."""
    facts = answer("fp32", tokens=500)
    then, now = facts.work(weights="int8"), facts.work()
    assert now is not None
    assert then is not None
    assert then.kv_bytes_per_token * 2 == now.kv_bytes_per_token  # "auto" follows the weights
    device = planning().machine.speeds["int8"]
    expected = decode_s(now, device, facts.mean_context) / decode_s(then, device, 450)
    # A twentieth of the story's stream passes between the operations, and stays.
    assert suggested(facts)["weight_format", "int8"].gain == pytest.approx(
        1 / (0.05 + 0.95 / expected)
    )


def test_the_gentlest_cure_is_suggested() -> None:
    """INT8 where that ends the slowness, INT4 where only that does."""
    assert ("weight_format", "int8") in suggested(answer("fp32", tokens=500))
    slower = planning(bandwidth=12e9)
    assert ("weight_format", "int4") in suggested(answer("bf16", tokens=500, plan=slower))


def test_a_fast_run_may_be_faster_still() -> None:
    """From INT8 the next step is INT4, which reads 0.6 of the bytes."""
    fast = planning(bandwidth=60e9, flops=2e12)
    choice = suggested(answer("int8", tokens=200, plan=fast))["weight_format", "int4"]
    assert choice.bytes_ratio == pytest.approx(0.6, abs=0.05)


def test_a_long_context_gets_a_smaller_cache() -> None:
    """Where the cache is most of the bytes, its format is the cure."""
    facts = answer("int8", prompt=20_000, cached=19_900, tokens=500)
    assert diagnosed(facts).suggestions[0].field == "kv_format"


def test_more_threads_are_suggested_with_their_gain() -> None:
    """One thread of two: what both would read at."""
    one = planning(1, bandwidth=10e9)
    facts = answer("bf16", tokens=200, plan=one, unbound=planning(2, bandwidth=19e9))
    choice = suggested(facts)["threads", None]
    assert choice.gain == pytest.approx(1 / (0.05 + 0.95 / 1.9), rel=0.02)
    assert choice.keeps_quality


def test_threads_that_were_never_measured_have_no_gain() -> None:
    """They are suggested after what is known, without a figure."""
    facts = answer("int4", plan=planning(1, 3e9), tokens=200)
    facts = replace(facts, unbound=planning(2, is_measured=False))
    choices = diagnosed(facts).suggestions
    assert (choices[-1].field, choices[-1].gain) == ("threads", None)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_company_is_not_cured_by_formats(phase: str) -> None:
    """Who waits for other chats is told so, and offered nothing that would not help."""
    facts = answer("fp32", prompt=4_000, tokens=20 if phase == "prefill" else 900)
    steps = facts.prefill if phase == "prefill" else facts.decode
    facts = replace(facts, **{phase: replace(steps, shared_s=steps.seconds)})
    assert diagnosed(facts).suggestions == ()


def test_small_chunks_are_made_larger() -> None:
    """The step's budget goes back to what the engine takes by itself."""
    facts = answer(prompt=4_000, tokens=20)
    wanted = replace(facts.wanted, max_num_batched_tokens=16, prefix_caching=False)
    facts = replace(facts, wanted=wanted, prefill=replace(facts.prefill, count=250))
    assert ("max_num_batched_tokens", 512) in suggested(facts)
    assert ("prefix_caching", True) in suggested(facts)


def test_what_does_not_fit_is_not_suggested() -> None:
    """A format for which there is no memory is no cure."""
    facts = answer("fp32", tokens=500, plan=planning(available=1_000))
    assert "weight_format" not in [field for field, _ in suggested(facts)]


def test_without_a_plan_there_is_a_verdict_all_the_same() -> None:
    """Sizes that could not be read leave the suggestions out, not the verdict."""
    facts = replace(answer("fp32", tokens=500), planning=None)
    assert diagnosed(facts).finding.verdict == "slow to stream"
    assert diagnosed(facts).suggestions == ()


def test_quality_is_told_against_the_present_weights() -> None:
    """Both measured: their ratio. Dense weights: the change against the reference."""
    kept = {"int8": KeptQuality(UNDER, 20.0, 19.0), "int4": KeptQuality(UNDER, 21.0, 19.0)}
    fast = planning(bandwidth=60e9, flops=2e12)
    facts = answer("int8", tokens=200, plan=fast, qualities=kept)
    assert suggested(facts)["weight_format", "int4"].perplexity_change == pytest.approx(0.05)
    facts = answer("bf16", tokens=200, plan=fast, qualities=kept)
    change = suggested(facts)["weight_format", "int8"].perplexity_change
    assert change == pytest.approx(1 / 19)
    facts = answer("bf16", tokens=200, plan=fast)
    assert suggested(facts)["weight_format", "int8"].perplexity_change is None


@given(
    st.sampled_from(["fp32", "bf16", "int8"]),
    st.integers(1, 8_000),
    st.integers(8, 600),
    st.floats(2e9, 2e12),
    st.floats(0.5, 3.0),
)
def test_gain_is_bounded_by_the_bytes(
    weights: str, prompt: int, tokens: int, bandwidth: float, factor: float
) -> None:
    """Where all formats reach the same share of the peaks, nothing gains more than its bytes."""
    plan = planning(bandwidth=bandwidth, device="cuda")
    facts = answer(weights, prompt, tokens=tokens, stream_factor=factor, plan=plan)
    choices = diagnosed(facts).suggestions
    assert len(choices) <= MAX_SUGGESTIONS
    for each in choices:
        if each.gain is None or each.bytes_ratio is None:
            continue
        assert each.gain >= MIN_GAIN
        weight_ratio = BITS[weights] / BITS[str(each.value)]
        kv_ratio = KV_TOKEN["fp32"] / KV_TOKEN["int8"]
        assert each.gain <= max(weight_ratio, kv_ratio) * (1 + 1e-9)
        # The cache is read at a lower share of the peak than the weights: 0.6 against 0.8.
        assert each.gain <= 0.8 / 0.6 / each.bytes_ratio


def test_prediction_beside_measurement() -> None:
    """The next answer's pace is held against the present one times the gain."""
    facts = answer("fp32", tokens=500)
    diagnosis = diagnosed(facts)
    choice = suggested(facts)["weight_format", "int8"]
    expectation = expect(facts, diagnosis.finding, choice)
    assert expectation is not None
    pace = facts.metrics.decode_tok_s or 0.0
    assert expectation.before_tok_s == pace
    assert expectation.predicted_tok_s == pytest.approx(pace * (choice.gain or 0.0))
    after = answer("int8", tokens=300)
    held = outcome(expectation, after.metrics)
    assert held is not None
    assert held.measured_tok_s == pytest.approx(expectation.predicted_tok_s, rel=0.15)


def test_an_answer_too_short_settles_nothing() -> None:
    """A few tokens, or a prompt that came from the cache, are not held against a prediction."""
    facts = answer("fp32", tokens=500)
    choice = suggested(facts)["weight_format", "int8"]
    stream = expect(facts, diagnosed(facts).finding, choice)
    assert stream is not None
    assert outcome(stream, answer("int8", tokens=3).metrics) is None
    start = replace(stream, phase="start")
    assert outcome(start, answer("int8", prompt=500, cached=480).metrics) is None
    assert outcome(start, answer("int8", prompt=500).metrics) is not None


def test_a_change_is_one_field() -> None:
    """Applied, a suggestion changes what it names and nothing else."""
    wanted = answer().wanted
    assert Suggestion("threads", None).applied(wanted) == replace(wanted, threads=None)
