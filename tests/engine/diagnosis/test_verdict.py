"""The verdict and its cause, of synthetic answers that are slow in one way each."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.diagnosis.cures import diagnose
from engine.diagnosis.facts import AnswerFacts, phase_steps
from engine.diagnosis.verdict import SLOW_START_MS, SLOW_STREAM_TOK_S, find
from engine.events import StageTimes, StepStats
from tests.engine.diagnosis.stories import answer, planning

FAST_MACHINE = planning(bandwidth=200e9, flops=20e12)


def judged(facts: AnswerFacts) -> tuple[str, str]:
    """Verdict and cause."""
    finding = find(facts)
    assert finding is not None
    return finding.verdict, finding.cause


def shared(facts: AnswerFacts, phase: str) -> AnswerFacts:
    """The same, half of the phase's time in steps with others."""
    steps = facts.prefill if phase == "prefill" else facts.decode
    return replace(facts, **{phase: replace(steps, shared_s=steps.seconds / 2)})


def test_a_long_prompt_is_slow_to_start() -> None:
    """4,000 tokens and a short answer: the arithmetic of the prompt."""
    assert judged(answer(prompt=4_000, tokens=20)) == ("slow to start", "arithmetic")


def test_waiting_for_a_turn_is_slow_to_start() -> None:
    """Most of the wait lay before the first step."""
    assert judged(answer(tokens=20, queue_ms=5_000.0)) == ("slow to start", "queue")


def test_company_makes_a_start_slow() -> None:
    """The prompt was read in steps that served other chats."""
    facts = shared(answer(prompt=4_000, tokens=20), "prefill")
    assert judged(facts) == ("slow to start", "company")


def test_small_chunks_make_a_start_slow() -> None:
    """16 tokens a step read all the weights 250 times."""
    facts = answer(prompt=4_000, tokens=20)
    facts = replace(facts, prefill=replace(facts.prefill, count=250))
    assert judged(facts) == ("slow to start", "chunks")


def test_a_start_far_below_what_is_possible() -> None:
    """Twice the predicted time is not the prompt's fault."""
    facts = answer(prompt=4_000, tokens=20, start_factor=2.0)
    assert judged(facts) == ("slow to start", "interference")


def test_wide_weights_are_slow_to_stream() -> None:
    """FP32 and a long answer: each token reads 4 GB."""
    assert judged(answer("fp32", tokens=500)) == ("slow to stream", "weights")


def test_a_long_context_is_slow_to_stream() -> None:
    """With 30,000 tokens the cache is more than the weights."""
    facts = answer("int8", prompt=20_000, cached=19_900, tokens=500)
    assert judged(facts) == ("slow to stream", "kv")


def test_company_makes_a_stream_slow() -> None:
    """Tokens that came out of steps with other chats."""
    facts = shared(answer("fp32", tokens=500), "decode")
    assert judged(facts) == ("slow to stream", "company")


def test_the_host_makes_a_stream_slow() -> None:
    """Half of the time nothing was computed for the model."""
    facts = answer("fp32", tokens=500)
    facts = replace(facts, decode=replace(facts.decode, busy_s=facts.decode.seconds / 2))
    assert judged(facts) == ("slow to stream", "host")


def test_slowing_down_on_the_way_is_throttling() -> None:
    """The last tokens took twice as long as the first ones."""
    facts = answer("fp32", tokens=500)
    itl_ms = facts.itl_ms[:250] + tuple(2 * each for each in facts.itl_ms[250:])
    assert judged(replace(facts, itl_ms=itl_ms)) == ("slow to stream", "throttled")


def test_growth_of_the_context_is_not_throttling() -> None:
    """A cache that grows from nothing slows a stream by itself."""
    facts = answer("int8", prompt=10, tokens=20_000, stream_factor=1.2)
    itl_ms = tuple(60.0 + 60.0 * n / 20_000 for n in range(19_999))
    assert judged(replace(facts, itl_ms=itl_ms))[1] != "throttled"


def test_a_stream_far_below_what_is_possible() -> None:
    """Steady, alone, and yet half as fast as the bytes allow."""
    facts = answer("fp32", tokens=500, stream_factor=2.0)
    assert judged(facts) == ("slow to stream", "interference")


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        (answer("int8", plan=FAST_MACHINE), "weights"),
        (answer("int4", prompt=20_000, cached=19_990, plan=FAST_MACHINE), "kv"),
        (answer("int8", prompt=900, tokens=2, plan=FAST_MACHINE), "arithmetic"),
    ],
)
def test_a_fast_run_is_limited_by_something(facts: AnswerFacts, cause: str) -> None:
    """What limits a fast run is said, and that it is fast."""
    assert judged(facts) == ("fast", cause)


