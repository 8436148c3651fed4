"""The panels' data are the engine's stamps: phases, readings, windows of steps and samples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pytestqt.qtbot import QtBot

from app.telemetry.telemetry_model import TelemetryModel
from engine.events import GenerationFailed, GenerationFinished, TokenEvent
from engine.sensors import SensorSample
from tests.app.telemetry.story import MS, PER_TOKEN, Clock, Story, loaded


def sample(t_ns: int, cpu: float | None = 50.0, gpu: float | None = None) -> SensorSample:
    """A reading of the process and, if given, of a GPU."""
    return SensorSample(t_ns, 0, gpu, None, None, cpu, 1)


def test_phases_follow_the_answer(model: TelemetryModel, clock: Clock) -> None:
    """Idle before Send, prefill until the first token, decode until the end, idle again."""
    story = Story(num_tokens=20)
    first_ns = next(e.t_ns for e in story.events() if isinstance(e, TokenEvent))
    assert model.phase == "idle"
    model.request_sent("r1", story.t_send_ns)
    assert model.phase == "prefill"
    model.handle_events(story.events(first_ns))
    assert model.phase == "decode"
    model.handle_events(story.events()[len(story.events(first_ns)) :])
    assert model.phase == "idle"


def test_readings_are_those_of_the_engine(model: TelemetryModel, clock: Clock) -> None:
    """Live figures by metrics.md equal the engine's own metrics of the finished request."""
    story = Story(num_tokens=60, cached_tokens=128, queue_ms=40.0)
    finished = story.events()[-1]
    events = [e for e in story.events() if not isinstance(e, GenerationFinished)]
    metrics = next(e for e in story.events() if isinstance(e, GenerationFinished)).metrics
    assert finished is not None
    model.handle_events(events)
    trace = model.selected
    assert trace is not None
    assert trace.ttft_s is not None
    assert trace.ttft_s * 1e3 == pytest.approx(metrics.ttft_ms)
    assert trace.decode_tok_s == pytest.approx(metrics.decode_tok_s, rel=1e-3)
    assert trace.prefill_tok_s == pytest.approx(metrics.prefill_tok_s)
    assert trace.itl_percentiles(50, 95) == pytest.approx((metrics.itl_p50_ms, metrics.itl_p95_ms))
    assert trace.kv.last("used") == metrics.kv_bytes_used
    assert trace.kv.last("allocated") == metrics.kv_bytes_allocated


def test_percentiles_interpolate_linearly(model: TelemetryModel) -> None:
    """Four latencies 1, 2, 3, 4 ms: p50 is 2.5 and p95 is 3.85; the first token has none."""
    story = Story(num_tokens=1)
    token = next(e for e in story.events() if isinstance(e, TokenEvent))
    model.handle_events([token])
    assert model.selected is not None
    assert model.selected.itl_percentiles(50) is None
    model.handle_events(
        [
            replace(token, index=i, itl_ms=float(i), t_ns=token.t_ns + i * MS, step_id=50 + i)
            for i in range(1, 5)
        ]
    )
    assert model.selected.itl_percentiles(50, 95) == pytest.approx((2.5, 3.85))


def test_running_ttft_counts_until_the_first_token(model: TelemetryModel, clock: Clock) -> None:
    """During prefill the wait is that of the clock; afterwards it is the engine's stamp."""
    story = Story(prompt_tokens=3_120, prefill_tok_s=396)
    story.tell(model, clock, story.t_send_ns + 3_100 * MS)
    assert model.running_ttft_s() == pytest.approx(3.1)
    model.handle_events(story.events())
    clock.now_ns += 10_000 * MS
    assert model.running_ttft_s() is None
    assert model.selected is not None
    assert model.selected.ttft_s == pytest.approx(3_120 / 396, rel=1e-3)


