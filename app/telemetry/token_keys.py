"""From token to token by keys, across the answers of a session."""

from __future__ import annotations

from PySide6.QtCore import Qt

from app.telemetry.request_trace import RequestTrace
from app.telemetry.timeline import Timeline

_KEYS = (Qt.Key.Key_Left, Qt.Key.Key_Right, Qt.Key.Key_Home, Qt.Key.Key_End)


def token_for(
    key: int, timeline: Timeline, trace: RequestTrace | None, row: int | None
) -> tuple[RequestTrace, int] | None:
    """The token that a key leads to from a request's token at `row`; None for none.

    Where no token is read yet, left and right lead to the newest one.
    """
    traces = [each for each in timeline.traces if len(each.tokens)]
    if not traces or key not in _KEYS:
        return None
    if key == Qt.Key.Key_Home:
        return traces[0], 0
    if key == Qt.Key.Key_End or trace not in traces or row is None:
        return _last(traces[-1])
    number = traces.index(trace)
    if key == Qt.Key.Key_Left:
        if row > 0:
            return trace, row - 1
        return _last(traces[number - 1]) if number else (trace, 0)
    if row + 1 < len(trace.tokens):
        return trace, row + 1
    return (traces[number + 1], 0) if trace is not traces[-1] else _last(trace)


def _last(trace: RequestTrace) -> tuple[RequestTrace, int]:
    return trace, len(trace.tokens) - 1
