"""Figures are written with three significant digits, a unit apart, and never scientifically."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.telemetry import format as fmt


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
        (0, "0"),
        (7.2, "7.20"),
        (9.996, "10.0"),
        (999.6, "1,000"),
        (118.4, "118"),
        (2047, "2,050"),
        (130, "130"),
        (1_234_567, "1,230,000"),
        (0.0423, "0.0423"),
        (0.00001, "<0.001"),
    ],
)
def test_three_digits(value: float | None, text: str) -> None:
    """Rounding, thousands, small values and missing values have one form each."""
    assert fmt.three_digits(value) == text


@given(st.floats(min_value=0.001, max_value=1e15))
def test_three_digits_is_plain_and_close(value: float) -> None:
    """Whatever the value: no exponent, and off by at most half of the third digit."""
    text = fmt.three_digits(value)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.006)


@pytest.mark.parametrize(
    ("quantity", "text"),
    [
        (fmt.milliseconds(118.2), "118 ms"),
        (fmt.milliseconds(999.4), "999 ms"),
        (fmt.milliseconds(999.7), "1.00 s"),
        (fmt.milliseconds(3100), "3.10 s"),
        (fmt.milliseconds(None), "– ms"),
        (fmt.millisecond_pair(7.2, 8.61), "7.20 / 8.61 ms"),
        (fmt.millisecond_pair(900.0, 1800.0), "0.900 / 1.80 s"),
        (fmt.millisecond_pair(None, None), "– ms"),
        (fmt.memory(94_371_840), "94.4 MB"),
        (fmt.memory(999_600_000), "1.00 GB"),
        (fmt.memory(None), "– MB"),
        (fmt.tokens_per_second(139.2), "139 tok/s"),
        (fmt.percent(7.46), "7.46 %"),
    ],
)
def test_quantities_choose_their_unit(quantity: fmt.Quantity, text: str) -> None:
    """Seconds from one second, GB from one thousand MB, a dash keeps its unit."""
    assert quantity.text == text


def test_counts_and_time_left() -> None:
    """Counts are exact; the time left is a rough word, never "0 s"."""
    assert fmt.count(4096) == "4,096"
    assert fmt.count(None) == "–"
    assert fmt.about_seconds(0.2) == "under 1 s"
    assert fmt.about_seconds(4.6) == "about 5 s"
    assert fmt.about_seconds(170) == "about 3 min"


def test_work_and_rates_take_the_unit_that_keeps_them_short() -> None:
    """By thousands from millions up; what rounds to a thousand is one of the next."""
    assert fmt.operations(269e6).text == "269 MFLOP"
    assert fmt.operations(2e15).text == "2,000 TFLOP"
    assert fmt.operation_rate(999.6e6).text == "1.00 GFLOP/s"
    assert fmt.operation_rate(160e9).text == "160 GFLOP/s"
    assert fmt.bandwidth(17.2e9).text == "17.2 GB/s"
    assert fmt.bandwidth(4.8e12).text == "4.80 TB/s"