def test_time_left_is_estimated_and_counts_down(model: TelemetryModel, clock: Clock) -> None:
    """1,152 of 3,120 tokens after 2.9 s: about 5 s are left, less with each moment."""
    story = Story(prompt_tokens=3_120, prefill_tok_s=396)
    story.tell(model, clock, story.t_send_ns + 3_000 * MS)
    trace = model.selected
    assert trace is not None
    assert (trace.tokens_done, trace.tokens_total) == (1_152, 3_120)
    left = trace.seconds_left(clock.now_ns)
    assert left == pytest.approx((3_120 - 1_152) / 396 - (3.0 - 1_152 / 396), rel=0.01)
    assert trace.seconds_left(clock.now_ns + 1_000 * MS) == pytest.approx(left - 1.0)


def test_a_reused_prefix_is_in_the_cache_at_send(model: TelemetryModel, clock: Clock) -> None:
    """The used curve starts at the prefix, and the prefill pace does not count it."""
    story = Story(prompt_tokens=1_180, cached_tokens=944, num_tokens=3)
    story.tell(model, clock)
    trace = model.selected
    assert trace is not None
    assert trace.kv["used"][0] == 944 * PER_TOKEN
    assert trace.kv["t_s"][0] == 0.0
    assert trace.prefill_tok_s == pytest.approx(2_050, rel=1e-3)


def test_steps_belong_to_the_answer_they_ran_in(model: TelemetryModel, clock: Clock) -> None:
    """Two answers one after the other: each window has its own steps, prefill as flat pieces."""
    first = Story("a", num_tokens=10)
    second = Story("b", t_send_ns=first.end_ns + 500 * MS, num_tokens=30, first_step=100)
    first.tell(model, clock)
    second.tell(model, clock)
    trace = model.selected
    assert trace is not None
    steps = model.steps_of(trace)
    assert steps.is_edge.tolist()[:5] == [True] * 4 + [False]  # two chunks, start and end each
    assert len(steps.t_s) == 4 + 29
    assert steps.t_s[0] == pytest.approx(0.0, abs=1e-6)
    assert np.all(np.diff(steps.t_s) >= -1e-6)


def test_device_readings_hold_for_the_time_before_them(model: TelemetryModel, clock: Clock) -> None:
    """A reading describes the interval since the previous one; the last one is cut at the end."""
    story = Story(num_tokens=20)
    send = story.t_send_ns
    model.request_sent("r1", send)
    model.handle_sample(sample(send - 50 * MS, cpu=5.0))
    model.handle_sample(sample(send + 100 * MS, cpu=80.0))
    model.handle_events(story.events())
    model.handle_sample(sample(story.end_ns + 100 * MS, cpu=90.0))
    model.handle_sample(sample(story.end_ns + 2_000 * MS, cpu=1.0))
    assert model.selected is not None
    x, y = model.device_steps(model.selected)
    end = (story.end_ns - send) / 1e9
    assert x == pytest.approx([0.0, 0.1, 0.1, end])
    assert y.tolist() == [80.0, 80.0, 90.0, 90.0]


def test_gpu_without_utilization_is_silent(model: TelemetryModel, clock: Clock) -> None:
    """On a GPU the curve is NVML's; where NVML has none, the CPU's figures do not stand in."""
    model.handle_events([loaded("cuda:0")])
    Story(num_tokens=5).tell(model, clock)
    assert model.on_gpu
    assert model.selected is not None
    assert model.device_is_silent(model.selected)
    assert not len(model.device_steps(model.selected)[0])


def test_facts_are_announced_together(qtbot: QtBot, model: TelemetryModel, clock: Clock) -> None:
    """A hundred events make one announcement, not a hundred."""
    story = Story(num_tokens=100)
    model.request_sent("r1", story.t_send_ns)
    heard: list[int] = []
    model.changed.connect(lambda: heard.append(1))
    with qtbot.waitSignal(model.changed):
        for event in story.events():
            model.handle_events([event])
    assert len(heard) == 1


