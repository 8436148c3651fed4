"""The real window with a heartbeat and synthetic key presses beside it, in one process.

Loads a model, types while idle, sends a prompt of about 2,000 tokens, types on through prefill
and a 500-token decode, closes. Last line on stdout: JSON. Started by `window_vs_bench`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from PySide6.QtCore import QEvent, QObject, Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget

from app.chat.draft_edit import DraftEdit
from app.main import parser as window_parser
from app.program import Program
from engine.cli_options import given_options
from engine.config import SamplingParams
from engine.events import Event, GenerationFailed, GenerationFinished, TokenEvent

BEAT_MS = 10
DECODE_TOKENS = 500
IDLE_S = 8.0
LIMIT_S = 400.0
NUM_WORST = 5  # holds told with their moment, to find what held
KEY_GAP_MS = (60, 140)  # irregular, so that keys do not fall into step with redraws
# About 2,000 tokens of prose, then something the starter model goes on with for long.
FILLER = "The keeper climbed the stairs, lit the lamp and looked out over the grey sea. " * 112
PROMPT = FILLER + "\nWrite a very long story about a lighthouse keeper and the sea."

Samples = defaultdict[str, list[float]]
Beats = defaultdict[str, list[tuple[float, float]]]  # by phase: seconds since start, lateness in ms


class Heartbeat(QObject):
    """A precise 10 ms timer in the GUI thread; a beat's lateness goes to the phase before it."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self.beats: Beats = defaultdict(list)
        self.phase = "load"
        self._timer = QTimer(self, interval=BEAT_MS, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._beat)
        self._started = self._before = time.perf_counter()
        self._phase_before = self.phase

    def start(self) -> None:
        """Begin to beat."""
        self._started = self._before = time.perf_counter()
        self._timer.start()

    def _beat(self) -> None:
        now = time.perf_counter()
        late_ms = max(0.0, (now - self._before) * 1e3 - BEAT_MS)
        self.beats[self._phase_before].append((now - self._started, late_ms))
        self._before = now
        self._phase_before = self.phase


class Typist(QObject):
    """Presses keys at planned moments; from each to the end of the paint that shows it, in ms.

    A letter and a backspace take turns, so that the draft stays as it is.
    """

    def __init__(self, edit: DraftEdit, parent: QObject) -> None:
        super().__init__(parent)
        self.paint_ms: Samples = defaultdict(list)
        self.phase = "idle"
        self._edit = edit
        self._viewport: QWidget = edit.viewport()
        self._viewport.installEventFilter(self)
        self._rng = random.Random(0)
        self._letter = True
        self._planned = 0.0
        self._waiting: list[tuple[str, float]] = []
        self._timer = QTimer(self, singleShot=True, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._press)

    def start(self) -> None:
        """Begin to type."""
        self._planned = time.perf_counter()
        self._plan()

    def stop(self) -> None:
        """Type no more."""
        self._timer.stop()

    def _plan(self) -> None:
        now = time.perf_counter()
        # The moment counts from the plan, not from the late press: a busy thread is the fault.
        self._planned = max(self._planned, now) + self._rng.uniform(*KEY_GAP_MS) / 1e3
        self._timer.start(round((self._planned - now) * 1e3))

    def _press(self) -> None:
        self._waiting.append((self.phase, self._planned))
        QTest.keyClick(self._edit, Qt.Key.Key_A if self._letter else Qt.Key.Key_Backspace)
        self._letter = not self._letter
        self._plan()

    def _on_painted(self) -> None:
        now = time.perf_counter()
        for phase, planned in self._waiting:
            self.paint_ms[phase].append((now - planned) * 1e3)
        self._waiting.clear()

    # Qt overrides

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Paint and self._waiting:
            # The turn after this one: the whole window is painted and flushed by then.
            QTimer.singleShot(0, self._on_painted)
        return super().eventFilter(watched, event)


