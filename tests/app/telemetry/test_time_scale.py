"""The three time axes: moments in order, idle times left out, tokens counted."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.telemetry.request_trace import RequestTrace
from app.telemetry.time_scale import SECONDS, session_scale, token_scale
from tests.app.telemetry.story import Story

TIMES = st.floats(0.0, 5e4, allow_nan=False)
STRETCHES = st.lists(st.tuples(TIMES, st.floats(0.0, 500.0)), min_size=1, max_size=20).map(
    lambda pairs: [(start, start + length) for start, length in pairs]
)


def test_seconds_stay_as_they_are() -> None:
    """Back and forth, before zero and after."""
    t_s = np.array([-1.0, 0.0, 2.5, 1e5])
    assert SECONDS.place(t_s).tolist() == t_s.tolist()
    assert SECONDS.second_at(2.5) == 2.5


@given(STRETCHES, st.lists(TIMES, min_size=2, max_size=30))
def test_a_session_keeps_order_and_busy_time(
    stretches: list[tuple[float, float]], moments: list[float]
) -> None:
    """Later is never further left, busy seconds keep their length, idle ones have at most a gap."""
    scale = session_scale(stretches)
    moments = sorted(moments)
    places = scale.place(np.array(moments))
    assert np.all(np.diff(places) >= -1e-6)
    for start, end in stretches:
        assert scale.place_of(end) - scale.place_of(start) >= (end - start) - 1e-6
    assert scale.place_of(min(start for start, _ in stretches)) == 0.0
    for gap in scale.gaps:
        assert 0 < gap.end - gap.start < gap.seconds


@given(STRETCHES)
def test_a_place_leads_back_to_its_moment(stretches: list[tuple[float, float]]) -> None:
    """Also in a gap and beyond the end."""
    scale = session_scale(stretches)
    end = float(scale.places[-1])
    for place in np.linspace(0.0, end + 5.0, 40):
        assert scale.place_of(scale.second_at(float(place))) == pytest.approx(place, abs=1e-5)


@given(STRETCHES)
def test_gaps_are_what_is_missing(stretches: list[tuple[float, float]]) -> None:
    """The whole time is the axis and what its gaps leave out; no two gaps overlap."""
    scale = session_scale(stretches)
    first = min(start for start, _ in stretches)
    last = max(end for _, end in stretches)
    left_out = sum(gap.seconds - (gap.end - gap.start) for gap in scale.gaps)
    assert scale.place_of(last) + left_out == pytest.approx(last - first, abs=1e-4)
    assert all(one.end <= two.start for one, two in pairwise(scale.gaps))


def test_gaps_stay_in_proportion() -> None:
    """Two seconds in a short session; in one of an hour of work still more than a per cent."""
    short = session_scale([(0.0, 5.0), (100.0, 103.0)])
    assert [(gap.start, gap.end, gap.seconds) for gap in short.gaps] == [(5.0, 7.0, 95.0)]
    (gap,) = session_scale([(0.0, 3_600.0), (9_000.0, 9_010.0)]).gaps
    assert gap.end - gap.start == 64.0


def test_tokens_count_from_the_cached_prefix() -> None:
    """The prompt in its chunks, then one a token; before and after, nothing moves."""
    story = Story(prompt_tokens=300, cached_tokens=40, num_tokens=12)
    trace = RequestTrace("r1", story.t_send_ns)
    for event in story.events():
        if hasattr(event, "request_id"):
            trace.handle(event)  # type: ignore[arg-type]
    scale = token_scale(trace)
    assert scale.place_of(0.0) == 40
    assert trace.ttft_s is not None
    assert scale.place_of(trace.ttft_s - 1e-6) == pytest.approx(300, abs=0.01)
    assert scale.place(trace.tokens["t_s"]).tolist() == list(range(301, 313))
    assert scale.place_of(1e4) == 312
    assert scale.second_at(305.0) == trace.tokens["t_s"][4]
    assert scale.second_at(1e9) == trace.tokens["t_s"][-1]


def test_nothing_yet_has_a_scale() -> None:
    """Before the first chunk and in a session without a request."""
    assert token_scale(RequestTrace("r", 0)).place_of(3.0) == 0.0
    assert session_scale([]) is SECONDS
