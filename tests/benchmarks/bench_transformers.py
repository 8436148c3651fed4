"""Our engine against Hugging Face transformers: same weights, prompt, tokens, threads.

Runs alternate (ours, theirs, ours, theirs ...), each in a fresh process that warms up once.
Prefill is prompt tokens over the time to the first token and decode (N - 1) / (t_N - t_1), on
both sides. See README.md.

    python -m tests.benchmarks.bench_transformers [--python PATH] [--weights bf16 fp32] ...
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.measuring import (
    QUIET_PERCENT,
    ROOT,
    Workload,
    machine,
    median_ratio,
    run_engine_bench,
    run_for_json,
    wait_until_quiet,
)
from tests.golden.write_safetensors import find_starter_gguf, write_checkpoint

PEER_ENVIRONMENT = ROOT / "build" / "golden-venv"
REQUIREMENTS = ROOT / "tests" / "golden" / "requirements.txt"
WORKER = Path(__file__).with_name("transformers_worker.py")
MIN_RATIO = 1.0
HELD_TO_IT = {"bf16"}  # fp32 is measured and told, without a target

Speeds = dict[str, list[float]]  # "prefill" and "decode", tokens per second, one a run


def main() -> int:
    """Exit code: 0 every ratio with a target reaches it, 1 one does not."""
    args = _arguments()
    python = args.python or peer_python()
    with _model_folder(args.model) as folder:
        results = [
            compare(
                Workload(folder, weights, threads, args.prompt_tokens, args.generate),
                python,
                args.alternations,
            )
            for weights in args.weights
            for threads in args.threads
        ]
    print(json.dumps({"machine": machine(), "results": results}))
    return 0 if all(result["met"] for result in results) else 1


def compare(work: Workload, python: Path, alternations: int) -> dict[str, Any]:
    """Alternate both sides, print a small table, return the figures."""
    ours: Speeds = {"prefill": [], "decode": []}
    theirs: Speeds = {"prefill": [], "decode": []}
    busiest = 0.0
    details: dict[str, Any] = {}
    for _ in range(alternations):
        busiest = max(busiest, wait_until_quiet())
        own = run_engine_bench(work)
        ours["prefill"].append(work.prompt_tokens / own["ttft_ms"] * 1e3)
        ours["decode"].append(own["decode_tok_s"])
        busiest = max(busiest, wait_until_quiet())
        peer = run_peer(work, python)
        theirs["prefill"].append(work.prompt_tokens / peer["ttft_s"])
        theirs["decode"].append(len(peer["itl_s"]) / sum(peer["itl_s"]))
        details = {"kernels": own["kernels"], "peer": peer["versions"]}
    ratios = {phase: median_ratio(ours[phase], theirs[phase]) for phase in ours}
    _print_table(work, ours, theirs, ratios)
    if busiest > QUIET_PERCENT:
        print(f"  The machine was up to {busiest:.0f} % busy before a run: do not trust this.")
    return {
        "weights": work.weights,
        "threads": work.threads,
        "prompt_tokens": work.prompt_tokens,
        "generate": work.generate,
        "ours_tok_s": ours,
        "theirs_tok_s": theirs,
        "ratio": ratios,
        "met": work.weights not in HELD_TO_IT or min(ratios.values()) >= MIN_RATIO,
        "busy_pct": busiest,
        **details,
    }


def run_peer(work: Workload, python: Path) -> dict[str, Any]:
    """One process of the worker in the other environment."""
    command = [str(python), str(WORKER), "--model", str(work.model), "--weights", work.weights]
    command += ["--threads", str(work.threads), "--prompt-tokens", str(work.prompt_tokens)]
    command += ["--generate", str(work.generate)]
    return run_for_json(command, {"OMP_NUM_THREADS": str(work.threads)})


def peer_python() -> Path:
    """The interpreter of an environment with transformers, made on first use.

    As in set-up, the variable TORCH_INDEX names an index to take torch from.
    """
    python = PEER_ENVIRONMENT / "bin" / "python"
    if not _has_transformers(python):
        print(
            f"Making {PEER_ENVIRONMENT.relative_to(ROOT)}: transformers and what it needs, about "
            "60 MB, and torch, about 200 MB (3 GB where the package index has the CUDA build only)."
        )
        subprocess.run([sys.executable, "-m", "venv", str(PEER_ENVIRONMENT)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet"]
        if index := os.environ.get("TORCH_INDEX"):
            torch = re.findall(r"^torch==.+$", REQUIREMENTS.read_text(), flags=re.MULTILINE)
            subprocess.run([*install, "--index-url", index, *torch], check=True)
        subprocess.run([*install, "-r", str(REQUIREMENTS)], check=True)
    return python


def _has_transformers(python: Path) -> bool:
    if not python.exists():
        return False
    find = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('transformers'))"
    return subprocess.run([str(python), "-c", find], check=False).returncode == 0


@contextmanager
def _model_folder(given: Path | None) -> Iterator[Path]:
    """The folder both sides load: the one given, or the starter model in FP32."""
    if given is not None:
        yield given.resolve()
        return
    with tempfile.TemporaryDirectory() as scratch:
        yield write_checkpoint(find_starter_gguf(), Path(scratch), "fp32")


def _print_table(work: Workload, ours: Speeds, theirs: Speeds, ratios: dict[str, float]) -> None:
    print(
        f"{work.weights}, {work.threads} threads, {work.prompt_tokens} + {work.generate} tokens, "
        f"medians of {len(ours['decode'])}\n"
        f"  {'tokens/s':<9}{'ours':>9}{'theirs':>9}{'ratio':>8}"
    )
    for phase, ratio in ratios.items():
        own, peer = statistics.median(ours[phase]), statistics.median(theirs[phase])
        print(f"  {phase:<9}{own:>9.1f}{peer:>9.1f}{ratio:>8.2f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare with Hugging Face transformers.")
    parser.add_argument(
        "--python",
        type=Path,
        help="interpreter with transformers (default: build/golden-venv, made on first use)",
    )
    parser.add_argument(
        "--model", type=Path, help="safetensors folder (default: the starter, written in FP32)"
    )
    parser.add_argument("--weights", nargs="+", choices=("bf16", "fp32"), default=["bf16", "fp32"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--alternations", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