class Probe(QObject):
    """Walks the window through load, idle typing, prefill and decode, then closes it."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._window = program.window
        self._window.conversations.set_base(SamplingParams(), DECODE_TOKENS)
        edit = self._window.composer.findChild(DraftEdit)
        if edit is None:
            raise SystemExit("The composer has no text field to type into.")
        self.heartbeat = Heartbeat(self)
        self.typist = Typist(edit, self)
        self.finished: GenerationFinished | None = None
        self.problem = ""
        self._limit = QTimer(self, singleShot=True, interval=round(LIMIT_S * 1e3))
        self._limit.timeout.connect(lambda: self._give_up(f"not done after {LIMIT_S:.0f} s"))
        controller = self._window.controller
        controller.model_loaded.connect(self._on_loaded)
        controller.load_failed.connect(lambda failure: self._give_up(failure.what))
        controller.events_received.connect(self._on_events)

    def start(self) -> None:
        """Wait for the window's first paint, before which nobody can be kept waiting by it."""
        self._limit.start()
        self._window.installEventFilter(self)

    def _on_loaded(self) -> None:
        self._set_phase("idle")
        self.typist.start()
        QTimer.singleShot(round(IDLE_S * 1e3), self._send)

    def _send(self) -> None:
        self._set_phase("prefill")
        if not self._window.conversations.send(PROMPT):
            self._give_up("the prompt was not accepted")

    def _on_events(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, TokenEvent) and event.index == 0:
                self._set_phase("decode")
            elif isinstance(event, GenerationFinished):
                self.finished = event
                self._end()
            elif isinstance(event, GenerationFailed):
                self._give_up(event.what)

    def _set_phase(self, phase: str) -> None:
        self.heartbeat.phase = phase
        self.typist.phase = phase

    def _give_up(self, why: str) -> None:
        self.problem = why
        self._end()

    def _end(self) -> None:
        self._set_phase("end")
        self.typist.stop()
        self._window.close()

    def report(self) -> dict[str, Any]:
        """The figures; raises SystemExit when the run did not get to its end."""
        if self.finished is None:
            raise SystemExit(f"The window did not finish: {self.problem or 'closed early'}.")
        metrics = self.finished.metrics
        phases = ("load", "idle", "prefill", "decode")
        return {
            "prompt_tokens": metrics.prompt_tokens,
            "completion_tokens": metrics.completion_tokens,
            "prefill_tok_s": metrics.prefill_tok_s,
            "decode_tok_s": metrics.decode_tok_s,
            "kernels": metrics.kernels,
            "heartbeat": {p: _lateness(self.heartbeat.beats[p]) for p in phases},
            "key_to_paint": {p: _latency(self.typist.paint_ms[p]) for p in phases[1:]},
        }

    # Qt overrides

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Paint:
            watched.removeEventFilter(self)
            QTimer.singleShot(0, self.heartbeat.start)
        return super().eventFilter(watched, event)


def _lateness(beats: list[tuple[float, float]]) -> dict[str, Any]:
    late_ms = sorted((late for _, late in beats), reverse=True)
    p50, p99 = np.percentile(late_ms, (50, 99))
    worst = sorted(beats, key=lambda beat: -beat[1])[:NUM_WORST]
    return {
        "beats": len(beats),
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "second_ms": late_ms[1],
        "max_ms": late_ms[0],
        "worst": [{"at_s": round(at, 2), "late_ms": round(late, 1)} for at, late in worst],
    }


def _latency(paint_ms: list[float]) -> dict[str, float]:
    p50, p95 = np.percentile(paint_ms, (50, 95))
    return {
        "keys": len(paint_ms),
        "p50_ms": float(p50),
        "p95_ms": float(p95),
        "max_ms": max(paint_ms),
    }


def main() -> int:
    """Open the window, run the probe, print."""
    options = argparse.ArgumentParser(description="Time the window's responses.")
    options.add_argument("--model", type=Path)
    options.add_argument("--weights", default="as-stored")
    options.add_argument("--threads", type=int, required=True)
    own = options.parse_args()
    command = ["--weights", own.weights, "--threads", str(own.threads)]
    if own.model is not None:
        command += ["--model", str(own.model)]
    args = window_parser().parse_args(command)
    given = given_options(args)
    if args.model:
        given["model_path"] = args.model
    program = Program(QApplication(sys.argv[:1]), args, given, None, None)
    probe = Probe(program)
    probe.start()
    code, reason = program.run()
    if code:
        raise SystemExit(reason)
    print(json.dumps(probe.report()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
