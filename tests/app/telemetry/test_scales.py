"""Axes end at round places and long lines are thinned without moving their ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QRectF

from app.telemetry import scales
from app.telemetry.pixel_items import one_a_pixel
from app.telemetry.series import Series


@given(st.floats(min_value=0, max_value=50_000))
def test_time_range_holds_the_data_and_never_shrinks_with_it(elapsed: float) -> None:
    """The newest data is always inside, and a longer answer never gets a shorter axis."""
    end = scales.time_range_s(elapsed)
    assert end >= elapsed
    assert scales.time_range_s(elapsed * 1.5) >= end


def test_time_range_grows_in_steps() -> None:
    """Between two redraws of a running answer the axis usually stands still."""
    ends = {scales.time_range_s(t / 100) for t in range(1_000)}
    assert ends == {1.2, 3.0, 6.0, 12.0}


@given(
    st.floats(min_value=0, max_value=1e4),
    st.floats(min_value=1e-3, max_value=1e6),
    st.integers(1, 8),
)
def test_ticks_are_few_rising_and_inside(low: float, span: float, max_ticks: int) -> None:
    """Never more than asked for, none outside, each label different from the next."""
    positions = scales.ticks(low, low + span, max_ticks)
    assert len(positions) <= max_ticks + 1
    assert positions == sorted(set(positions))
    assert all(low - span * 1e-6 <= p <= low + span * (1 + 1e-6) for p in positions)
    assert len(set(scales.tick_labels(positions))) == len(positions)


def test_tick_labels_have_the_decimals_of_their_step() -> None:
    """0.2 steps show one decimal, whole steps none, thousands are separated."""
    assert scales.tick_labels([0.0, 0.2, 0.4]) == ["0.0", "0.2", "0.4"]
    assert scales.tick_labels([0.0, 2.5]) == ["0.0", "2.5"]
    assert scales.tick_labels([0.0, 1000.0]) == ["0", "1,000"]


def test_one_late_token_does_not_set_the_axis() -> None:
    """With sixty tokens a single late one is left out; with none there is nothing to cover."""
    values = np.full(60, 7.0)
    values[30] = 41.0
    assert scales.covered(values) == 7.0
    assert scales.covered(np.empty(0)) == 0.0


@given(st.floats(min_value=1e-3, max_value=1e6))
def test_axis_top_is_above_and_near(value: float) -> None:
    """The axis holds the value and wastes less than half of its height."""
    assert value * (1 - 1e-9) <= scales.axis_top(value, 4) <= value * 2


@given(st.integers(1, 3_000), st.integers(64, 400))
def test_thinned_lines_keep_their_range(length: int, points: int) -> None:
    """A thinned line has no more points than asked for and stays within the original's values."""
    x = np.arange(length, dtype=float)
    y = np.sin(x)
    for thin in (scales.thin_by_mean, scales.thin_by_stride):
        thin_x, thin_y = thin(x, y, points)
        assert len(thin_x) == len(thin_y) == min(length, points)
        assert thin_y.min() >= y.min() - 1e-12
        assert thin_y.max() <= y.max() + 1e-12
    kept, _ = scales.thin_by_stride(x, y, points)
    assert (kept[0], kept[-1]) == (0, length - 1)


@given(st.integers(1, 500), st.integers(1, 60))
def test_thinned_steps_keep_time_and_mean(count: int, steps: int) -> None:
    """Fewer steps over the same time with the same mean utilization: none is lost."""
    edges = np.linspace(0.0, 7.0, count + 1)
    x = np.column_stack((edges[:-1], edges[1:])).ravel()
    y = np.repeat(np.arange(count, dtype=float), 2)
    thin_x, thin_y = scales.thin_steps(x, y, steps)
    assert len(thin_x) == len(thin_y) <= 2 * max(1, min(count, steps))
    assert (thin_x[0], thin_x[-1]) == (0.0, 7.0)
    mean = ((thin_x[1::2] - thin_x[::2]) * thin_y[::2]).sum() / 7.0
    assert mean == pytest.approx((count - 1) / 2)


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.none() | st.floats(-1e9, 1e9)), max_size=700))
def test_series_keeps_every_row_through_its_growth(rows: list[tuple[float, float | None]]) -> None:
    """Columns hold what was appended, in order, None as NaN, whatever the capacity."""
    series = Series("a", "b")
    for row in rows:
        series.append(*row)
    assert len(series) == len(rows)
    assert series["a"].tolist() == [a for a, _ in rows]
    assert [None if np.isnan(b) else b for b in series["b"]] == [b for _, b in rows]
    assert series.last("b") == (rows[-1][1] if rows else None)


def test_series_refuses_a_row_of_another_width() -> None:
    """A forgotten column is an error, not a silent shift."""
    with pytest.raises(ValueError, match="broadcast"):
        Series("a", "b").append(1.0, 2.0, 3.0)


def test_dots_of_a_crowd_are_one_a_pixel_and_keep_every_outlier() -> None:
    """The pixels that have a dot are the same as with all of them; what is outside is left out."""
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(-200.0, 700.0, 50_000))
    y = rng.normal(80.0, 4.0, 50_000)
    y[::5_000] = 3.0
    area = QRectF(50.0, 0.0, 400.0, 200.0)
    seen = one_a_pixel(x, y, area)
    near = (x >= 46) & (x <= 454)
    expected = {(round(a), round(b)) for a, b in zip(x[near], y[near], strict=True)}
    assert {(round(a), round(b)) for a, b in zip(*seen, strict=True)} == expected
    assert len(seen[0]) == len(expected)


def test_few_dots_stay_where_they_are() -> None:
    """Below a crowd no dot is moved to a whole pixel."""
    x, y = np.array([10.25, 20.5]), np.array([3.3, 4.4])
    seen = one_a_pixel(x, y, QRectF(0, 0, 100, 100))
    assert seen[0].tolist() == x.tolist()
    assert seen[1].tolist() == y.tolist()
