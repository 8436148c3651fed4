"""Steps with figures that hang together, under roofs of round figures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from app.telemetry.telemetry_model import TelemetryModel
from engine.events import Phase, StepStats
from engine.peaks import DevicePeaks, Roofs

MS = 1_000_000
FLOPS, BANDWIDTH = 100e9, 10e9  # ridge at 10 FLOP/byte
ROOFS = Roofs(DevicePeaks({"fp32": FLOPS, "bf16": 4 * FLOPS}, ((1 << 20, BANDWIDTH),)), "fp32")


def step(
    step_id: int,
    phase: Phase,
    flops: float,
    num_bytes: float,
    ms: float,
    *,
    tokens: int = 1,
    seqs: int = 1,
    t_ms: float | None = None,
) -> StepStats:
    """A step that ended `t_ms` after zero, by default 10 ms after the one before it."""
    seconds = ms / 1e3
    return StepStats(
        step_id,
        round((10 * step_id if t_ms is None else t_ms) * MS),
        phase,
        seqs,
        tokens,
        ms,
        round(flops),
        round(num_bytes),
        100 * flops / seconds / FLOPS,
        100 * num_bytes / seconds / BANDWIDTH,
    )


def prefill(step_id: int, **given: float) -> StepStats:
    """512 tokens at 200 FLOP/byte, half of the compute roof."""
    return step(step_id, "prefill", 2e9, 1e7, 40.0, tokens=512, **given)  # type: ignore[arg-type]


def decode(step_id: int, **given: float) -> StepStats:
    """A token at 2 FLOP/byte, four fifths of the bandwidth roof."""
    return step(step_id, "decode", 1.6e7, 8e6, 1.0, **given)  # type: ignore[arg-type]


@pytest.fixture
def model(qtbot: QtBot) -> Iterator[TelemetryModel]:
    """Zero is the start of the session; its timers end with the test."""
    model = TelemetryModel(clock=lambda: 0)
    yield model
    model.select(None)
    model.deleteLater()
