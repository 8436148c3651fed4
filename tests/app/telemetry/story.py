"""A made-up answer as the engine would tell it: figures of SmolLM2-135M on a two-core laptop."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from app.telemetry.telemetry_model import TelemetryModel
from engine.config import EngineConfig, GenerationRequest
from engine.events import (
    Event,
    GenerationFinished,
    ModelLoaded,
    PrefillDone,
    PrefillProgress,
    StepStats,
    TokenEvent,
)
from engine.sensors import SensorSample
from tests.fakes.fake_pool import FakePool
from tests.fakes.figures import estimate, loaded_model, model_info, request_metrics, resolve

PER_TOKEN = 23_040
BLOCK_TOKENS = 16
MS = 1_000_000


class Clock:
    """A clock that stands until it is set, in ns."""

    def __init__(self, now_ns: int = 1_000 * MS) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns


def loaded(device: str = "cpu", pool_tokens: int = 4096) -> ModelLoaded:
    """The starter model, ready."""
    config = resolve(EngineConfig("", device=device, context_length=pool_tokens))
    info = model_info("")
    memory = estimate(config, info, 6_200_000_000, None)
    blocks = FakePool(pool_tokens).map(0)
    return replace(loaded_model(config, info, memory, 0.9, ()), blocks=blocks)


@dataclass
class Story:
    """One answer, told in order of time. `late` maps a token's index to its latency in ms."""

    request_id: str = "r1"
    t_send_ns: int = 1_000 * MS
    prompt_tokens: int = 256
    cached_tokens: int = 0
    num_tokens: int = 110
    prefill_tok_s: float = 2_050.0
    itl_ms: float = 7.2
    late: dict[int, float] = field(default_factory=dict)
    first_step: int = 1
    queue_ms: float = 0.0

    def __post_init__(self) -> None:
        self.model = loaded()
        self.items: list[tuple[int, Event | SensorSample]] = []
        self._step_id = self.first_step - 1
        self._now_ns = self.t_send_ns + round(self.queue_ms * MS)
        self._random = np.random.default_rng(7)
        self._prefill()
        for index in range(1, self.num_tokens):
            self._decode(index)
        self._finish()
        self._sample()
        self.items.sort(key=lambda item: item[0])

    @property
    def end_ns(self) -> int:
        """When the answer was complete."""
        return self._now_ns

    def until(self, t_ns: int | None = None) -> list[Event | SensorSample]:
        """What has happened by `t_ns`, all of it when None."""
        return [item for at, item in self.items if t_ns is None or at <= t_ns]

    def events(self, t_ns: int | None = None) -> list[Event]:
        """The engine's part of it."""
        return [item for item in self.until(t_ns) if not isinstance(item, SensorSample)]

    def tell(self, model: TelemetryModel, clock: Clock, t_ns: int | None = None) -> None:
        """Send the request and let everything up to `t_ns` happen to `model`."""
        model.request_sent(self.request_id, self.t_send_ns)
        for item in self.until(t_ns):
            if isinstance(item, SensorSample):
                model.handle_sample(item)
            else:
                model.handle_events([item])
        clock.now_ns = self.end_ns if t_ns is None else t_ns

    # --- how it goes ----------------------------------------------------------------------

    def _prefill(self) -> None:
        self._times: list[int] = []
        self._first_ns = self._now_ns
        done = self.cached_tokens
        while done < self.prompt_tokens:
            chunk = min(128, self.prompt_tokens - done)
            self._spend(chunk / self.prefill_tok_s * 1e3)
            done += chunk
            self._add(
                PrefillProgress(
                    self.request_id,
                    self._step_id,
                    self._now_ns,
                    self.t_send_ns,
                    done,
                    self.prompt_tokens,
                    self.cached_tokens,
                    *_kv(done),
                )
            )
            if done == self.prompt_tokens:
                self._prefilled()
            self._stats("prefill", chunk, chunk / self.prefill_tok_s * 1e3, 72.0, 26.0)

    def _prefilled(self) -> None:
        self._prefill_end_ns = self._now_ns
        self._add(
            PrefillDone(
                self.request_id,
                self._step_id,
                self._now_ns,
                self.t_send_ns,
                self.prompt_tokens,
                self.cached_tokens,
                (self._first_ns - self.t_send_ns) / MS,
                (self._now_ns - self._first_ns) / MS,
                *_kv(self.prompt_tokens),
            )
        )
        self._token(0, None)

    def _decode(self, index: int) -> None:
        late = 1.3 if self._random.random() < 0.06 else 1.0
        itl = self.late.get(index, self.itl_ms * float(self._random.normal(1, 0.03)) * late)
        self._spend(itl)
        self._token(index, itl)
        share = min(1.0, self.itl_ms / itl)
        noise = float(self._random.normal(0, 0.8))
        self._stats("decode", 1, itl, 7.5 * share + noise / 2, 93.0 * share + noise)

    def _token(self, index: int, itl_ms: float | None) -> None:
        self._times.append(self._now_ns)
        context = self.prompt_tokens + index
        self._add(
            TokenEvent(
                self.request_id,
                self._step_id,
                index,
                400 + index,
                " token",
                self._now_ns,
                self.t_send_ns,
                itl_ms,
                context + 1,
                *_kv(context),
            )
        )

    def _finish(self) -> None:
        request = GenerationRequest(self.request_id, prompt="Why?")
        metrics = request_metrics(
            self.model,
            request,
            "stop",
            self.prompt_tokens,
            self.cached_tokens,
            self.t_send_ns,
            self._first_ns,
            self._prefill_end_ns,
            self._times,
            _kv(self.prompt_tokens + self.num_tokens - 1),
        )
        self._add(
            GenerationFinished(
                self.request_id,
                self._now_ns,
                "stop",
                "",
                tuple(range(self.prompt_tokens)),
                tuple(range(self.num_tokens)),
                metrics,
            )
        )

    def _sample(self) -> None:
        for at in range(self.t_send_ns, self._now_ns + 200 * MS, 200 * MS):
            cpu = 8.0 if at == self.t_send_ns else 90.0 + float(self._random.normal(0, 3))
            self.items.append(
                (at, SensorSample(at, None, None, None, None, min(100.0, cpu), 612_000_000))
            )

    def _spend(self, ms: float) -> None:
        self._now_ns += round(ms * MS)
        self._step_id += 1

    def _stats(self, phase: str, tokens: int, ms: float, mfu: float, mbu: float) -> None:
        self._add(
            StepStats(
                self._step_id,
                self._now_ns,
                "prefill" if phase == "prefill" else "decode",
                1,
                tokens,
                ms,
                269_000_000 * tokens,
                142_900_000,
                mfu,
                mbu,
            )
        )

    def _add(self, event: Event) -> None:
        self.items.append((self._now_ns, event))


def _kv(tokens: int) -> tuple[int, int]:
    blocks = -(-tokens // BLOCK_TOKENS)
    return PER_TOKEN * tokens, PER_TOKEN * BLOCK_TOKENS * blocks
