"""The gain that a diagnosis predicts for smaller weights, against the one that is measured.

    python -m tests.benchmarks.diagnosis_gain [--weights fp32] [--threads 1] [--repeat 3]

Streams 200 tokens of the starter in `--weights` and in INT8 and INT4, and prints for both the
predicted and the measured factor. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json

from engine.footprint import resolve_kv_format
from engine.planner.plan import Planning
from engine.prediction import decode_s
from engine.session import create_session
from engine.starter import starter_model_path
from tests.benchmarks.measuring import Workload, run_engine_bench, wait_until_quiet

PROMPT_TOKENS, GENERATE = 64, 200
FORMATS = ("int8", "int4")


def main() -> None:
    """Print a table and one JSON line."""
    parser = argparse.ArgumentParser(description="Compare predicted with measured gains.")
    parser.add_argument("--weights", default="fp32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    busy = wait_until_quiet()
    print(f"other programs take {busy:.0f} % of the cores")
    paces = {
        name: measured_tok_s(name, args.threads, args.repeat) for name in (args.weights, *FORMATS)
    }
    path = starter_model_path()
    assert path is not None, "the starter model is not installed"
    session = create_session()
    planning = session.planning(path, "cpu", args.threads)
    session.close()
    if not planning.machine.speeds:
        raise SystemExit("The peaks were not kept: the machine was busy. Try again later.")
    rows = []
    for name in FORMATS:
        predicted = token_s(planning, args.weights) / token_s(planning, name)
        measured = paces[name] / paces[args.weights]
        rows.append({"weights": name, "predicted": predicted, "measured": measured})
        print(f"{args.weights} to {name}: predicted {predicted:.2f}x, measured {measured:.2f}x")
    print(json.dumps({"threads": args.threads, "busy_percent": busy, "tok_s": paces, "rows": rows}))


def measured_tok_s(weights: str, threads: int, repeat: int) -> float:
    """The pace of a stream, as `bench` measures it."""
    work = Workload(None, weights, threads, PROMPT_TOKENS, GENERATE)
    return float(run_engine_bench(work, repeat)["decode_tok_s"])


def token_s(planning: Planning, weights: str) -> float:
    """Predicted seconds of the token in the middle of the answer."""
    work = planning.model.token_work(weights, resolve_kv_format(weights, "auto"))
    return decode_s(work, planning.machine.speeds[weights], PROMPT_TOKENS + GENERATE // 2)


if __name__ == "__main__":
    main()
