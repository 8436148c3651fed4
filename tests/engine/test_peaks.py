"""The device's roofs: interpolated by working set, chosen by dtype."""

from __future__ import annotations

import pytest

from engine.peaks import DevicePeaks, Roofs

STEPS = ((1_000, 50.0), (2_000, 30.0), (4_000, 20.0))


@pytest.mark.parametrize(
    ("size", "rate"), [(1, 50), (1_000, 50), (1_500, 40), (2_000, 30), (3_000, 25), (9_999, 20)]
)
def test_bandwidth_is_interpolated_and_ends_level(size: int, rate: float) -> None:
    """Between two measured sizes on the line through them, beyond the ends as at the ends."""
    assert DevicePeaks({}, STEPS).bandwidth_at(size) == pytest.approx(rate)


def test_the_flat_roof_is_that_of_the_dtype() -> None:
    """Products of the loaded weights, not the fastest ones of the device."""
    peaks = DevicePeaks({"fp32": 1.0, "bf16": 4.0}, STEPS)
    assert Roofs(peaks, "fp32").matmul_flops == 1.0
    assert Roofs(peaks, "bf16").matmul_flops == 4.0
