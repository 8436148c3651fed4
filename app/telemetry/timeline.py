"""What the plots show: an answer or the session, and where its moments lie on the axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from app.telemetry.request_trace import RequestTrace
from app.telemetry.scales import time_range_s, token_range
from app.telemetry.series import Array
from app.telemetry.telemetry_model import TelemetryModel
from app.telemetry.time_scale import SECONDS, TimeScale, session_scale, token_scale

View = Literal["live", "answer", "session"]
Unit = Literal["seconds", "tokens", "session"]
VIEWS: tuple[View, ...] = ("live", "answer", "session")
# What "live" shows: the newest seconds or tokens. It moves on by a part of them at a time.
LIVE_S, LIVE_TOKENS, _LIVE_PARTS = 12.0, 256.0, 12
_SESSION_HEADROOM, _LEAST_SESSION_S = 1.02, 1.2


@dataclass(frozen=True, slots=True)
class Timeline:
    """Requests on one axis: in seconds from one's Send, in its tokens, or in the session's time.

    `traces`: the selected request, or all of the session in the order they were sent.
    """

    model: TelemetryModel
    traces: tuple[RequestTrace, ...]
    scale: TimeScale
    unit: Unit

    @property
    def is_session(self) -> bool:
        """Whether it has all requests."""
        return self.unit == "session"

    @property
    def trace(self) -> RequestTrace | None:
        """The request of an answer's timeline, None of the session's and where there is none."""
        return self.traces[0] if self.traces and not self.is_session else None

    def places(self, trace: RequestTrace, t_s: Array) -> Array:
        """Where moments of a request lie, given in seconds from its Send, shape [n]."""
        return self.scale.place(t_s + self._shift_s(trace))

    def place(self, trace: RequestTrace, t_s: float) -> float:
        """Where one moment lies."""
        return self.scale.place_of(t_s + self._shift_s(trace))

    def ghost_places(self, ghost: RequestTrace, t_s: Array) -> Array:
        """Where moments of an earlier run lie that is drawn behind the answer."""
        return token_scale(ghost).place(t_s) if self.unit == "tokens" else t_s

    def prefills(self) -> list[tuple[float, float]]:
        """From where to where prompts were read."""
        now = self.model.now_ns()
        spans = []
        for trace in self.traces:
            end = trace.ttft_s if trace.ttft_s is not None else trace.elapsed_s(now)
            spans.append((self.place(trace, trace.prefill_start_s), self.place(trace, end)))
        return spans

    def at(self, place: float) -> tuple[RequestTrace, float] | None:
        """The request that lies there, and the moment in seconds from its Send; None for none.

        In a session the selected one before others, those that ran then before those nearby.
        """
        if not self.traces or place < 0.0:
            return None
        second = self.scale.second_at(place)
        if not self.is_session:
            return self.traces[0], second
        selected = self.model.selected

        def rank(trace: RequestTrace) -> tuple[float, bool, float]:
            start, end = self.model.span_s(trace)
            return max(start - second, second - end, 0.0), trace is not selected, -start

        trace = min(self.traces, key=rank)
        start, end = self.model.span_s(trace)
        return trace, min(max(second, start), end) - start

    def range(self, view: View, ghost: RequestTrace | None) -> tuple[float, float]:
        """From where to where the axis goes when it follows the newest data."""
        if self.is_session:
            return 0.0, max(_LEAST_SESSION_S, self._end() * _SESSION_HEADROOM)
        now = self.model.now_ns()
        trace = self.trace
        elapsed_s = trace.elapsed_s(now) if trace else 0.0
        newest = self.scale.place_of(elapsed_s) if trace else 0.0
        span = LIVE_TOKENS if self.unit == "tokens" else LIVE_S
        if view == "live" and newest > span:
            part = span / _LIVE_PARTS
            end = float(np.ceil(newest / part) * part)
            return end - span, end
        if self.unit == "tokens":
            read = (trace.tokens_total or 0) if trace else 0
            before = float(token_scale(ghost).places[-1]) if ghost else 0.0
            return 0.0, token_range(max(newest, float(read), before))
        # Room for the prefill that is still to come: the axis then holds still until it is over.
        left_s = (trace.seconds_left(now) or 0.0) if trace else 0.0
        return 0.0, time_range_s(max(elapsed_s + left_s, ghost.last_s if ghost else 0.0))

    def _end(self) -> float:
        ends = [self.model.span_s(trace)[1] for trace in self.traces]
        ends += [load.end_s for load in self.model.loads]
        return self.scale.place_of(max(ends)) if ends else 0.0

    def _shift_s(self, trace: RequestTrace) -> float:
        return self.model.origin_s(trace) if self.is_session else 0.0


def make_timeline(model: TelemetryModel, view: View, *, by_token: bool) -> Timeline:
    """The timeline of a view as the model is now; a session is never drawn by token."""
    if view == "session":
        loads = [(load.start_s, load.end_s) for load in model.loads]
        scale = session_scale([*loads, *map(model.span_s, model.requests)])
        return Timeline(model, model.requests, scale, "session")
    trace = model.selected
    traces = (trace,) if trace else ()
    if by_token:
        scale = token_scale(trace) if trace else SECONDS
        return Timeline(model, traces, scale, "tokens")
    return Timeline(model, traces, SECONDS, "seconds")