@pytest.mark.parametrize(("tokens", "phase"), [(100, "stream"), (2, "start")])
def test_far_from_both_roofs_nothing_is_blamed(tokens: int, phase: str) -> None:
    """A fast run below half of bandwidth and arithmetic is not said to be limited by either."""
    facts = answer("int8", prompt=900, tokens=tokens, plan=FAST_MACHINE)
    part = "decode" if phase == "stream" else "prefill"
    low = replace(getattr(facts, part), mfu_pct=11.0, mbu_pct=37.0)
    found = find(replace(facts, **{part: low}))
    assert found is not None
    assert (found.verdict, found.phase, found.cause) == ("fast", phase, "neither")


def test_of_both_the_longer_wait_decides() -> None:
    """Slow in both ways: a short answer waited to start, a long one streamed."""
    short, long = (answer("fp32", prompt=4_000, tokens=n) for n in (10, 1_000))
    assert judged(short)[0] == "slow to start"
    assert judged(long)[0] == "slow to stream"


def test_a_few_tokens_say_nothing_of_the_pace() -> None:
    """Three slow tokens are no slow stream."""
    assert judged(answer("fp32", prompt=20, tokens=3))[0] == "fast"


def test_nothing_to_judge() -> None:
    """No token came, or the cache was off on purpose."""
    facts = answer()
    assert find(replace(facts, metrics=replace(facts.metrics, ttft_ms=None))) is None
    assert find(replace(facts, metrics=replace(facts.metrics, use_cache=False))) is None


_facts = st.builds(
    answer,
    st.sampled_from(["fp32", "bf16", "int8", "int4"]),
    prompt=st.integers(1, 8_000),
    tokens=st.integers(1, 600),
    start_factor=st.floats(0.3, 6.0),
    stream_factor=st.floats(0.3, 6.0),
    queue_ms=st.floats(0.0, 4_000.0),
    plan=st.sampled_from([planning(), planning(1, 9e9, 90e9), FAST_MACHINE]),
    is_first=st.booleans(),
)


@given(_facts, st.floats(0, 1), st.floats(0, 1))
def test_a_fast_run_is_never_called_slow(facts: AnswerFacts, company: float, busy: float) -> None:
    """Whatever else went on: a start within a second and a readable pace are fast."""
    facts = replace(
        facts,
        prefill=replace(facts.prefill, shared_s=company * facts.prefill.seconds),
        decode=replace(
            facts.decode,
            shared_s=company * facts.decode.seconds,
            busy_s=busy * facts.decode.seconds,
        ),
    )
    diagnosis = diagnose(facts)
    assert diagnosis is not None
    metrics, verdict = facts.metrics, diagnosis.finding.verdict
    assert metrics.ttft_ms is not None
    starts_fast = metrics.ttft_ms <= SLOW_START_MS
    pace = metrics.decode_tok_s
    streams_fast = pace is None or pace >= SLOW_STREAM_TOK_S
    if starts_fast:
        assert verdict != "slow to start"
    if streams_fast:
        assert verdict != "slow to stream"
    if not starts_fast and streams_fast:
        assert verdict == "slow to start"


def test_steps_are_added_up() -> None:
    """Time-weighted shares; stages count only where every step has them."""
    stages = StageTimes(4.0, 3.0, 1.0, 0.5, 0.1, 1.4)
    one = StepStats(1, 0, "decode", 1, 1, 10.0, 10, 100, 2.0, 80.0, stages)
    other = replace(one, step_id=2, num_seqs=2, num_tokens=2, step_ms=30.0, mbu_pct=40.0)
    total = phase_steps([one, other])
    assert (total.count, total.tokens, total.bytes) == (2, 3, 200)
    assert (total.seconds, total.shared_s) == (pytest.approx(0.04), pytest.approx(0.03))
    assert total.mbu_pct == pytest.approx(50.0)
    assert total.busy_s == pytest.approx(0.016)
    assert phase_steps([one, replace(other, stages=None)]).busy_s is None
    assert phase_steps([]).mfu_pct is None
