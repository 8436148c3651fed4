"""The session: events and their order, ends, limits, cancel, prefix reuse, loading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.config import EngineConfig, GenerationRequest, Message, SamplingParams
from engine.events import (
    Event,
    GenerationFailed,
    GenerationFinished,
    LoadFailed,
    LoadProgress,
    ModelLoaded,
    PrefillDone,
    PrefillProgress,
    StepStats,
    TokenEvent,
)
from engine.loading.checkpoint import open_checkpoint
from engine.local_session import LocalSession
from engine.peaks import Roofs
from engine.session import EngineError
from kernels.stages import Stage, StageClock
from tests.engine.conftest import PEAKS
from tests.engine.rig import GOLDEN

Opener = Callable[..., LocalSession]
PROMPT = tuple(range(40, 61))


def request(name: str = "r", **options: object) -> GenerationRequest:
    """Greedy, from ids, twelve tokens, end tokens ignored unless said otherwise."""
    settings: dict[str, object] = {
        "prompt_ids": PROMPT,
        "max_tokens": 12,
        "ignore_eos": True,
        **options,
    }
    return GenerationRequest(name, **settings)  # type: ignore[arg-type]


def of(kind: type, events: list[Event]) -> list:
    """Events of a kind."""
    return [event for event in events if isinstance(event, kind)]


def finished(events: list[Event]) -> GenerationFinished:
    """The one end of the run."""
    [end] = of(GenerationFinished, events)
    return end


def test_events_tell_the_whole_story_in_order(open_session: Opener) -> None:
    """Progress, done, tokens one a step, finish; stamps ascend and metrics agree with them."""
    session = open_session(max_num_batched_tokens=8)
    events = list(session.generate(request()))
    progress, tokens = of(PrefillProgress, events), of(TokenEvent, events)
    assert [p.tokens_done for p in progress] == [8, 16, 21]
    assert {p.tokens_total for p in progress} == {21}
    [done] = of(PrefillDone, events)
    assert events.index(progress[-1]) < events.index(done) < events.index(tokens[0])
    assert [t.index for t in tokens] == list(range(12))
    assert [t.step_id for t in tokens] == list(range(2, 14))
    assert [t.context_tokens for t in tokens] == list(range(22, 34))
    stamps = [t.t_ns for t in tokens]
    assert stamps == sorted(stamps)
    itl = np.diff(stamps) / 1e6
    assert tokens[0].itl_ms is None
    assert [t.itl_ms for t in tokens[1:]] == pytest.approx(itl.tolist())
    metrics = finished(events).metrics
    assert metrics.ttft_ms == pytest.approx((stamps[0] - metrics.t_send_ns) / 1e6)
    assert metrics.itl_p95_ms == pytest.approx(np.percentile(itl, 95))
    assert metrics.tpot_ms == pytest.approx(itl.mean())
    assert metrics.decode_tok_s == pytest.approx(1e3 / itl.mean())
    assert metrics.prompt_tokens == 21
    assert metrics.completion_tokens == 12
    assert metrics.finish_reason == "length"


def test_kv_bytes_follow_the_formula(open_session: Opener) -> None:
    """2 x layers x KV heads x head_dim x bytes a token; blocks of 16 allocated."""
    session = open_session(kv_format="bf16")
    events = list(session.generate(request()))
    info = session.inspect(str(GOLDEN / "tiny" / "gqa"))
    per_token = 2 * info.num_layers * info.num_kv_heads * info.head_dim * 2
    tokens = of(TokenEvent, events)
    # The token just sampled is not in the cache yet.
    assert [t.kv_bytes_used for t in tokens] == [(20 + n) * per_token for n in range(1, 13)]
    assert {t.kv_bytes_allocated for t in tokens} == {32 * per_token}
    assert finished(events).metrics.kv_bytes_reserved == (256 + 16) * per_token  # the null block


def test_step_stats_count_tokens_flops_and_bytes(open_session: Opener) -> None:
    """A decode step reads every weight once and the cache once; its stages fit into its time."""
    session = open_session()
    steps = of(StepStats, list(session.generate(request())))
    info = session.inspect(str(GOLDEN / "tiny" / "gqa"))
    assert [s.phase for s in steps] == ["prefill"] + ["decode"] * 11
    assert [s.num_tokens for s in steps] == [21] + [1] * 11
    context = 22 + 4
    fifth = steps[5]
    shapes = {
        t.name: t.shape for t in open_checkpoint(str(GOLDEN / "tiny" / "gqa")).tensors.values()
    }
    matrices = sum(
        shape[0] * shape[1]
        for name, shape in shapes.items()
        if len(shape) == 2 and name != "model.embed_tokens.weight"
    )
    attention = 4 * info.num_layers * info.num_heads * info.head_dim * context
    assert fifth.flops == 2 * matrices + attention
    kv_per_token = 2 * info.num_layers * info.num_kv_heads * info.head_dim * 4
    assert fifth.bytes == 4 * matrices + (context + 1) * kv_per_token
    for step in steps:
        assert step.stages is not None
        parts = step.stages
        total = parts.attention_ms + parts.ffn_ms + parts.head_ms + parts.sample_ms
        assert 0 < total + parts.detokenize_ms + parts.host_ms <= step.step_ms * 1.001
        seconds = step.step_ms / 1e3
        bandwidth, matmul = PEAKS.bandwidth_at(step.bytes), PEAKS.matmul_flops["fp32"]
        assert step.mbu_pct == pytest.approx(100 * step.bytes / seconds / bandwidth)
        assert step.mfu_pct == pytest.approx(100 * step.flops / seconds / matmul)


def test_stream_text_is_the_decoded_whole(open_session: Opener) -> None:
    """Random bytes, so broken characters too: pieces and tail make up decode(all)."""
    session = open_session()
    events = list(session.generate(request(max_tokens=40)))
    end = finished(events)
    text = "".join(t.text for t in of(TokenEvent, events)) + end.text_tail
    loaded = session._loaded
    assert loaded is not None
    assert text == loaded.tokenizer.decode(end.token_ids)
    assert end.prompt_ids == PROMPT


def test_end_tokens_stop_and_are_not_part_of_the_answer(open_session: Opener) -> None:
    """Any id of the union of tokenizer, config and generation config ends the answer."""
    session = open_session()
    free = finished(list(session.generate(request(max_tokens=60)))).token_ids
    ends = [i for i, token in enumerate(free) if token in (257, 259)]
    if not ends:  # the greedy run never says one: let every token be an end token instead
        loaded = session._loaded
        assert loaded is not None
        loaded.tokenizer.eos_token_ids = frozenset({free[4]})
        ends = [free.index(free[4])]
    events = list(session.generate(request(max_tokens=60, ignore_eos=False)))
    end = finished(events)
    assert end.finish_reason == "stop"
    assert end.token_ids == free[: ends[0]]


def test_a_stop_string_ends_the_answer_before_it(open_session: Opener) -> None:
    """The text stops before the string, which may span tokens."""
    session = open_session()
    events = list(session.generate(request(max_tokens=40)))
    text = "".join(t.text for t in of(TokenEvent, events)) + finished(events).text_tail
    stop = text[6:9]
    events = list(session.generate(request(max_tokens=40, sampling=SamplingParams(stop=(stop,)))))
    cut = "".join(t.text for t in of(TokenEvent, events)) + finished(events).text_tail
    assert finished(events).finish_reason == "stop"
    assert cut == text[: text.index(stop)]


def test_the_context_is_a_real_limit(open_session: Opener) -> None:
    """A full context ends the answer and says so; a longer prompt is refused in words."""
    session = open_session(context_length=32)
    end = finished(list(session.generate(request(max_tokens=None))))
    assert end.finish_reason == "context_full"
    assert len(end.token_ids) == 32 - len(PROMPT)
    [event] = session.generate(request(prompt_ids=tuple(range(32))))
    assert isinstance(event, GenerationFailed)
    assert "32 tokens" in event.what
    assert event.next


def test_same_seed_same_tokens_whatever_runs_beside(open_session: Opener) -> None:
    """Random numbers belong to (seed, position), not to the order of requests."""
    session = open_session()
    sampling = SamplingParams(temperature=1.0, seed=5)
    alone = finished(list(session.generate(request(sampling=sampling)))).token_ids
    other = finished(list(session.generate(request(sampling=replace(sampling, seed=6))))).token_ids
    assert alone != other
    session.submit(request("noise", prompt_ids=(1, 2, 3), sampling=replace(sampling, seed=9)))
    session.step()
    session.submit(request("r", sampling=sampling))
    events: list[Event] = []
    while session.has_work():
        events += session.step()
    ends = {e.request_id: e.token_ids for e in of(GenerationFinished, events)}
    assert ends["r"] == alone


@pytest.mark.parametrize("num_tokens", range(1, 20))
def test_the_next_turn_finds_the_whole_last_turn(open_session: Opener, num_tokens: int) -> None:
    """cached_tokens is at least prompt and answer of the turn before, rounded down to blocks."""
    session = open_session()
    first = finished(list(session.generate(request(max_tokens=num_tokens))))
    history = first.prompt_ids + first.token_ids
    second = finished(list(session.generate(request(prompt_ids=(*history, 7, 8, 9)))))
    assert second.metrics.cached_tokens >= len(history) // 16 * 16


def test_history_keeps_the_ids_that_were_computed(open_session: Opener) -> None:
    """Through the template: sampled ids are not re-encoded, so the cache is found."""
    session = open_session()
    ask = Message("user", "hello there, tell me something")
    options = {"prompt_ids": None, "max_tokens": 30}
    first = finished(list(session.generate(request(messages=(ask,), **options))))
    text = "a text that the ids do not spell"
    answer = Message("assistant", text, first.token_ids)
    follow = Message("user", "go on")
    second = finished(list(session.generate(request(messages=(ask, answer, follow), **options))))
    history = len(first.prompt_ids) + len(first.token_ids)
    assert second.prompt_ids[:history] == first.prompt_ids + first.token_ids
    assert second.metrics.cached_tokens >= history // 16 * 16


def test_cancel_before_during_and_after(open_session: Opener) -> None:
    """A cancel counts even before the submit; afterwards it does nothing; blocks come back."""
    session = open_session(max_num_batched_tokens=8)
    loaded = session._loaded
    assert loaded is not None
    session.cancel("early")
    end = finished(list(session.generate(request("early"))))
    assert end.finish_reason == "cancelled"
    assert end.token_ids == ()
    session.submit(request("mid"))
    events = session.step()
    session.cancel("mid")
    while session.has_work():
        events += session.step()
    assert finished(events).finish_reason == "cancelled"
    assert not of(TokenEvent, events)
    session.submit(request("late"))
    events = [event for _ in range(6) for event in session.step()]
    session.cancel("late")
    events += session.step()
    assert finished(events).finish_reason == "cancelled"
    assert len(finished(events).token_ids) == len(of(TokenEvent, events)) > 0
    session.cancel("late")
    assert not session.has_work()
    assert loaded.blocks.num_free_blocks == loaded.blocks.num_blocks


def test_a_cancel_inside_a_step_leaves_it_at_the_next_layer(
    open_session: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flag is polled per layer: the step ends without a token."""
    session = open_session()
    layers_run = []
    begin = StageClock.begin

    def cancelling_begin(clock: StageClock, stage: Stage) -> None:
        begin(clock, stage)
        if stage == Stage.FFN:
            layers_run.append(1)
            session.cancel("r")

    monkeypatch.setattr(StageClock, "begin", cancelling_begin)
    events = list(session.generate(request()))
    assert len(layers_run) == 1
    assert finished(events).finish_reason == "cancelled"
    assert not of(StepStats, events)


