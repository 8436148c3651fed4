"""What is said: under which roof the phases lie, how near, and what a step did."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.roofline import words
from app.telemetry.telemetry_model import TelemetryModel
from engine.events import StepStats
from tests.app.roofline.conftest import ROOFS, decode, prefill, step


def places(
    model: TelemetryModel, *steps: StepStats
) -> tuple[words.PhasePlace | None, words.PhasePlace | None]:
    model.handle_events(steps)
    points = model.step_points()
    of_prefill = points.where(points.is_prefill)
    return words.place(of_prefill), words.place(points.where(~points.is_prefill))


def test_the_flip_is_said(model: TelemetryModel) -> None:
    """The usual answer: compute first, then bandwidth, each with its share."""
    both = places(model, prefill(1), decode(2), decode(3))
    assert words.headline(*both) == (
        "Prefill under the compute roof, decode under the bandwidth roof"
    )
    assert words.shares(*both) == (
        "Prefill, 512 tokens a step, reaches 50 % of what matrix products give here.\n"
        "Decode, 1 token a step, reaches 80 % of what memory gives here."
    )


def test_a_short_prompt_is_not_said_to_compute(model: TelemetryModel) -> None:
    """A few tokens read every weight for little arithmetic: no flip."""
    short = step(1, "prefill", 8e7, 2e7, 4.0, tokens=5)
    both = places(model, short, decode(2))
    assert words.headline(*both) == "Prefill and decode both under the bandwidth roof"
    assert "Prefill, 5 tokens a step, reaches 50 % of what memory gives" in words.shares(*both)


def test_many_chats_may_compute_in_decode(model: TelemetryModel) -> None:
    """Enough rows a step cross the ridge."""
    many = step(2, "decode", 8e8, 2e7, 10.0, tokens=40, seqs=40)
    both = places(model, prefill(1), many)
    assert words.headline(*both) == "Prefill and decode both under the compute roof"


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ((), "Each step against what this machine can do"),
        ((prefill(1),), "Prefill under the compute roof"),
        ((decode(1),), "Decode under the bandwidth roof"),
    ],
)
def test_what_has_not_run_is_not_said(
    model: TelemetryModel, steps: tuple[StepStats, ...], said: str
) -> None:
    """A prompt being read has no decode yet; a prompt from the cache hardly a prefill."""
    assert words.headline(*places(model, *steps)) == said


def test_a_step_is_read_out(model: TelemetryModel) -> None:
    """What it did in how long, and how far from its roof that is."""
    mixed = step(3, "mixed", 5e8, 1e7, 10.0, tokens=129, seqs=2)
    model.handle_events([decode(1), step(2, "decode", 1.6e7, 8e6, 1.0, seqs=2, tokens=2), mixed])
    points = model.step_points()
    assert words.describe(points, 0) == (
        "Decode step: 1 token in 1.00 ms, 16.0 MFLOP over 8.00 MB",
        "16.0 GFLOP/s at 2.00 FLOP/byte: 80 % of the bandwidth roof",
    )
    assert words.describe(points, 1)[0].startswith("Decode step of 2 chats: 2 tokens in")
    assert words.describe(points, 2)[0].startswith("Prefill and decode together: 129 tokens")


def test_roofs_measured_in_company_are_told() -> None:
    """They are too low: a share of them would say more than is true, and a reload mends it."""
    assert words.origin(ROOFS) == "roofs measured on this machine"
    busy = replace(ROOFS, peaks=replace(ROOFS.peaks, is_quiet=False))
    assert "other programs were busy; reload" in words.origin(busy)


def test_roofs_have_figures_and_units() -> None:
    """As the axis labels them."""
    assert words.compute_roof(ROOFS) == ("100 GFLOP/s", "FP32 products")
    assert words.bandwidth_roof(17.2e9, 143_000_000) == ("17.2 GB/s", "reading 143 MB")
    assert words.ridge(10.0) == "ridge, 10.0 FLOP/byte"
    assert words.subtitle(700e12)[1] == "TFLOP/s"
