"""What the instrument costs: the real window with everything on over the same window without.

On: every panel shown, recording to a folder, sensors polled. Off: panels and strip hidden, not
recording, no sensors. A process each, in alternation, on an X display of its own, or without one
(`--display offscreen`: Qt paints into memory and no server is there to be paid).

    python -m tests.benchmarks.telemetry_overhead [--weights int8] [--threads 1]
        [--generate 400] [--alternations 5] [--display offscreen] [--model PATH]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from PySide6.QtWidgets import QApplication

from app import folders
from app.main import parser as window_parser
from app.program import Program
from app.settings.schema import (
    RECORD,
    RECORD_FOLDER,
    SHOW_BLOCKS,
    SHOW_STAGES,
    SHOW_TELEMETRY,
)
from app.settings.store import Settings
from app.telemetry.csv_tables import COLUMNS
from engine.cli_options import given_options
from engine.events import Event, GenerationFinished
from engine.paths import HOME_VARIABLE
from tests.benchmarks.measuring import (
    QUIET_PERCENT,
    last_json_line,
    machine,
    median_ratio,
    run_checked,
    wait_until_quiet,
)
from tests.benchmarks.window_vs_bench import PROMPT, virtual_display

TARGET = 0.97  # on / off
FAST_TOK_S = 100.0  # the target is for a pace above this
OFFSCREEN = "offscreen"
SIDES = ("on", "off")


def main() -> int:
    """Exit code: 0 the target is met, 1 it is not."""
    args = _arguments()
    if args.side:
        return run_side(args)
    paces: dict[str, list[float]] = {side: [] for side in SIDES}
    busiest = 0.0
    with virtual_display(args.display) as display:
        for _ in range(args.alternations):
            for side in SIDES:
                busiest = max(busiest, wait_until_quiet())
                paces[side].append(_measured(args, side, display))
    ratio = median_ratio(paces["on"], paces["off"])
    medians = {side: statistics.median(paces[side]) for side in SIDES}
    met = ratio >= TARGET and medians["off"] > FAST_TOK_S
    print(
        f"decode, {args.threads} threads: everything on {medians['on']:.1f}, off "
        f"{medians['off']:.1f} tok/s, ratio {ratio:.3f} (target {TARGET}, above {FAST_TOK_S:.0f})"
    )
    if busiest > QUIET_PERCENT:
        print(f"  The machine was up to {busiest:.0f} % busy before a run: do not trust this.")
    report = {"machine": machine(), "weights": args.weights, "threads": args.threads}
    print(json.dumps(report | {"tok_s": paces, "ratio": ratio, "busy_pct": busiest, "met": met}))
    return 0 if met else 1


def _measured(args: argparse.Namespace, side: str, display: str) -> float:
    """Decode pace of one run, in tokens a second."""
    command = [sys.executable, "-m", "tests.benchmarks.telemetry_overhead", "--side", side]
    command += ["--weights", args.weights, "--threads", str(args.threads)]
    command += ["--generate", str(args.generate)]
    if args.model is not None:
        command += ["--model", str(args.model)]
    environment = {"DISPLAY": display, "QT_QPA_PLATFORM": "xcb"}
    if display == OFFSCREEN:
        environment = {"QT_QPA_PLATFORM": OFFSCREEN}
    with tempfile.TemporaryDirectory() as home:
        row = last_json_line(run_checked(command, environment | {HOME_VARIABLE: home}))
    if row["tokens"] < args.generate // 2:
        raise SystemExit(f"The answer ended after {row['tokens']} tokens: too few to time decode.")
    return float(row["decode_tok_s"])


def run_side(args: argparse.Namespace) -> int:
    """One window, driven unattended; prints its figures as JSON."""
    command = ["--prompt", PROMPT, "--exit-when-done", "--max-tokens", str(args.generate)]
    command += ["--weights", args.weights, "--threads", str(args.threads)]
    own = window_parser().parse_args(command)
    given = given_options(own)
    if args.model is not None:
        given["model_path"] = str(args.model)
    with tempfile.TemporaryDirectory() as recordings, tempfile.TemporaryDirectory() as chats:
        is_on = args.side == "on"
        _choose(Path(recordings), is_on)
        program = Program(QApplication(sys.argv[:1]), own, given, Path(chats), None)
        finished: list[GenerationFinished] = []
        program.controller.events_received.connect(lambda events: _keep(finished, events))
        if not is_on:
            _switch_off(program)
        code, reason = program.run()
        # Without sensors there is no device curve, which the unattended run finds fault with.
        if not finished or (code and is_on):
            raise SystemExit(reason or "The answer did not finish.")
        tables = sum(1 for table in COLUMNS if (Path(recordings) / f"{table}.csv").exists())
        if tables != (len(COLUMNS) if is_on else 0):
            raise SystemExit(f"{tables} tables were recorded with telemetry {args.side}.")
    metrics = finished[-1].metrics
    print(json.dumps({"decode_tok_s": metrics.decode_tok_s, "tokens": metrics.completion_tokens}))
    return 0


def _choose(recordings: Path, is_on: bool) -> None:
    """As a person does in the menus; this home is the run's own."""
    settings = Settings(folders.config_folder() / "settings.json")
    settings.set(RECORD_FOLDER, str(recordings))
    for setting in (RECORD, SHOW_BLOCKS, SHOW_STAGES, SHOW_TELEMETRY):
        settings.set(setting, is_on)


def _switch_off(program: Program) -> None:
    """What no menu can: no strip in the panels' place, and no sensors."""
    window = program.window
    window.strip.setMaximumHeight(0)
    window.controller.model_loaded.connect(window.telemetry.close)


def _keep(finished: list[GenerationFinished], events: list[Event]) -> None:
    finished += (event for event in events if isinstance(event, GenerationFinished))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure what the instrument costs.")
    parser.add_argument("--display", help="an X display or offscreen (default: its own Xvfb)")
    parser.add_argument("--model", type=Path, help="default: the starter model")
    parser.add_argument("--weights", default="int8")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--generate", type=int, default=400)
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