def test_requests_are_checked_at_the_door(open_session: Opener) -> None:
    """Unknown ids, an id in flight, a request without a model."""
    session = open_session()
    [event] = session.generate(request(prompt_ids=(5, 100_000)))
    assert isinstance(event, GenerationFailed)
    session.submit(request("twice"))
    with pytest.raises(ValueError, match="twice"):
        session.submit(request("twice"))
    with pytest.raises(RuntimeError, match="in flight"):
        list(session.generate(request("other")))
    session.unload()
    assert not session.has_work()
    [event] = session.generate(request())
    assert isinstance(event, GenerationFailed)
    assert event.what == "No model is loaded."


def test_a_failing_step_fails_its_requests_and_nothing_else(
    open_session: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error below becomes a sentence; the session goes on."""
    session = open_session()
    loaded = session._loaded
    assert loaded is not None

    def broken(*_: object) -> None:
        raise RuntimeError("the device is on fire\nat 0x0")

    with monkeypatch.context() as patch:
        patch.setattr(type(loaded.runner), "run", broken)
        [event] = of(GenerationFailed, list(session.generate(request())))
    assert event.why == "the device is on fire."
    assert finished(list(session.generate(request()))).finish_reason == "length"


def test_loading_reports_bytes_and_the_resolved_config(tiny_model: Path) -> None:
    """Progress ascends to the whole; nothing stays open in the config."""
    session = LocalSession()
    *progress, loaded = session.load(EngineConfig(model_path=str(tiny_model)))
    assert isinstance(loaded, ModelLoaded)
    assert all(isinstance(p, LoadProgress) for p in progress)
    reading = [p.done_bytes for p in progress if p.stage == "reading"]
    assert reading == sorted(reading)
    assert reading[-1] == progress[-1].total_bytes > 0
    assert loaded.config.context_length == 256
    assert loaded.config.device == "cpu"
    assert loaded.roofs == Roofs(PEAKS, "fp32")
    assert loaded.config.threads
    assert loaded.config.kv_format == "bf16"
    session.close()


def test_a_load_can_be_cancelled(open_session: Opener, tiny_model: Path) -> None:
    """The flag ends the load; the session can load again."""
    session = open_session()
    events = session.load(EngineConfig(model_path=str(tiny_model)))
    next(events)
    session.stop_loading()
    *_, last = events
    assert isinstance(last, LoadFailed)
    assert last.kind == "cancelled"
    *_, last = session.load(EngineConfig(model_path=str(tiny_model)))
    assert isinstance(last, ModelLoaded)


def test_a_load_can_be_cancelled_while_it_warms_up(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warm-up step is left at a layer, like any other step."""
    session = LocalSession()
    stages = []
    begin = StageClock.begin

    def stopping_begin(clock: StageClock, stage: Stage) -> None:
        stages.append(stage)
        session.stop_loading()
        begin(clock, stage)

    monkeypatch.setattr(StageClock, "begin", stopping_begin)
    *_, last = session.load(EngineConfig(model_path=str(tiny_model)))
    assert isinstance(last, LoadFailed)
    assert last.kind == "cancelled"
    assert len(stages) == 1, "the first step was not left"


def test_too_little_memory_says_what_would_fit(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal comes before anything is loaded, with the figures and a way out."""
    session = LocalSession()
    config = EngineConfig(model_path=str(tiny_model), context_length=256, weight_format="fp32")
    need = session.estimate_memory(config)
    kv = need.kv_bytes
    monkeypatch.setattr(
        "engine.memory.available_bytes", lambda device: need.required_bytes - kv // 2
    )
    estimate = session.estimate_memory(config)
    assert not estimate.fits
    assert "int4" in estimate.fitting_weight_formats
    [*_, last] = session.load(config)
    assert isinstance(last, LoadFailed)
    assert last.kind == "memory"
    assert last.estimate == estimate


@pytest.mark.parametrize("weight_format", ["as-stored", "fp32", "bf16", "fp16", "int8", "int4"])
def test_estimated_weights_are_the_loaded_weights(
    open_session: Opener, tiny_model: Path, weight_format: str
) -> None:
    """The figure shown before loading is the figure after it."""
    session = open_session(weight_format=weight_format)
    loaded = session._loaded
    assert loaded is not None
    [info] = [f for f in loaded.info.weight_formats if f.name == weight_format]
    assert loaded.facts.weight_bytes == info.weight_bytes == loaded.estimate.weight_bytes
    assert loaded.facts.kv_bytes_reserved == loaded.estimate.kv_bytes


def test_a_context_beyond_the_model_is_refused(tiny_model: Path) -> None:
    """Named with the model's own limit."""
    session = LocalSession()
    [last] = session.load(EngineConfig(model_path=str(tiny_model), context_length=512))
    assert isinstance(last, LoadFailed)
    assert "256" in last.why


def test_count_tokens_is_what_a_request_takes(open_session: Opener) -> None:
    """The composer's gauge and the engine agree."""
    session = open_session()
    messages = (Message("user", "count me"),)
    counted = session.count_tokens(messages)
    end = finished(list(session.generate(request(prompt_ids=None, messages=messages))))
    assert counted == len(end.prompt_ids)
    session.unload()
    with pytest.raises(EngineError):
        session.count_tokens(messages)


def test_kernels_that_cannot_run_here_are_refused_by_name(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What, why with what there is, and what to do."""
    monkeypatch.setenv("PHASESCOPE_CPU_LEVEL", "sse9")
    *_, last = LocalSession().load(EngineConfig(model_path=str(tiny_model)))
    assert isinstance(last, LoadFailed)
    assert last.kind == "unsupported"
    assert "sse9" in last.why
    assert "none" in last.why
    assert last.next
