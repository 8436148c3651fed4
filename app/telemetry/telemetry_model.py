"""The data behind every live panel: events and sensor samples in, arrays and readings out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QObject, QTimer, Signal

from app.telemetry.instant import Instant, instant_at
from app.telemetry.late_causes import LateCause, Rows, late_causes
from app.telemetry.request_trace import RequestTrace, RunPhase
from app.telemetry.series import Array, Series
from app.telemetry.stages_sums import AnswerStages, StageLog
from app.telemetry.step_line import StepLine, session_line, step_line
from app.telemetry.step_points import COLUMNS, StepPoints, newest_points
from engine.events import (
    BlockMap,
    ContextCut,
    Event,
    GenerationFailed,
    GenerationFinished,
    LoadEvent,
    ModelLoaded,
    PrefillDone,
    PrefillProgress,
    StepStats,
    TokenEvent,
)
from engine.sensors import SensorSample

# Facts that arrive within this time are announced together: whatever the panels do about them
# holds the interpreter that the engine's thread needs for every operation.
COALESCE_MS = 400
# While the prompt is read little happens, yet the running TTFT must be seen to count.
PREFILL_TICK_MS = 250
SAMPLE_COLUMNS = ("t_s", "gpu_pct", "cpu_pct")
# A step that ends with the last token is stamped just after it.
STAMP_SLACK_S = 0.002


@dataclass(frozen=True, slots=True)
class LoadSpan:
    """When a model was loaded: seconds since the session began; the warm-up comes last."""

    start_s: float
    warmup_s: float
    end_s: float


class TelemetryModel(QObject):
    """Owns the traces of all requests of this session, the engine's steps and the samples.

    One request is selected; the panels show it as "this answer", Send being zero. Every time is
    the engine's own stamp. Knows nothing of widgets.

    Signals:
        changed(): something the panels show is new; several facts are announced together.
    """

    changed = Signal()

    def __init__(
        self,
        clock: Callable[[], int] = time.perf_counter_ns,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._clock = clock
        self._t0_ns = clock()
        self._traces: dict[str, RequestTrace] = {}
        self._selected: RequestTrace | None = None
        self._loaded: ModelLoaded | None = None
        self._blocks: BlockMap | None = None
        self._steps = Series(*COLUMNS)
        self._stages = StageLog()
        self._loads: list[LoadSpan] = []
        self._first_comparable = 0  # row of the first step measured against the present roofs
        self._samples = Series(*SAMPLE_COLUMNS)
        self._announce = QTimer(self, interval=COALESCE_MS, singleShot=True)
        self._announce.timeout.connect(self.changed)
        self._tick = QTimer(self, interval=PREFILL_TICK_MS)
        self._tick.timeout.connect(self.changed)

    # --- facts ----------------------------------------------------------------------------

    def request_sent(self, request_id: str, t_ns: int) -> None:
        """The person pressed Send: select this request and start its wait."""
        self.select(self._begin(request_id, t_ns).request_id)

    def note_request(self, request_id: str, t_ns: int) -> None:
        """A request that is not part of a chat was sent: the panels stay where they are."""
        self._begin(request_id, t_ns)

    def handle_events(self, events: Sequence[Event | LoadEvent]) -> None:
        """Take in what the engine said, in order."""
        for event in events:
            match event:
                case StepStats():
                    self._note_step(event)
                case PrefillProgress() | PrefillDone() | TokenEvent():
                    self._trace_of(event.request_id, event.t_send_ns).handle(event)
                case ContextCut() | GenerationFinished() | GenerationFailed():
                    if trace := self._traces.get(event.request_id):
                        trace.handle(event)
                case ModelLoaded():
                    self._note_model(event)
                case BlockMap():
                    self._note_blocks(event)
                case _:
                    continue
            self._touch()
        self._follow_phase()

    def handle_sample(self, sample: SensorSample) -> None:
        """Take in a sensor reading. It only matters to the panels if the answer was running."""
        before = self._samples.last("t_s")
        self._samples.append(
            (sample.t_ns - self._t0_ns) / 1e9, sample.gpu_util_pct, sample.cpu_util_pct
        )
        trace = self._selected
        # A reading describes the time before it, so the first one after the end still counts.
        if trace and (trace.end_s is None or (before or 0.0) < self.origin_s(trace) + trace.end_s):
            self._touch()

    def request_painted(self, request_id: str, index: int, t_ns: int) -> None:
        """The conversation shows the tokens up to `index` of this request since `t_ns`."""
        if trace := self._traces.get(request_id):
            trace.painted(index, t_ns)

    def select(self, request_id: str | None) -> None:
        """Show another request; None or an unknown one empties the panels."""
        self._selected = self._traces.get(request_id) if request_id is not None else None
        self._follow_phase()
        self._announce.stop()
        self.changed.emit()

    def model_dropped(self) -> None:
        """The model is gone, and the pool with it."""
        self._blocks = None
        self._touch()

    def clear(self) -> None:
        """Forget everything, to be told another session or this one again."""
        self._traces.clear()
        self._loaded = self._blocks = None
        self._loads.clear()
        self._steps, self._first_comparable = Series(*COLUMNS), 0
        self._stages = StageLog()
        self._samples = Series(*SAMPLE_COLUMNS)
        self.select(None)

    # --- what the panels read -------------------------------------------------------------

    @property
    def selected(self) -> RequestTrace | None:
        """The request that the panels show."""
        return self._selected

    @property
    def requests(self) -> tuple[RequestTrace, ...]:
        """All requests of this session, in the order they were sent."""
        return tuple(self._traces.values())

    def request(self, request_id: str) -> RequestTrace | None:
        """One request of this session."""
        return self._traces.get(request_id)

    @property
    def phase(self) -> RunPhase:
        """What the selected request is doing now."""
        return self._selected.phase if self._selected else "idle"

    @property
    def kv_bytes_reserved(self) -> int | None:
        """The whole cache pool: of the selected request's model, else of the loaded one."""
        if self._selected:
            return self._selected.kv_bytes_reserved
        return self._loaded.kv_bytes_reserved if self._loaded else None

    @property
    def pool_tokens(self) -> int | None:
        """How many tokens the pool holds."""
        return self._selected.pool_tokens if self._selected else _pool_tokens(self._loaded)

    @property
    def loaded(self) -> ModelLoaded | None:
        """The model that was loaded last."""
        return self._loaded

    @property
    def loads(self) -> tuple[LoadSpan, ...]:
        """When models were loaded, as far as it is known."""
        return tuple(self._loads)

    @property
    def blocks(self) -> BlockMap | None:
        """Who has which block of the loaded model's pool."""
        return self._blocks

    @property
    def on_gpu(self) -> bool:
        """Whether the device curve is a GPU's or this process' CPU."""
        return self._selected.on_gpu if self._selected else _on_gpu(self._loaded)

    def now_ns(self) -> int:
        """The engine's clock."""
        return self._clock()

    def running_ttft_s(self) -> float | None:
        """The wait so far while the prompt is read, None otherwise."""
        if self._selected is None or self._selected.phase != "prefill":
            return None
        return self._selected.elapsed_s(self._clock())

    def origin_s(self, trace: RequestTrace) -> float:
        """When the request was sent, in seconds since the session began."""
        return (trace.t_send_ns - self._t0_ns) / 1e9

    def span_s(self, trace: RequestTrace) -> tuple[float, float]:
        """From Send to the end, or to now, in seconds since the session began."""
        start = self.origin_s(trace)
        return start, start + trace.elapsed_s(self._clock())

    def concurrent(self, trace: RequestTrace) -> list[RequestTrace]:
        """Other requests that ran at some time while `trace` did."""
        start, end = self.span_s(trace)
        others = (t for t in self._traces.values() if t is not trace)
        return [t for t in others if self.span_s(t)[0] < end and self.span_s(t)[1] > start]

    def steps_of(self, trace: RequestTrace) -> StepLine:
        """MFU and MBU of the engine's steps while the request ran, in seconds from its Send."""
        rows = self._window(self._steps["t_s"], trace)
        return step_line(self._steps, rows, self.origin_s(trace))

    def session_steps(self) -> StepLine:
        """MFU and MBU of every step, in seconds since the session began; 0 where none ran."""
        return session_line(self._steps)

    def stages_of(self, trace: RequestTrace) -> AnswerStages:
        """Where the time of the engine's steps went that computed the request."""
        origin = self.origin_s(trace)
        end = np.inf if trace.end_s is None else origin + trace.end_s + STAMP_SLACK_S
        return self._stages.of(trace.request_id, origin + trace.prefill_start_s, end)

    def step_points(self) -> StepPoints:
        """The newest steps under the present roofs, those of the selected request marked."""
        times = self._steps["t_s"]
        selected = self._window(times, self._selected) if self._selected else slice(0, 0)
        return newest_points(self._steps, self._first_comparable, selected)

    def device_steps(self, trace: RequestTrace) -> tuple[Array, Array]:
        """Device utilization in % as steps: x and y of the corners, seconds from Send.

        Each reading holds for the time since the one before it, for that is what it measured.
        """
        starts, times, values = self._device_samples(trace.on_gpu)
        origin, end = self.origin_s(trace), trace.elapsed_s(self._clock())
        starts, times = starts - origin, times - origin
        within = (times > 0) & (starts < end)
        x = np.column_stack((starts[within], times[within])).ravel().clip(0.0, end)
        return x, np.repeat(values[within], 2)

    def session_device(self) -> tuple[Array, Array]:
        """The same of every sample, in seconds since the session began."""
        starts, times, values = self._device_samples(self.on_gpu)
        return np.column_stack((np.maximum(starts, 0.0), times)).ravel(), np.repeat(values, 2)

    def instant(self, trace: RequestTrace, t_s: float) -> Instant:
        """Everything known of the moment `t_s` seconds after the request's Send."""
        return instant_at(trace, t_s, self._steps, self._samples, self.origin_s(trace))

    def device_is_silent(self, trace: RequestTrace) -> bool:
        """Whether the sensors answer, but have no utilization for the request's device."""
        column = "gpu_pct" if trace.on_gpu else "cpu_pct"
        return len(self._samples) > 0 and self._samples.last(column) is None

    def late_causes(self, trace: RequestTrace, rows: Rows) -> list[LateCause | None]:
        """Why these rows of the request's tokens came late, None where it is not known."""
        window = self._window(self._steps["t_s"], trace)
        return late_causes(trace, rows, self._steps, window)

    # --- bookkeeping ----------------------------------------------------------------------

    def _begin(self, request_id: str, t_send_ns: int) -> RequestTrace:
        loaded = self._loaded
        trace = RequestTrace(
            request_id,
            t_send_ns,
            kv_bytes_reserved=loaded.kv_bytes_reserved if loaded else None,
            pool_tokens=_pool_tokens(loaded),
            on_gpu=_on_gpu(loaded),
        )
        self._traces[request_id] = trace
        return trace

    def _trace_of(self, request_id: str, t_send_ns: int) -> RequestTrace:
        trace = self._traces.get(request_id)
        if trace is None:
            trace = self._begin(request_id, t_send_ns)
            if self.phase == "idle":
                self._selected = trace
        return trace

    def _note_model(self, loaded: ModelLoaded) -> None:
        # Shares of other peaks are drawn under other roofs.
        if self._loaded is None or loaded.roofs != self._loaded.roofs:
            self._first_comparable = len(self._steps)
        self._loaded, self._blocks = loaded, loaded.blocks
        if loaded.blocks is not None:
            end_s = (loaded.blocks.t_ns - self._t0_ns) / 1e9
            warmup_s = end_s - loaded.warmup_s
            self._loads.append(LoadSpan(warmup_s - loaded.load_s, warmup_s, end_s))

    def _device_samples(self, on_gpu: bool) -> tuple[Array, Array, Array]:
        """Start, end and value of each known reading of the device's utilization."""
        times, values = self._samples["t_s"], self._samples["gpu_pct" if on_gpu else "cpu_pct"]
        known = ~np.isnan(values)
        times, values = times[known], values[known]
        return np.concatenate(([-np.inf], times))[: len(times)], times, values

    def _note_blocks(self, blocks: BlockMap) -> None:
        self._blocks = blocks
        for owner in blocks.owners:
            if owner.block_tables and (trace := self._traces.get(owner.request_id)):
                trace.block_tables = owner.block_tables

    def _note_step(self, step: StepStats) -> None:
        t_s = (step.t_ns - self._t0_ns) / 1e9
        self._stages.note(step, t_s)
        self._steps.append(
            t_s,
            step.step_ms / 1e3,
            step.phase != "decode",
            step.num_seqs,
            step.step_id,
            step.mfu_pct,
            step.mbu_pct,
            step.phase == "mixed",
            step.num_tokens,
            step.flops,
            step.bytes,
        )

    def _window(self, times: Array, trace: RequestTrace) -> slice:
        origin = self.origin_s(trace)
        end = np.inf if trace.end_s is None else origin + trace.end_s
        first, last = np.searchsorted(times, [origin, end + STAMP_SLACK_S])
        return slice(int(first), int(last))

    def _touch(self) -> None:
        if not self._announce.isActive():
            self._announce.start()

    def _follow_phase(self) -> None:
        if self.phase != "prefill":
            self._tick.stop()
        elif not self._tick.isActive():
            self._tick.start()


def _pool_tokens(loaded: ModelLoaded | None) -> int | None:
    if loaded is None:
        return None
    return loaded.config.kv_pool_tokens or loaded.config.context_length


def _on_gpu(loaded: ModelLoaded | None) -> bool:
    return loaded is not None and loaded.config.device.startswith("cuda")
