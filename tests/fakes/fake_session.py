"""`FakeSession`: the engine's face with scripted, seeded behaviour and no model behind it.

Time is simulated: every event carries a time that advances by plausible durations, so a test
runs at once and still sees the figures of SmolLM2-135M on a laptop. A `Script` says what fails
and where to hold still; `release()` lets a held session run on.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from engine.config import (
    EngineConfig,
    GenerationRequest,
    MemoryEstimate,
    Message,
    ModelInfo,
)
from engine.context_policy import answer_room, drop_turns, kept_when_sliding
from engine.events import (
    ContextCut,
    Event,
    FinishReason,
    GenerationFailed,
    GenerationFinished,
    LoadEvent,
    LoadFailed,
    LoadProgress,
    ModelLoaded,
    PrefillDone,
    PrefillProgress,
    StageTimes,
    StepStats,
    TokenEvent,
)
from engine.planner.plan import Planning
from engine.prediction import DeviceSpeed, ModelSurvey, SpeedPrediction
from engine.session import EngineError
from tests.fakes.fake_pool import BLOCK_TOKENS, CHUNK, FakePool
from tests.fakes.figures import (
    ANSWER,
    KV_BYTES_PER_TOKEN,
    PARAMETERS,
    WEIGHT_BYTES,
    estimate,
    loaded_model,
    model_info,
    planning,
    request_metrics,
    resolve,
)

LOAD_STEPS = 12
MAP_INTERVAL_NS = 250_000_000
TEMPLATE_TOKENS = 8  # around each message
# Attention, FFN, head, sampling, detokenize, host.
STAGE_SHARES = {
    "prefill": (0.27, 0.655, 0.04, 0.001, 0.0, 0.034),
    "decode": (0.19, 0.535, 0.2, 0.025, 0.004, 0.046),
}


@dataclass
class Script:
    """What a fake session does. Fractions lie between 0 and 1; rates are tokens a second."""

    answer: str = ANSWER
    prefill_tok_s: float = 2_050.0
    itl_ms: float = 7.2
    itl_ms_as: dict[str, float] = field(default_factory=dict)  # by weight format, before `itl_ms`
    is_even: bool = False  # every step takes exactly its time
    load_s: float = 0.9
    available_bytes: int = 6_200_000_000
    is_measured: bool = True  # whether the device's peaks are known
    bandwidth: float = 20e9  # of those peaks, as is `matmul_flops`
    matmul_flops: float = 250e9
    notices: tuple[str, ...] = ()
    load_failure: LoadFailed | None = None
    bad_paths: dict[str, EngineError] = field(default_factory=dict)
    generation_failure: GenerationFailed | None = None
    raise_in_load: Exception | None = None
    raise_in_step: Exception | None = None
    hold_load_at: float | None = None
    hold_prefill_at: float | None = None
    hold_decode_at: int | None = None
    times_stages: bool = False  # whether steps say where their time went
    windows: tuple[int, ...] = ()  # of sliding-window groups beside the full one
    wait: Callable[[float], None] | None = None  # called with every simulated duration, in s


class FakeClock:
    """Nanoseconds that pass only as the session spends them."""

    def __init__(self) -> None:
        self.now_ns = time.perf_counter_ns()

    def __call__(self) -> int:
        return self.now_ns


@dataclass
class _Running:
    request: GenerationRequest
    t_send_ns: int
    prompt_tokens: int
    cached_tokens: int
    pieces: list[str]
    prefilled: int = 0
    token_times_ns: list[int] = field(default_factory=list)
    dropped_tokens: int = 0
    first_scheduled_ns: int | None = None
    prefill_end_ns: int | None = None

    def piece(self, index: int) -> str:
        """A token's text; whoever ignores the end hears the answer again."""
        return self.pieces[index % len(self.pieces)]

    @property
    def context_tokens(self) -> int:
        return self.prefilled + len(self.token_times_ns) - self.dropped_tokens


