"""Steps as points: where they lie, which roof is theirs, which ones are kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.telemetry.step_points import MOST_DECODE, MOST_PREFILL
from app.telemetry.telemetry_model import TelemetryModel
from engine.peaks import Roofs
from tests.app.roofline.conftest import BANDWIDTH, FLOPS, ROOFS, decode, prefill, step
from tests.app.telemetry.story import Story, loaded


def test_a_step_lies_at_its_intensity_and_rate(model: TelemetryModel) -> None:
    """FLOPs over bytes, and FLOPs over seconds; each under its own roof."""
    model.handle_events([prefill(1), decode(2)])
    points = model.step_points()
    assert points.intensity == pytest.approx([200.0, 2.0])
    assert points.rate == pytest.approx([50e9, 16e9])
    assert points.under_bandwidth.tolist() == [False, True]
    assert points.roof_pct == pytest.approx([50.0, 80.0])


@given(flops=st.floats(1e6, 1e13), num_bytes=st.floats(1e5, 1e11), ms=st.floats(0.01, 1e4))
def test_the_share_is_that_of_the_lower_roof(flops: float, num_bytes: float, ms: float) -> None:
    """The roof is min(peak, intensity x bandwidth), by the textbook and not by MFU and MBU."""
    model = TelemetryModel(clock=lambda: 0)
    flops, num_bytes = round(flops), round(num_bytes)
    model.handle_events([step(1, "decode", flops, num_bytes, ms)])
    points = model.step_points()
    roof = min(FLOPS, flops / num_bytes * BANDWIDTH)
    assert points.roof_pct[0] == pytest.approx(100 * flops / (ms / 1e3) / roof, rel=1e-6)
    if flops / num_bytes != pytest.approx(FLOPS / BANDWIDTH):
        assert points.under_bandwidth[0] == (flops / num_bytes < FLOPS / BANDWIDTH)


def test_neither_phase_pushes_the_other_out(model: TelemetryModel) -> None:
    """A long answer's decode steps leave its few prefill steps; both are bounded."""
    model.handle_events([prefill(n) for n in range(300)])
    model.handle_events([decode(n) for n in range(300, 3_000)])
    points = model.step_points()
    assert points.is_prefill.sum() == MOST_PREFILL
    assert len(points) == MOST_PREFILL + MOST_DECODE
    assert points.step_id[-1] == 2_999
    assert (np.diff(points.step_id) > 0).all()


def test_unmeasured_steps_are_no_points(model: TelemetryModel) -> None:
    """Without peaks there is no share, and without bytes no intensity."""
    model.handle_events(
        [replace(decode(1), mfu_pct=None, mbu_pct=None), replace(decode(2), bytes=0), decode(3)]
    )
    assert model.step_points().step_id.tolist() == [3]


def test_other_roofs_begin_anew(model: TelemetryModel) -> None:
    """Shares of other peaks are not drawn under these; the same peaks again keep the steps."""
    first = replace(loaded(), roofs=ROOFS)
    model.handle_events([first, decode(1), replace(first, weight_bytes=1), decode(2)])
    assert model.step_points().step_id.tolist() == [1, 2]
    model.handle_events([replace(first, roofs=Roofs(ROOFS.peaks, "bf16"))])
    assert not len(model.step_points())
    model.handle_events([decode(3)])
    assert model.step_points().step_id.tolist() == [3]


def test_the_selected_answers_steps_are_marked(model: TelemetryModel) -> None:
    """Those that ran from its Send to its end."""
    story = Story(num_tokens=10)
    before, after = decode(900, t_ms=500), decode(901, t_ms=90_000)
    model.handle_events([before, *story.events(), after])
    model.select("r1")
    points = model.step_points()
    assert points.is_selected.tolist() == [False, *[True] * (len(points) - 2), False]
    model.select(None)
    assert not model.step_points().is_selected.any()
