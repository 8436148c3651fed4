"""Pan and zoom over one answer of 100,000 tokens: frame times and memory of the three plots.

Run: python tests/benchmarks/timeline_frames.py [tokens]
A frame moves the time axis and paints all three plots at 480 x 560. While a person pans the data
are drawn anew only every 800 ms: what such a frame takes is told apart. Times are those of the GUI
thread on its core, so that other load does not count. Memory is what the recorded arrays and
texts take, traced from before the first event on.

On two shared cores, 100,000 tokens, 1 % of them late, 20 MB (12 frames of each kind):
  pan over the whole       p95 11 ms     (every dot stamped, 200 frames: 26 ms)
  zoom                     p95  8 ms     (every dot stamped, 200 frames: 22 ms)
  zoom, data drawn anew    p95 50 ms     (lines drawn beyond the axis: 577 ms)
"""

from __future__ import annotations

import os
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from PySide6.QtWidgets import QApplication

from app.telemetry.plots import TelemetryPlots
from app.telemetry.series import Series
from app.telemetry.telemetry_model import TelemetryModel
from app.theme import load_theme
from tests.app.telemetry.story import Clock, Story, loaded

FRAMES = 200
TOKENS_A_LATE_ONE = 97


def main(num_tokens: int) -> None:
    """Record the answer, then pan and zoom over it."""
    app = QApplication([])
    clock = Clock(0)
    model = TelemetryModel(clock)
    plots = TelemetryPlots(load_theme("dark"), model)
    plots.resize(480, 560)
    plots.show()
    app.processEvents()
    model.handle_events([loaded(pool_tokens=2 * num_tokens)])
    late = dict.fromkeys(range(1, num_tokens, TOKENS_A_LATE_ONE), 41.0)
    story = Story(num_tokens=num_tokens, late=late)
    tracemalloc.start()
    story.tell(model, clock)
    print(f"tokens {num_tokens}, memory {tracemalloc.get_traced_memory()[0] / 1e6:.1f} MB")
    tracemalloc.stop()
    plots.redraw()
    end = plots.time_range[1]

    def paint() -> None:
        for panel in (plots.itl, plots.kv, plots.utilization):
            panel.area.viewport().repaint()

    def move(span: tuple[float, float]) -> None:
        view = plots.itl.area.view_box
        view.setXRange(*span, padding=0)
        view.sigRangeChangedManually.emit([True, False])
        paint()

    def move_and_redraw(span: tuple[float, float]) -> None:
        move(span)
        plots.redraw()
        paint()

    for name, spans in (("pan, all", pan(end, 0.9)), ("pan, 1 %", pan(end, 0.01))):
        report(name, move, spans)
    report("zoom", move, zoom(end))
    report("zoom, drawn anew", move_and_redraw, zoom(end))
    report_growth(num_tokens)


def pan(end: float, share: float) -> Iterator[tuple[float, float]]:
    """Windows of this share of the whole, from its beginning to its end."""
    for start in np.linspace(0, end * (1 - share), FRAMES):
        yield float(start), float(start + end * share)


def zoom(end: float) -> Iterator[tuple[float, float]]:
    """From the whole to a ten-thousandth around a third of it."""
    for width in np.geomspace(end, end / 10_000, FRAMES):
        start = max(0.0, end / 3 - float(width) / 3)
        yield start, start + float(width)


def report(
    name: str, work: Callable[[tuple[float, float]], None], spans: Iterator[tuple[float, float]]
) -> None:
    """Print the median and the 95th percentile of a frame, in ms."""
    times = []
    for span in spans:
        begin = time.thread_time()
        work(span)
        times.append((time.thread_time() - begin) * 1e3)
    print(f"{name:18s} p50 {np.median(times):6.2f} ms   p95 {np.percentile(times, 95):6.2f} ms")


def report_growth(rows: int) -> None:
    """Print the longest append of a series as wide as the steps': the one that grows it."""
    series = Series(*"abcdefghijk")
    longest = 0.0
    for _ in range(rows):
        begin = time.thread_time()
        series.append(*range(11))
        longest = max(longest, time.thread_time() - begin)
    print(f"longest append     {longest * 1e3:6.2f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