class FakeSession:
    """A `Session` that answers every chat with the script's text."""

    def __init__(
        self, script: Script | None = None, seed: int = 0, clock: FakeClock | None = None
    ) -> None:
        self.script = script or Script()
        self.loads: list[EngineConfig] = []
        self.planned: list[str] = []
        self.requests: list[GenerationRequest] = []
        self.closed = False
        self.thread_ids: set[int] = set()
        self._random = random.Random(seed)
        self._released = threading.Event()
        self._stop_loading = threading.Event()
        self._cancelled: set[str] = set()
        self._running: list[_Running] = []
        self._pending: deque[GenerationFailed | ContextCut] = deque()
        self._loaded: ModelLoaded | None = None
        self._clock = clock or FakeClock()
        self._step_id = 0
        self._pool = FakePool(4096)
        self._map_told_ns = 0

    # --- the script's remote control ------------------------------------------------------

    def release(self) -> None:
        """Let a held load, prefill or decode run on. Thread-safe."""
        self._released.set()

    # --- Session --------------------------------------------------------------------------

    def inspect(self, path: str) -> ModelInfo:
        self._note_thread()
        if path in self.script.bad_paths:
            raise self.script.bad_paths[path]
        return model_info(path)

    def estimate_memory(self, config: EngineConfig) -> MemoryEstimate:
        self._note_thread()
        info = self.inspect(config.model_path)
        resolved = resolve(config)
        return estimate(resolved, info, self.script.available_bytes, self._loaded)

    def survey(self, config: EngineConfig) -> ModelSurvey:
        if config.model_path in self.script.bad_paths:
            raise self.script.bad_paths[config.model_path]
        resolved, info = resolve(config), model_info(config.model_path)
        memory = estimate(resolved, info, self.script.available_bytes, self._loaded)
        speed = SpeedPrediction(487.0, 9.7e9 / memory.weight_bytes)
        return ModelSurvey(info, resolved, memory, "CPU", resolved.threads or 2, speed)

    def planning(self, model: str, device: str, threads: int | None) -> Planning:
        if model in self.script.bad_paths:
            raise self.script.bad_paths[model]
        self.planned.append(model)
        bandwidth = self.script.bandwidth
        loaded = self._loaded
        freed = loaded.weight_bytes + loaded.kv_bytes_reserved if loaded else 0
        return planning(
            model,
            threads or 2,
            self.script.available_bytes,
            freed,
            DeviceSpeed("cpu", self.script.matmul_flops, lambda _: bandwidth),
            is_measured=self.script.is_measured,
        )

    def load(self, config: EngineConfig) -> Iterator[LoadEvent]:
        self._note_thread()
        self.loads.append(config)
        self._stop_loading.clear()
        self._loaded = None
        if self.script.raise_in_load:
            raise self.script.raise_in_load
        if config.model_path in self.script.bad_paths:
            error = self.script.bad_paths[config.model_path]
            yield LoadFailed("bad_file", error.what, error.why, error.next_step)
            return
        yield from self._load(resolve(config))

    def stop_loading(self) -> None:
        self._stop_loading.set()

    def unload(self) -> None:
        self._note_thread()
        self._loaded = None
        self._running.clear()

    def count_tokens(self, messages: Sequence[Message]) -> int:
        self._note_thread()
        return TEMPLATE_TOKENS * len(messages) + sum(len(_pieces(m.content)) for m in messages)

    def submit(self, request: GenerationRequest) -> None:
        self._note_thread()
        self.requests.append(request)
        if self._loaded is None:
            self._fail(request, "No model is loaded.", "Load one first.", "Open a model.")
            return
        if self.script.generation_failure:
            failure = self.script.generation_failure
            self._pending.append(replace(failure, request_id=request.request_id))
            return
        request = self._without_old_turns(request)
        prompt_ids = _prompt_ids(request)
        limit = self._loaded.config.context_length or 0
        if len(prompt_ids) >= limit:
            self._fail(
                request,
                f"The prompt takes {len(prompt_ids):,} tokens.",
                f"The context holds {limit:,}.",
                "Shorten it or load with a longer context.",
            )
            return
        cached = self._pool.admit(request, prompt_ids)
        pieces = _pieces(self.script.answer)
        self._running.append(
            _Running(request, self._clock.now_ns, len(prompt_ids), cached, pieces, cached)
        )

    def step(self) -> list[Event]:
        self._note_thread()
        if self.script.raise_in_step:
            raise self.script.raise_in_step
        events: list[Event] = list(self._pending)
        self._pending.clear()
        events += self._finish_cancelled()
        for running in list(self._running):
            events += self._advance(running)
        return events + self._tell_blocks(events)

    def has_work(self) -> bool:
        return bool(self._running or self._pending)

    def generate(self, request: GenerationRequest) -> Iterator[Event]:
        if self.has_work():
            raise RuntimeError("other requests are in flight")
        self.submit(request)
        while self.has_work():
            yield from self.step()

    def cancel(self, request_id: str) -> None:
        self._cancelled.add(request_id)

    def close(self) -> None:
        self._note_thread()
        self.unload()
        self.closed = True

    def _tell_blocks(self, events: list[Event]) -> list[Event]:
        now_ns = self._clock.now_ns
        ended = any(isinstance(event, GenerationFinished) for event in events)
        if not events or not (ended or now_ns - self._map_told_ns >= MAP_INTERVAL_NS):
            return []
        self._map_told_ns = now_ns
        return [self._pool.map(now_ns)]

    # --- how it goes ----------------------------------------------------------------------

    def _load(self, config: EngineConfig) -> Iterator[LoadEvent]:
        info = model_info(config.model_path)
        total = WEIGHT_BYTES[config.weight_format]
        for index in range(LOAD_STEPS + 1):
            fraction = index / LOAD_STEPS
            held = self.script.hold_load_at is not None and fraction >= self.script.hold_load_at
            while held and not self._released.wait(0.002) and not self._stop_loading.is_set():
                pass
            if self._stop_loading.is_set():
                yield LoadFailed("cancelled", "Loading was stopped.", "You asked for it.", "")
                return
            self._spend(self.script.load_s / LOAD_STEPS)
            elapsed = self.script.load_s * fraction
            yield LoadProgress("reading", int(total * fraction), total, elapsed)
        if self.script.load_failure:
            yield self.script.load_failure
            return
        memory = estimate(config, info, self.script.available_bytes, None)
        if not memory.fits:
            yield LoadFailed(
                "memory",
                "The model does not fit in memory.",
                f"It takes {memory.required_bytes / 1e9:.1f} GB.",
                "Load it with a shorter context.",
                memory,
            )
            return
        self._pool = FakePool(
            config.context_length or 0, self.script.windows, prefix_caching=config.prefix_caching
        )
        self._map_told_ns = 0
        loaded = loaded_model(
            config,
            info,
            memory,
            self.script.load_s,
            self.script.notices,
            is_measured=self.script.is_measured,
        )
        self._loaded = replace(loaded, blocks=self._pool.map(self._clock.now_ns))
        yield self._loaded

    def _without_old_turns(self, request: GenerationRequest) -> GenerationRequest:
        limit = self._loaded.config.context_length if self._loaded else None
        if request.on_context_full != "drop_turns" or not request.messages or limit is None:
            return request
        room = answer_room(limit, request.max_tokens)
        before = self.count_tokens(request.messages)
        kept, dropped = drop_turns(request.messages, self.count_tokens, limit - room)
        after = self.count_tokens(kept)
        if dropped:
            now = self._clock.now_ns
            self._pending.append(
                ContextCut(request.request_id, now, dropped, before - after, 0, after)
            )
        return replace(request, messages=kept)

    def _slide(self, running: _Running, limit: int) -> ContextCut:
        first, last = kept_when_sliding(limit)
        running.dropped_tokens += limit - first - last
        self._pool.slide(running.request.request_id, first, last)
        gone = first + running.dropped_tokens
        spoken = [m for m in running.request.messages if m.role != "system"]
        messages = sum(self.count_tokens(spoken[: n + 1]) <= gone for n in range(len(spoken)))
        self._spend((first + last) / self.script.prefill_tok_s)
        return ContextCut(
            running.request.request_id,
            self._clock.now_ns,
            messages,
            running.dropped_tokens,
            first,
            last,
        )

    def _fail(self, request: GenerationRequest, what: str, why: str, next_step: str) -> None:
        failure = GenerationFailed(request.request_id, self._clock.now_ns, what, why, next_step)
        self._pending.append(failure)

    def _finish_cancelled(self) -> list[Event]:
        stopped = [r for r in self._running if r.request.request_id in self._cancelled]
        return [self._finish(running, "cancelled") for running in stopped]

    def _advance(self, running: _Running) -> list[Event]:
        running.first_scheduled_ns = running.first_scheduled_ns or self._clock.now_ns
        if running.prefill_end_ns is None:
            return self._prefill(running)
        return self._decode(running)

    def _held(self, reached: bool) -> bool:
        # A short wait stands for a step's time: a held session must not spin.
        return reached and not self._released.wait(0.002)

    def _prefill(self, running: _Running) -> list[Event]:
        hold = self.script.hold_prefill_at
        done = running.prefilled - running.cached_tokens
        to_do = running.prompt_tokens - running.cached_tokens
        if self._held(hold is not None and done >= hold * to_do):
            return []
        chunk = min(CHUNK, running.prompt_tokens - running.prefilled)
        noise = 1.0 if self.script.is_even else self._random.uniform(0.97, 1.03)
        seconds = self._spend(chunk / self.script.prefill_tok_s * noise)
        running.prefilled += chunk
        self._pool.advance(running.request.request_id, running.prefilled)
        kv = self._kv_bytes(running)
        request_id, send = running.request.request_id, running.t_send_ns
        step = self._stats("prefill", chunk, seconds)
        events: list[Event] = [
            PrefillProgress(
                request_id,
                step.step_id,
                self._clock.now_ns,
                send,
                running.prefilled,
                running.prompt_tokens,
                running.cached_tokens,
                *kv,
            )
        ]
        if running.prefilled == running.prompt_tokens:
            running.prefill_end_ns = self._clock.now_ns
            first_ns = running.first_scheduled_ns or send
            events.append(
                PrefillDone(
                    request_id,
                    step.step_id,
                    self._clock.now_ns,
                    send,
                    running.prompt_tokens,
                    running.cached_tokens,
                    (first_ns - send) / 1e6,
                    (self._clock.now_ns - first_ns) / 1e6,
                    *kv,
                )
            )
            events += self._token(running, step.step_id)
        return [*events, step]

    def _decode(self, running: _Running) -> list[Event]:
        hold = self.script.hold_decode_at
        if self._held(hold is not None and len(running.token_times_ns) >= hold):
            return []
        late = 2.4 if self._random.random() < 0.01 else 1.0
        noise = 1.0 if self.script.is_even else self._random.gauss(1.0, 0.035) * late
        if not running.request.use_cache:
            tokens = running.context_tokens
            seconds = self._spend(tokens / self.script.prefill_tok_s * noise)
            step = self._stats("prefill", tokens, seconds)
            return [*self._token(running, step.step_id), step]
        seconds = self._spend(self._itl_ms() * noise / 1e3)
        step = self._stats("decode", 1, seconds)
        return [*self._token(running, step.step_id), step]

    def _token(self, running: _Running, step_id: int) -> list[Event]:
        index = len(running.token_times_ns)
        before = running.token_times_ns[-1] if index else None
        token_id = _token_id(running.piece(index))
        self._pool.advance(running.request.request_id, running.context_tokens, token_id)
        running.token_times_ns.append(self._clock.now_ns)
        token = TokenEvent(
            running.request.request_id,
            step_id,
            index,
            token_id,
            running.piece(index),
            self._clock.now_ns,
            running.t_send_ns,
            (self._clock.now_ns - before) / 1e6 if before is not None else None,
            running.context_tokens,
            *self._kv_bytes(running),
        )
        reason = self._finish_reason(running)
        if reason == "context_full" and running.request.on_context_full == "slide":
            return [token, self._slide(running, running.context_tokens)]
        return [token, self._finish(running, reason)] if reason else [token]

    def _finish_reason(self, running: _Running) -> FinishReason | None:
        done = len(running.token_times_ns)
        if done == len(running.pieces) and not running.request.ignore_eos:
            return "stop"
        if running.request.max_tokens is not None and done >= running.request.max_tokens:
            return "length"
        limit = self._loaded.config.context_length if self._loaded else None
        if limit is not None and running.context_tokens >= limit:
            return "context_full"
        return None

    def _finish(self, running: _Running, reason: FinishReason) -> GenerationFinished:
        self._running.remove(running)
        tables = self._pool.end(running.request.request_id)
        assert self._loaded is not None
        done = len(running.token_times_ns)
        return GenerationFinished(
            running.request.request_id,
            self._clock.now_ns,
            reason,
            "",
            tuple(range(running.prompt_tokens)),
            tuple(_token_id(running.piece(index)) for index in range(done)),
            request_metrics(
                self._loaded,
                running.request,
                reason,
                running.prompt_tokens,
                running.cached_tokens,
                running.t_send_ns,
                running.first_scheduled_ns,
                running.prefill_end_ns,
                running.token_times_ns,
                self._kv_bytes(running),
            ),
            tables,
        )

    def _stats(self, phase: str, tokens: int, seconds: float) -> StepStats:
        self._step_id += 1
        compute, bandwidth = (72.0, 26.0) if phase == "prefill" else (7.0, 94.0)
        return StepStats(
            self._step_id,
            self._clock.now_ns,
            "prefill" if phase == "prefill" else "decode",
            len(self._running),
            tokens,
            seconds * 1e3,
            2 * PARAMETERS * tokens,
            self._loaded_weights() + KV_BYTES_PER_TOKEN * tokens,
            compute * self._random.uniform(0.97, 1.03),
            bandwidth * self._random.uniform(0.98, 1.02),
            self._stage_times(phase, seconds),
            tuple(running.request.request_id for running in self._running),
        )

    def _itl_ms(self) -> float:
        weights = self._loaded.config.weight_format if self._loaded else ""
        return self.script.itl_ms_as.get(weights, self.script.itl_ms)

    def _kv_bytes(self, running: _Running) -> tuple[int, int]:
        assert self._loaded is not None
        per_token = self._loaded.kv_groups[0].bytes_per_token
        tokens = running.context_tokens
        blocks = -(-tokens // BLOCK_TOKENS)
        return tokens * per_token, blocks * BLOCK_TOKENS * per_token

    def _stage_times(self, phase: str, seconds: float) -> StageTimes | None:
        if not self.script.times_stages:
            return None
        return StageTimes(*(seconds * 1e3 * share for share in STAGE_SHARES[phase]))

    def _loaded_weights(self) -> int:
        return self._loaded.weight_bytes if self._loaded else 0

    def _spend(self, seconds: float) -> float:
        self._clock.now_ns += int(seconds * 1e9)
        if self.script.wait:
            self.script.wait(seconds)
        return seconds

    def _note_thread(self) -> None:
        self.thread_ids.add(threading.get_ident())


def _pieces(text: str) -> list[str]:
    """Text cut as a tokenizer would: words with their leading blank, punctuation, line ends."""
    return re.findall(r"\n| ?[^\W_]+| ?[\W_]|\s+", text)


def _prompt_ids(request: GenerationRequest) -> list[int]:
    """As many as `count_tokens` counts; what was sampled before goes in as it was."""
    if request.prompt_ids is not None:
        return list(request.prompt_ids)
    ids: list[int] = []
    for message in request.messages or (Message("user", request.prompt or ""),):
        # An answer's head stands at the end of the question, as it did when it was sampled.
        head = 0 if message.role == "assistant" else 2
        ids += [_token_id(message.role)] * head
        ids += message.token_ids or map(_token_id, _pieces(message.content))
        ids += [_token_id("end")] * (TEMPLATE_TOKENS - head)
    return ids


def _token_id(piece: str) -> int:
    return sum(piece.encode()) * 31 % 49_152
