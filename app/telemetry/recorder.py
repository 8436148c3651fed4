"""The recorder: everything measured in this session, as the four tables of the CSV export."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.telemetry.csv_rows import RowWriter
from app.telemetry.csv_tables import REQUESTS, SAMPLES, STEPS, TOKENS, Value
from app.telemetry.request_trace import RunPhase
from app.telemetry.session_log import SessionLog
from engine.events import (
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

_log = logging.getLogger("app.telemetry")

# The last tokens of an answer are painted after it has ended; their rows wait this long.
PAINT_GRACE_NS = 500_000_000
IDLE_BATCH = 30  # samples without a request are written in batches


@dataclass(frozen=True, slots=True)
class RecordProblem:
    """Recording or exporting did not succeed: what, why, and what to do next."""

    what: str
    why: str
    next: str


@dataclass
class _Request:
    """A request whose rows are not written yet."""

    request_id: str
    tokens: list[TokenEvent] = field(default_factory=list)
    painted_ns: list[int] = field(default_factory=list)
    kv_bytes_used: int | None = None
    end: GenerationFinished | GenerationFailed | None = None

    @property
    def phase(self) -> RunPhase:
        return "decode" if self.tokens else "prefill"


@dataclass(frozen=True, slots=True)
class _Sample:
    """A reading with what ran at that moment."""

    sample: SensorSample
    request_id: str | None
    phase: RunPhase
    kv_bytes_used: int | None


class CsvRecorder(QObject):
    """Collects what the engine, the sensors and the conversation report, and writes it down.

    With a folder it records continuously: rows are appended and flushed there as soon as a
    request is over. Without one it only keeps the session, for `export`. No prompt or answer
    text is kept. Lives in the GUI thread; a disk that fails never raises here.

    Signals:
        problem_occurred(RecordProblem): recording failed; said once until it works again.
    """

    problem_occurred = Signal(object)

    def __init__(
        self,
        folder: Path | None,
        session_id: str,
        clock: Callable[[], int] = time.perf_counter_ns,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._folder = folder
        self._rows = RowWriter(session_id, clock())
        self._log = SessionLog()
        self._loaded: ModelLoaded | None = None
        self._open: dict[str, _Request] = {}
        self._closed_ids: set[str] = set()
        self._t_send_ns: dict[str, int] = {}
        self._samples: list[_Sample] = []
        self._steps: list[StepStats] = []
        self._in_trouble = False
        self._is_closed = False

    # --- what others call -----------------------------------------------------------------

    @property
    def folder(self) -> Path | None:
        """Where it records continuously, None while it does not."""
        return self._folder

    def set_folder(self, folder: Path | None) -> None:
        """Record into this folder from now on, the session so far included; None: stop."""
        self._folder = folder
        self._in_trouble = False
        self._write([])

    def request_sent(self, request_id: str, t_ns: int) -> None:
        """The person pressed Send: samples from now on belong to this request."""
        self._request(request_id, t_ns)

    def handle_events(self, events: Sequence[Event | LoadEvent]) -> None:
        """Take in what the engine said, in order."""
        for event in events:
            match event:
                case PrefillProgress() | PrefillDone():
                    self._progressed(event)
                case TokenEvent():
                    if request := self._progressed(event):
                        request.tokens.append(event)
                case StepStats():
                    self._steps.append(event)
                case GenerationFinished():
                    self._ended(event, event.metrics.t_send_ns)
                case GenerationFailed():
                    self._ended(event, event.t_ns)
                case ModelLoaded():
                    self._loaded = event
                case _:
                    continue
        self._settle(max((e.t_ns for e in events if isinstance(e, StepStats)), default=0))

    def handle_sample(self, sample: SensorSample) -> None:
        """Take in a sensor reading."""
        running = [r for r in self._open.values() if r.end is None]
        if running:
            request = running[-1]
            row = _Sample(sample, request.request_id, request.phase, request.kv_bytes_used)
        else:
            row = _Sample(sample, None, "idle", None)
        self._samples.append(row)
        self._settle(sample.t_ns)
        if not running and len(self._samples) >= IDLE_BATCH:
            self._write([])

    def request_painted(self, request_id: str, index: int, t_ns: int) -> None:
        """The conversation shows the tokens up to `index` of this request since `t_ns`."""
        if request := self._open.get(request_id):
            shown = min(index + 1, len(request.tokens)) - len(request.painted_ns)
            request.painted_ns.extend([t_ns] * max(0, shown))
            self._settle(0)

    def export(self, folder: Path) -> RecordProblem | None:
        """Bring `folder` up to date with everything finished so far in this session.

        Rows that it already has from this session are not written twice. Returns what went
        wrong, None when all is written.
        """
        self._collect([r for r in self._open.values() if r.end])
        try:
            self._log.bring_up_to_date(folder)
        except OSError as error:
            return self._problem(self.tr("The metrics could not be exported."), error, folder)
        return None

    def close(self) -> None:
        """Write what is left, without waiting for paint times. What still comes is not kept."""
        self._write([r for r in self._open.values() if r.end])
        self._is_closed = True
        self._log.close()

    # --- what happens to a request --------------------------------------------------------

    def _request(self, request_id: str, t_send_ns: int) -> _Request | None:
        if request_id in self._closed_ids:
            return None
        if request_id not in self._open:
            self._open[request_id] = _Request(request_id)
            self._t_send_ns[request_id] = t_send_ns
        return self._open[request_id]

    def _progressed(self, event: PrefillProgress | PrefillDone | TokenEvent) -> _Request | None:
        request = self._request(event.request_id, event.t_send_ns)
        if request:
            # The engine's own moment of Send takes the place of the window's.
            self._t_send_ns[event.request_id] = event.t_send_ns
            request.kv_bytes_used = event.kv_bytes_used
        return request

    def _ended(self, event: GenerationFinished | GenerationFailed, t_send_ns: int) -> None:
        if request := self._request(event.request_id, t_send_ns):
            request.end = event

    def _settle(self, now_ns: int) -> None:
        over = [
            r
            for r in self._open.values()
            if r.end
            and (len(r.painted_ns) == len(r.tokens) or now_ns - r.end.t_ns > PAINT_GRACE_NS)
        ]
        if over:
            self._write(over)

    # --- writing --------------------------------------------------------------------------

    def _write(self, over: list[_Request]) -> None:
        if self._is_closed:
            return  # a sample may still be on its way from the sampler's thread
        self._collect(over)
        if self._folder is None:
            return
        try:
            self._log.bring_up_to_date(self._folder)
        except OSError as error:
            self._tell(self._problem(self.tr("Recording failed."), error, self._folder))
        else:
            self._in_trouble = False

    def _collect(self, over: list[_Request]) -> None:
        samples, self._samples = self._samples, []
        steps, self._steps = self._steps, []
        for request in over:
            del self._open[request.request_id]
            self._closed_ids.add(request.request_id)
        try:
            self._log.add(REQUESTS, [self._request_row(r) for r in over])
            self._log.add(
                TOKENS, [row for r in over for row in self._rows.tokens(r.tokens, r.painted_ns)]
            )
            self._log.add(SAMPLES, [self._sample_row(s) for s in samples])
            self._log.add(STEPS, [self._rows.step(s) for s in steps])
        except OSError as error:
            self._tell(self._problem(self.tr("Metrics of this session were lost."), error, None))

    def _problem(self, what: str, error: OSError, folder: Path | None) -> RecordProblem:
        _log.warning("%s %s", what, error)
        reason = error.strerror or str(error)
        where = f" ({folder})" if folder else ""
        next_step = self.tr("Free some space or choose another folder.")
        return RecordProblem(what, f"{reason}{where}.", next_step)

    def _tell(self, problem: RecordProblem) -> None:
        if not self._in_trouble:
            self._in_trouble = True
            self.problem_occurred.emit(problem)

    def _request_row(self, request: _Request) -> list[Value]:
        if isinstance(request.end, GenerationFinished):
            return self._rows.finished(request.end.metrics)
        return self._rows.failed(request.request_id, len(request.tokens), self._loaded)

    def _sample_row(self, row: _Sample) -> list[Value]:
        t_send_ns = None if row.request_id is None else self._t_send_ns[row.request_id]
        return self._rows.sample(
            row.sample, row.request_id, t_send_ns, row.phase, row.kv_bytes_used
        )
