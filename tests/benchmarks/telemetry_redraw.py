"""What a redraw of the three live plots costs with 1,000 tokens at 480 x 560, in ms.

Run: python tests/benchmarks/telemetry_redraw.py [tokens]   (QT_SCALE_FACTOR=2 for a 2x screen)
Times are those of the GUI thread on its core, so that other load does not count.

Tried on two cores, 1,000 points, software rendering, each three times in one window:
  stock line, width 1, antialiased                2.7 ms     width 1.5   26 ms
  stock line, width 1.5, not antialiased          5.8 ms
  ScatterPlotItem                                13.4 ms
  drawPoints with a round pen, antialiased        4.0 ms     on 2x       28 ms
  drawPixmapFragments of one dot (in use)         0.5 ms     on 2x      0.4 ms
  tick labels laid out anew at every redraw       4.6 ms     (now only when the axis moves)
Lines are thinned to a point in two pixels before they are drawn 1.3 wide and antialiased.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from PySide6.QtWidgets import QApplication

from app.telemetry.plots import TelemetryPlots
from app.telemetry.telemetry_model import TelemetryModel
from app.theme import load_theme
from tests.app.telemetry.story import Clock, Story, loaded

REPEATS = 40


def main(num_tokens: int) -> None:
    """Measure a redraw with its painting, and what each plot's share of it is."""
    app = QApplication([])
    clock = Clock(0)
    model = TelemetryModel(clock)
    plots = TelemetryPlots(load_theme("dark"), model)
    plots.resize(480, 560)
    plots.show()
    app.processEvents()
    model.handle_events([loaded()])
    Story(num_tokens=num_tokens, late={40: 41.0}).tell(model, clock)
    app.processEvents()

    def timed(work: object) -> float:
        times = []
        for _ in range(REPEATS):
            start = time.thread_time()
            work()  # type: ignore[operator]
            times.append((time.thread_time() - start) * 1e3)
        return float(np.median(times))

    def whole() -> None:
        plots.redraw()
        plots.repaint()
        for panel in (plots.itl, plots.kv, plots.utilization):
            panel.area.viewport().repaint()

    print(f"tokens {num_tokens}")
    print(f"redraw and paint, all three  {timed(whole):6.2f} ms")
    for name in ("itl", "kv", "utilization"):
        panel = getattr(plots, name)
        print(
            f"  {name:12s} data {timed(lambda p=panel: p.refresh(model)):6.2f} ms"
            f"   paint {timed(lambda p=panel: p.area.viewport().repaint()):6.2f} ms"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
