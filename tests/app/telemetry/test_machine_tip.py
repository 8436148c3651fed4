"""The tip over the utilization plot: the model's GPU first, the others after it."""

from __future__ import annotations

from dataclasses import replace

from pytestqt.qtbot import QtBot

from app.telemetry.machine_tip import machine_text
from engine.nvml.readings import GpuReading
from engine.sensors import SensorSample
from tests.app.conftest import MakeProgram

SAMPLE = SensorSample(0, None, None, None, None, 1.0, 1)
WATCHED = replace(
    SAMPLE,
    device_index=1,
    gpu_util_pct=86.0,
    gpu_mem_used_bytes=5_000_000_000,
    gpu_process_mem_bytes=4_000_000_000,
    gpu_power_w=215.5,
    gpu_temperature_c=61,
    gpu_sm_clock_mhz=1980,
    gpu_sm_active_pct=12.5,
    gpu_dram_active_pct=91.0,
)


def test_a_machine_without_a_watched_gpu_says_nothing_of_gpus(qapp: object) -> None:
    """A model on the processor: there is nothing to list."""
    assert machine_text(SAMPLE) == ""


def test_every_gpu_has_a_line_and_only_figures_that_were_measured(qapp: object) -> None:
    """The one the model runs on first; a card that gives nothing says so."""
    others = (GpuReading(0, "Small", util_pct=3.0, temperature_c=40), GpuReading(2, "Mute"))
    assert machine_text(replace(WATCHED, other_gpus=others)).splitlines() == [
        "This model's GPU: 86.0 % busy, 5.00 GB, 4.00 GB of it ours, 216 W, 61 °C, 1,980 MHz, "
        "SM active 12.5 %, memory active 91.0 %",
        "GPU 0 Small: 3.00 % busy, 40 °C",
        "GPU 2 Mute: no values",
    ]


def test_a_driver_that_crashed_is_told(qapp: object) -> None:
    """Why there are no figures, that the program goes on, and what helps."""
    problem = "the process that asks the driver crashed (Segmentation fault); tried again in 5 s"
    assert machine_text(replace(SAMPLE, gpu_problem=problem)).splitlines() == [
        f"No GPU values: {problem}.",
        "The model runs on. If this lasts, reinstall the GPU's driver.",
    ]


def test_a_reading_reaches_the_tip_in_the_window(qtbot: QtBot, make_program: MakeProgram) -> None:
    """From the sampler's signal to the header of the utilization plot, for screen readers too."""
    window = make_program().window
    window.telemetry.handle_sample(WATCHED)
    header = window.panel.plots.utilization.header
    assert header.toolTip().startswith("This model's GPU: 86.0 % busy")
    assert header.accessibleDescription() == header.toolTip()