def test_idle_samples_announce_nothing(qtbot: QtBot, model: TelemetryModel, clock: Clock) -> None:
    """After the answer the sampler's slow readings cause no redraw."""
    story = Story(num_tokens=5)
    with qtbot.waitSignal(model.changed):
        story.tell(model, clock)
    qtbot.waitUntil(lambda: not model._announce.isActive())
    with qtbot.assertNotEmitted(model.changed, wait=150):
        model.handle_sample(sample(story.end_ns + 2_000 * MS))


def test_history_is_kept_and_can_be_selected(model: TelemetryModel, clock: Clock) -> None:
    """Every request stays; selecting an old one shows its own figures again."""
    first = Story("a", num_tokens=10)
    second = Story("b", t_send_ns=first.end_ns + 100 * MS, num_tokens=30)
    first.tell(model, clock)
    second.tell(model, clock)
    assert [t.request_id for t in model.requests] == ["a", "b"]
    model.select("a")
    assert model.selected is not None
    assert len(model.selected.tokens) == 10
    model.select(None)
    assert model.selected is None
    assert model.phase == "idle"


def test_requests_at_the_same_time_are_found(model: TelemetryModel, clock: Clock) -> None:
    """Only requests that overlap count as running beside it."""
    one = Story("a", num_tokens=100)
    two = Story("b", t_send_ns=one.t_send_ns + 200 * MS, num_tokens=100)
    three = Story("c", t_send_ns=one.end_ns + 5_000 * MS, num_tokens=5)
    for story in (one, two, three):
        story.tell(model, clock)
    by_id = {t.request_id: t for t in model.requests}
    assert [t.request_id for t in model.concurrent(by_id["a"])] == ["b"]
    assert model.concurrent(by_id["c"]) == []


def test_a_failure_ends_the_wait(model: TelemetryModel, clock: Clock) -> None:
    """A request that fails before its first token is idle, without a time to first token."""
    model.request_sent("r1", clock.now_ns)
    model.handle_events([GenerationFailed("r1", clock.now_ns + 5 * MS, "", "", "")])
    assert model.phase == "idle"
    assert model.running_ttft_s() is None
    assert model.selected is not None
    assert model.selected.finish_reason == "failed"


def test_paint_latency_counts_each_token_once(model: TelemetryModel, clock: Clock) -> None:
    """A paint covers all tokens up to its index; painting again changes nothing."""
    story = Story(num_tokens=3)
    story.tell(model, clock)
    tokens = [e for e in story.events() if isinstance(e, TokenEvent)]
    model.request_painted("r1", 1, tokens[1].t_ns + 4 * MS)
    model.request_painted("r1", 2, tokens[2].t_ns + 9 * MS)
    model.request_painted("r1", 2, tokens[2].t_ns + 99 * MS)
    model.request_painted("unknown", 0, 0)
    assert model.selected is not None
    itl_ms = (tokens[1].t_ns - tokens[0].t_ns) / MS
    assert model.selected.paint["paint_ms"] == pytest.approx([itl_ms + 4, 4, 9])
    assert model.selected.paint_percentile_ms(50) == pytest.approx(9)


def test_after_a_reset_nothing_is_left(model: TelemetryModel, clock: Clock) -> None:
    """The panels hear of it and find no request, model, step or pool; the next answer is whole."""
    model.handle_events([loaded()])
    Story(num_tokens=5).tell(model, clock)
    heard = []
    model.changed.connect(lambda: heard.append(model.requests))
    model.clear()
    assert heard == [()]
    assert (model.selected, model.loaded, model.blocks) == (None, None, None)
    assert len(model.step_points()) == 0
    Story("r2", t_send_ns=clock.now_ns, num_tokens=7).tell(model, clock)
    assert model.selected is not None
    assert len(model.selected.tokens) == 7
    assert len(model.steps_of(model.selected).t_s) == 2 * 2 + 6
