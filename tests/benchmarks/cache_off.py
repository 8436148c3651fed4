"""What the KV cache saves: the same prompt generated with it and without, last line JSON.

`python -m tests.benchmarks.cache_off` takes the starter model and 1,000 tokens; the run without
the cache grows with the square of their number. Greedy, end tokens ignored. With `--picture` the
comparison of the window measures, offscreen or not, and its picture is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QApplication

from app.cache_comparison.dialog import ComparisonDialog
from app.main import parser as window_parser
from app.program import Program
from app.telemetry.series import Array
from engine.cli_options import given_options
from engine.config import EngineConfig, GenerationRequest, SamplingParams
from engine.events import GenerationFailed, TokenEvent
from engine.load_blocking import load_or_raise
from engine.session import EngineError, Session, create_session
from engine.starter import starter_model_path

QUESTION = "Tell me a long story about a lighthouse keeper and the sea."
PROMPT_TOKENS = 64  # as many as the question's, or a few more
TARGET = 5.0


def latencies(session: Session, num_tokens: int, *, use_cache: bool) -> Array:
    """Inter-token latencies in ms, shape [num_tokens - 1]."""
    request = GenerationRequest(
        "on" if use_cache else "off",
        prompt_ids=tuple(range(1000, 1000 + PROMPT_TOKENS)),
        max_tokens=num_tokens,
        ignore_eos=True,
        use_cache=use_cache,
    )
    found = []
    for event in session.generate(request):
        if isinstance(event, GenerationFailed):
            raise EngineError(event.what, event.why, event.next)
        if isinstance(event, TokenEvent) and event.itl_ms is not None:
            found.append(event.itl_ms)
    return np.array(found)


def measure(args: argparse.Namespace) -> tuple[Array, Array]:
    """Latencies with the cache and without, of the engine alone."""
    session = create_session()
    context = args.generate + PROMPT_TOKENS
    load_or_raise(session, EngineConfig(args.model, threads=args.threads, context_length=context))
    latencies(session, 32, use_cache=True)  # warms up
    on = latencies(session, args.generate, use_cache=True)
    off = latencies(session, args.generate, use_cache=False)
    session.close()
    return on, off


class WindowRun(QObject):
    """Asks in the real window, compares as its menu does, keeps the picture and closes it."""

    def __init__(self, program: Program, num_tokens: int, picture: Path) -> None:
        super().__init__()
        self._window = program.window
        self._num_tokens, self._picture = num_tokens, picture
        self._dialog: ComparisonDialog | None = None
        self.measured: tuple[Array, Array] | None = None
        self.problem = ""
        self._window.conversations.set_base(SamplingParams(), 32)  # warms up
        self._window.controller.load_failed.connect(lambda failure: self._end(failure.what))
        self._window.controller.model_loaded.connect(self._ask)
        self._window.conversations.activity_changed.connect(self._on_activity)

    def _ask(self) -> None:
        if not self._window.conversations.send(QUESTION):
            self._end("The question was not accepted.")

    def _on_activity(self) -> None:
        chats = self._window.conversations
        if self._dialog is None and chats.current.chat.messages and not chats.generating_chats():
            self._dialog = self._window.instruments.comparisons.open()
            if self._dialog is None:
                self._end("There is no answer to compare.")
                return
            self._dialog.tokens.setValue(self._num_tokens)
            self._dialog.run.changed.connect(self._on_changed)
            self._dialog.start.click()

    def _on_changed(self) -> None:
        assert self._dialog is not None
        run = self._dialog.run
        if not run.is_running and self.measured is None:
            self.measured = run.cached_ms, run.uncached_ms
            self._dialog.pixmap().save(str(self._picture))
            self._end(run.problem)

    def _end(self, problem: str) -> None:
        self.problem = problem
        QTimer.singleShot(0, self._window.close_at_once)


def measure_in_window(args: argparse.Namespace) -> tuple[Array, Array]:
    """Latencies with the cache and without, of the window's comparison."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["PHASESCOPE_HOME"] = home  # nobody's settings, nobody's chats
        command = ["--model", args.model, "--context", str(args.generate + PROMPT_TOKENS)]
        if args.threads:
            command += ["--threads", str(args.threads)]
        options = window_parser().parse_args(command)
        given = given_options(options) | {"model_path": args.model}
        program = Program(QApplication(sys.argv[:1]), options, given, None, None)
        run = WindowRun(program, args.generate, args.picture)
        code, reason = program.run()
    if code or run.problem or run.measured is None:
        raise SystemExit(reason or run.problem or "The window was closed early.")
    return run.measured


def report(on: Array, off: Array) -> int:
    """Print both and the speed-up; 1 when it misses its target."""
    speed_up = off.sum() / on.sum()
    tenth = max(1, len(off) // 10)
    first, last = np.median(off[:tenth]), np.median(off[-tenth:])
    print(f"with the cache    {on.sum() / 1e3:8.2f} s, {np.median(on):.2f} ms a token")
    print(f"without the cache {off.sum() / 1e3:8.2f} s, {first:.1f} ms rising to {last:.1f} ms")
    print(f"speed-up          {speed_up:8.1f}x, target {TARGET:g}x")
    result = {
        "tokens": len(on) + 1,
        "cached_s": round(on.sum() / 1e3, 3),
        "uncached_s": round(off.sum() / 1e3, 3),
        "speed_up": round(speed_up, 2),
        "uncached_first_ms": round(first, 2),
        "uncached_last_ms": round(last, 2),
    }
    print(json.dumps(result))
    return int(speed_up < TARGET)


def main() -> int:
    """Measure and print; 1 when the speed-up misses its target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=starter_model_path())
    parser.add_argument("--generate", type=int, default=1000, metavar="N")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="measure in the window")
    args = parser.parse_args()
    return report(*(measure_in_window(args) if args.picture else measure(args)))


if __name__ == "__main__":
    sys.exit(main())
