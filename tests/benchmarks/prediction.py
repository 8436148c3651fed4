"""Predicted against measured speeds of the starter in each weights format.

    python -m tests.benchmarks.prediction [--threads 2] [--repeat 3]

Prints a row a format: what engine/prediction.py foretells for a prompt of 1,000 tokens, what
`bench` measures, and measured / predicted. A ratio that holds over several runs on a quiet machine,
multiplied into the format's row of EFFICIENCY, makes the prediction right. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass

from engine.config import WEIGHT_FORMATS, EngineConfig
from engine.devices import default_threads
from engine.prediction import PROMPT_TOKENS
from engine.session import create_session
from engine.starter import starter_model_path
from tests.benchmarks.measuring import Workload, run_engine_bench, wait_until_quiet

GENERATE = 64


@dataclass(frozen=True, slots=True)
class Comparison:
    """One format. Rates in tokens a second, times in milliseconds."""

    weights: str
    predicted_tok_s: float
    measured_tok_s: float
    predicted_ttft_ms: float
    measured_ttft_ms: float

    @property
    def decode_ratio(self) -> float:
        """Measured over predicted pace; above 1 the model is faster than foretold."""
        return self.measured_tok_s / self.predicted_tok_s

    @property
    def prefill_ratio(self) -> float:
        """The same for reading the prompt."""
        return self.predicted_ttft_ms / self.measured_ttft_ms


def main() -> None:
    """Print a table and one JSON line."""
    parser = argparse.ArgumentParser(description="Compare predicted with measured speeds.")
    parser.add_argument("--threads", type=int, default=default_threads(spare_core=False))
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    busy = wait_until_quiet()
    print(f"other programs take {busy:.0f} % of the cores")
    print(f"{'':10} {'decode tok/s':>27}   {'TTFT of 1,000, ms':>27}")
    print(
        f"{'weights':10} {'predicted measured    ratio':>27}   {'predicted measured    ratio':>27}"
    )
    rows = []
    for weights in WEIGHT_FORMATS:
        row = compare(weights, args.threads, args.repeat)
        rows.append(asdict(row) | {"decode": row.decode_ratio, "prefill": row.prefill_ratio})
        print(
            f"{weights:10} {row.predicted_tok_s:9.1f} {row.measured_tok_s:8.1f} "
            f"{row.decode_ratio:8.2f}   {row.predicted_ttft_ms:9.0f} {row.measured_ttft_ms:8.0f} "
            f"{row.prefill_ratio:8.2f}"
        )
    print(json.dumps({"threads": args.threads, "busy_percent": busy, "formats": rows}))


def compare(weights: str, threads: int, repeat: int) -> Comparison:
    """Measure first: the load in it measures the peaks, where they are not known yet."""
    work = Workload(None, weights, threads, PROMPT_TOKENS, GENERATE)
    measured = run_engine_bench(work, repeat)
    path = starter_model_path()
    assert path is not None, "the starter model is not installed"
    session = create_session()
    speed = session.survey(EngineConfig(path, weight_format=weights, threads=threads)).speed
    session.close()
    if speed is None:
        raise SystemExit("The peaks were not kept: the machine was busy. Try again later.")
    return Comparison(
        weights,
        speed.decode_tok_s,
        float(measured["decode_tok_s"]),
        speed.ttft_ms,
        float(measured["ttft_ms"]),
    )


if __name__ == "__main__":
    main()
