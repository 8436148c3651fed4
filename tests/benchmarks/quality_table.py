"""What each weight format costs in quality: the table of docs/measurements.md.

The starter model as it is loaded in every format, and as RTN, GPTQ and AWQ made it in groups of 64,
each through both paths and compared with the source in FP32. Nothing is timed: it may run beside
other work. See README.md.

    python -m tests.benchmarks.quality_table [--model MODEL] [--threads N] [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.starter import starter_model_path
from tests.benchmarks.measuring import machine, run_checked, run_for_json

PHASESCOPE = str(Path(sys.executable).with_name("phasescope"))
FORMATS = ("fp32", "bf16", "int8", "int4")
METHODS = ("rtn", "gptq", "awq")
GROUP_SIZE = 64
PATHS = ("prefill", "decode")


def main() -> None:
    """Quantize, score and print the table, a row as soon as it is known; JSON last."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=None, help="default: the starter model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="keeps what was quantized, for another run")
    args = parser.parse_args()
    model = args.model or str(starter_model_path())
    if args.folder is not None:
        args.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        rows = []
        print(f"{machine()}, {args.threads} threads; reference: {Path(model).name} in FP32\n")
        print("| weights | path | perplexity | over FP32 | KL, nats | same first token | MB |")
        print("|---|---|---:|---:|---:|---:|---:|")
        for label, result in _results(model, args.folder or Path(temporary), args.threads):
            rows.append({"label": label} | result)
            print(_row(label, result), flush=True)
    print(json.dumps({"machine": machine(), "rows": rows}))


def _results(model: str, folder: Path, threads: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Labels and what `perplexity` found."""
    for weights in FORMATS:
        for path in PATHS:
            yield weights.upper(), _score(model, model, weights, path, threads)
    for method in METHODS:
        out = folder / f"{method}-g{GROUP_SIZE}"
        if not out.exists():
            _quantize(model, method, out, threads)
        for path in PATHS:
            label = f"INT4 {method.upper()} g{GROUP_SIZE}"
            yield label, _score(str(out), model, "as-stored", path, threads)


def _quantize(model: str, method: str, out: Path, threads: int) -> None:
    command = [PHASESCOPE, "quantize", model, "--method", method]
    command += ["--group-size", str(GROUP_SIZE), "--threads", str(threads), "--out", str(out)]
    run_checked(command)


def _score(model: str, reference: str, weights: str, path: str, threads: int) -> dict[str, Any]:
    command = [PHASESCOPE, "perplexity", model, "--weights", weights]
    command += ["--path", path, "--kv", "fp32", "--threads", str(threads), "--json"]
    return run_for_json([*command, "--reference-model", reference])


def _row(label: str, result: dict[str, Any]) -> str:
    loss = result["perplexity"] / result["reference_perplexity"] - 1
    return (
        f"| {label} | {result['path']} | {result['perplexity']:.3f} | {100 * loss:+.2f} % "
        f"| {result['kl_divergence']:.2e} | {100 * result['top1_agreement']:.1f} % "
        f"| {result['weight_bytes'] / 1e6:.1f} |"
    )


if __name__ == "__main__":
    main()
