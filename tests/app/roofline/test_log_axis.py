"""Logarithmic axes: pixels and values belong together, ends and ticks are round."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.roofline.log_axis import LogAxis, log_ticks, rung_above, rung_below

VALUES = st.floats(1e-3, 1e16)


def test_decades_are_equally_wide() -> None:
    """Each power of ten takes a third of an axis of three."""
    axis = LogAxis(1.0, 1_000.0, 50.0, 300.0)
    assert [axis.px(v) for v in (1, 10, 100, 1_000)] == pytest.approx([50, 150, 250, 350])
    assert axis.pixels(np.array([10.0, 100.0])) == pytest.approx([150, 250])


@given(value=VALUES, start=st.floats(0, 500), length=st.floats(50, 900))
def test_a_pixel_gives_its_value_back(value: float, start: float, length: float) -> None:
    """Also on an axis that grows upwards, where its length is negative."""
    for signed in (length, -length):
        axis = LogAxis(value / 7, value * 31, start, signed)
        assert axis.value(axis.px(value)) == pytest.approx(value, rel=1e-6)


@given(value=VALUES)
def test_rungs_are_the_nearest_round_figures(value: float) -> None:
    """1, 2 or 5 times a power of ten, not farther than a factor of 2.5 away."""
    below, above = rung_below(value), rung_above(value)
    assert 1 - 1e-6 <= value / below <= 2.5 * (1 + 1e-6)
    assert 1 - 1e-6 <= above / value <= 2.5 * (1 + 1e-6)
    for rung in (below, above):
        leading = rung / 10 ** math.floor(math.log10(rung) + 1e-9)
        assert min(abs(leading - step) for step in (1, 2, 5)) < 1e-6


def test_a_short_axis_has_more_ticks_than_decades() -> None:
    """At least three labels, whatever the span; powers of ten alone on a long one."""
    assert log_ticks(2, 100) == pytest.approx([2, 5, 10, 20, 50, 100])
    assert log_ticks(0.1, 2_000) == pytest.approx([0.1, 1, 10, 100, 1_000])
