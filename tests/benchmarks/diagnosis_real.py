"""Diagnoses of real runs in the real window, and a predicted gain beside the measured one.

    python -m tests.benchmarks.diagnosis_real [--folder DIR]

- a prompt of 4,000 tokens with a short answer, the starter in FP32 on one thread: slow to start;
- a long answer of a random model of 0.6 billion parameters in FP32 on one thread: slow to stream;
  then what the card suggests is taken, and the next answer measured;
- the starter in INT8 on every core: fast.
The last line is JSON; exit code 0 when each verdict is the expected one and the gain within 25 %.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtWidgets import QApplication

from app import folders
from app.appearance import Appearance
from app.engine_link.controller import EngineController
from app.main_window import MainWindow
from app.settings.schema import MAX_TOKENS
from app.settings.store import Settings
from engine.config import EngineConfig
from engine.diagnosis.cures import Diagnosis
from engine.events import LoadFailed, RequestMetrics
from engine.paths import HOME_VARIABLE
from engine.starter import starter_model_path
from tests.benchmarks.load_large import write_checkpoint
from tests.benchmarks.measuring import machine, wait_until_quiet
from tests.fakes.window import settle, wait_until

LIMIT_S = 600.0
LONG_PROMPT = "one two three four five six seven eight nine ten " * 390
QUESTION = "Tell me a long story about a lighthouse keeper and the sea."
LARGE_SHAPE = {"num_hidden_layers": 8, "num_key_value_heads": 8, "max_position_embeddings": 8192}
CLOSE_ENOUGH = 0.25


class Desk:
    """A window with the real engine behind it, and a person who asks one thing after another."""

    def __init__(self, app: QApplication) -> None:
        self._settings = Settings(folders.config_folder() / "settings.json")
        self._controller = EngineController()
        self.window = MainWindow(Appearance(app, "dark"), self._settings, self._controller)
        self.window.resize(1440, 900)
        self.window.show()
        self._controller.start()
        self.window.telemetry.start()

    def load(self, path: str, weights: str, threads: int | None) -> None:
        """Load a model and wait for it."""
        config = EngineConfig(path, weight_format=weights, threads=threads, context_length=8192)
        self._after_load(lambda: self.window.loading.load(config))

    def ask(self, text: str, max_tokens: int) -> tuple[Diagnosis, RequestMetrics]:
        """Send in a new chat; what the card says of the answer, and its figures."""
        chats = self.window.conversations
        self._settings.set(MAX_TOKENS, max_tokens)
        chats.new_chat()
        assert chats.send(text)
        model = chats.current
        wait_until(lambda: self.window.instruments.diagnoses.of(model) is not None, LIMIT_S)
        diagnosis = self.window.instruments.diagnoses.of(model)
        metrics = self.window.telemetry.model.requests[-1].metrics
        assert diagnosis is not None
        assert metrics is not None
        note = model.chat.messages[-1].note
        assert note is not None
        print(f"  {note.headline} {note.text}", flush=True)
        return diagnosis, metrics

    def change(self, field: str, value: str) -> None:
        """Load the same model with one field changed, as the menu and the card do."""
        self._after_load(lambda: self.window.loading.change({field: value}))

    def close(self) -> None:
        """Close the window and end its threads."""
        self.window.close_at_once()
        settle(200)

    def _after_load(self, order: Callable[[], object]) -> None:
        before, failures = self._controller.model, list[LoadFailed]()
        self._controller.load_failed.connect(failures.append)
        order()
        wait_until(lambda: bool(failures) or self._controller.model not in (None, before), LIMIT_S)
        self._controller.load_failed.disconnect(failures.append)
        if failures:
            raise SystemExit(f"{failures[0].what} {failures[0].why}")


def main() -> int:
    """Print what each run was told and one JSON line."""
    parser = argparse.ArgumentParser(description="Diagnoses of real runs.")
    parser.add_argument("--folder", type=Path, help="where the large model is, or is to be, kept")
    args = parser.parse_args()
    busy = wait_until_quiet()
    with tempfile.TemporaryDirectory() as home, _desk(home) as desk:
        folder = write_checkpoint(args.folder or Path(home) / "random-0.6b", **LARGE_SHAPE)
        report = {"machine": machine(), "busy_percent": busy, **_runs(desk, folder)}
    print(json.dumps(report))
    return 0 if report["holds"] else 1


@contextmanager
def _desk(home: str) -> Iterator[Desk]:
    os.environ[HOME_VARIABLE] = home
    desk = Desk(QApplication([]))
    try:
        yield desk
    finally:
        desk.close()


def _runs(desk: Desk, large: Path) -> dict[str, Any]:
    starter = starter_model_path()
    assert starter is not None, "the starter model is not installed"
    desk.load(starter, "fp32", 1)
    start, _ = desk.ask(LONG_PROMPT, 16)
    desk.load(str(large), "fp32", 1)
    stream, before = desk.ask(QUESTION, 120)
    gains = {s.value: s.gain for s in stream.suggestions if s.field == "weight_format"}
    measured: dict[str, float] = {}
    for weights in gains:
        desk.change("weight_format", str(weights))
        _, after = desk.ask(QUESTION, 120)
        assert after.decode_tok_s is not None
        assert before.decode_tok_s is not None
        measured[str(weights)] = after.decode_tok_s / before.decode_tok_s
    desk.load(starter, "int8", None)
    fast, _ = desk.ask(QUESTION, 120)
    verdicts = [each.finding.verdict for each in (start, stream, fast)]
    close = [
        abs((gains[name] or 0.0) / ratio - 1) <= CLOSE_ENOUGH for name, ratio in measured.items()
    ]
    expected = ["slow to start", "slow to stream", "fast"]
    return {
        "verdicts": verdicts,
        "predicted": gains,
        "measured": measured,
        "holds": verdicts == expected and bool(close) and all(close),
    }


if __name__ == "__main__":
    sys.exit(main())
