"""Our engine against llama.cpp and Hugging Face transformers: same model, prompt, tokens, threads.

All sides run in turn, again and again, each in a fresh process that warms up once; a ratio is the
median over the turns. See README.md.

    make bench-peers     or     python -m tests.benchmarks.bench_peers [--alternations 5] ...
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.bench_transformers import peer_python, run_peer
from tests.benchmarks.measuring import (
    QUIET_PERCENT,
    ROOT,
    Workload,
    machine,
    median_ratio,
    run_checked,
    run_engine_bench,
    run_for_json,
    wait_until_quiet,
)
from tests.golden.write_safetensors import find_starter_gguf, write_checkpoint

LLAMA_ENVIRONMENT = ROOT / "build" / "llama-venv"
LLAMA_REQUIREMENT = "llama-cpp-python==0.3.36"
FILES = ROOT / "build" / "peer-models"
WORKER = Path(__file__).with_name("llama_worker.py")
# Never the building machine's own instructions: a virtual machine may trap some of them.
AVX512_FLAGS = {
    "avx512f": "-DGGML_AVX512=ON",
    "avx512_vnni": "-DGGML_AVX512_VNNI=ON",
    "avx512_vbmi": "-DGGML_AVX512_VBMI=ON",
    "avx512_bf16": "-DGGML_AVX512_BF16=ON",
}
OURS = ("int8", "int4", "bf16", "fp32")
LLAMA = ("q8_0", "q4_0", "f16")
TRANSFORMERS = ("bf16", "fp32")

Speeds = dict[str, float]  # "prefill" and "decode", tokens per second
Turns = dict[str, list[Speeds]]  # by side, e.g. "ours int8", "llama.cpp q8_0"


def main() -> int:
    """Exit code: 0 every target is met, 1 one is not."""
    args = _arguments()
    sides = _sides(args)
    turns: Turns = {name: [] for name in sides}
    busiest = 0.0
    for number in range(args.alternations):
        for name, run in sides.items():
            busiest = max(busiest, wait_until_quiet())
            turns[name].append(run())
            speed = turns[name][-1]
            print(
                f"  turn {number + 1}, {name:<18} prefill {speed['prefill']:8.1f}  "
                f"decode {speed['decode']:7.1f} tok/s",
                flush=True,
            )
    rows = compare(turns)
    _print_tables(turns, rows)
    if busiest > QUIET_PERCENT:
        print(f"  The machine was up to {busiest:.0f} % busy before a run: do not trust this.")
    print(json.dumps({"machine": machine(), "turns": turns, "ratios": rows, "busy_pct": busiest}))
    return 0 if all(row["met"] for row in rows) else 1


def compare(turns: Turns) -> list[dict[str, Any]]:
    """Every ratio that has a target and whose two sides ran."""
    best_llama = [
        {"prefill": max(speed["prefill"] for speed in turn), "decode": 0.0}
        for turn in zip(*(turns[f"llama.cpp {x}"] for x in LLAMA), strict=True)
    ]
    sides = {**turns, "llama.cpp, best": best_llama}
    targets = [
        ("decode", "int8", "llama.cpp q8_0", 2.0),
        ("decode", "int4", "llama.cpp q4_0", 2.0),
        ("decode", "bf16", "llama.cpp f16", 1.3),
        *(("prefill", ours, "llama.cpp, best", 4.0) for ours in OURS),
        *(("prefill", ours, "transformers bf16", 1.0) for ours in OURS),
        ("decode", "int8", "transformers bf16", 3.0),
        ("decode", "int4", "transformers bf16", 3.0),
        ("decode", "bf16", "transformers bf16", 2.0),
        ("decode", "fp32", "transformers fp32", 1.2),
    ]
    rows = []
    for phase, ours, peer, target in targets:
        own, other = ([turn[phase] for turn in sides[name]] for name in (f"ours {ours}", peer))
        ratio = median_ratio(own, other)
        rows.append(
            {
                "phase": phase,
                "ours": ours,
                "peer": peer,
                "ratio": ratio,
                "target": target,
                "met": ratio >= target,
            }
        )
    return rows


def _sides(args: argparse.Namespace) -> dict[str, Callable[[], Speeds]]:
    """What runs in a turn, neighbours beside each other."""
    llama = args.llama_python or llama_python()
    transformers = args.transformers_python or peer_python()
    folder = _checkpoint_folder()

    def work(weights: str, model: Path | None) -> Workload:
        return Workload(model, weights, args.threads, args.prompt_tokens, args.generate)

    def ours(weights: str) -> Callable[[], Speeds]:
        return lambda: _own_speeds(run_engine_bench(work(weights, None)), args.prompt_tokens)

    def gguf(file_type: str) -> Callable[[], Speeds]:
        file = _llama_file(llama, file_type)
        return lambda: _run_llama(llama, file, args)

    def theirs(weights: str) -> Callable[[], Speeds]:
        return lambda: _peer_speeds(run_peer(work(weights, folder), transformers), args)

    sides: dict[str, Callable[[], Speeds]] = {}
    for own, file_type in zip(OURS, LLAMA, strict=False):
        sides[f"ours {own}"] = ours(own)
        sides[f"llama.cpp {file_type}"] = gguf(file_type)
    sides["transformers bf16"] = theirs("bf16")
    sides["ours fp32"] = ours("fp32")
    sides["transformers fp32"] = theirs("fp32")
    return sides


def _own_speeds(result: dict[str, Any], prompt_tokens: int) -> Speeds:
    return {"prefill": prompt_tokens / result["ttft_ms"] * 1e3, "decode": result["decode_tok_s"]}


def _peer_speeds(result: dict[str, Any], args: argparse.Namespace) -> Speeds:
    decode = len(result["itl_s"]) / sum(result["itl_s"])
    return {"prefill": args.prompt_tokens / result["ttft_s"], "decode": decode}


def _run_llama(python: Path, file: Path, args: argparse.Namespace) -> Speeds:
    command = [str(python), str(WORKER), "--model", str(file), "--threads", str(args.threads)]
    command += ["--prompt-tokens", str(args.prompt_tokens), "--generate", str(args.generate)]
    result = run_for_json(command, {"OMP_NUM_THREADS": str(args.threads)})
    return {"prefill": result["prefill_tok_s"], "decode": result["decode_tok_s"]}


def llama_python() -> Path:
    """The interpreter of an environment with llama-cpp-python, built on first use."""
    python = LLAMA_ENVIRONMENT / "bin" / "python"
    if not python.exists() or subprocess.run([python, "-c", "import llama_cpp"]).returncode != 0:
        print(f"Building llama.cpp in {LLAMA_ENVIRONMENT.relative_to(ROOT)}: about 8 minutes.")
        subprocess.run([sys.executable, "-m", "venv", str(LLAMA_ENVIRONMENT)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", LLAMA_REQUIREMENT]
        subprocess.run(install, check=True, env=os.environ | {"CMAKE_ARGS": _cmake_flags()})
    return python


def _cmake_flags() -> str:
    """GGML's named levels; AVX2, FMA and F16C are on by themselves."""
    info = Path("/proc/cpuinfo")
    features = set(info.read_text(encoding="utf-8").split()) if info.exists() else set()
    flags = [flag for feature, flag in AVX512_FLAGS.items() if feature in features]
    return " ".join(["-DGGML_NATIVE=OFF", *flags])


def _llama_file(python: Path, file_type: str) -> Path:
    """The starter model in one of llama.cpp's types, made once by its own function."""
    file = FILES / f"starter-{file_type}.gguf"
    if not file.exists():
        FILES.mkdir(parents=True, exist_ok=True)
        source = str(find_starter_gguf())
        run_checked([str(python), str(WORKER), "--model", str(file), "--make", file_type, source])
    return file


def _checkpoint_folder() -> Path:
    """The starter model as transformers reads it, in FP32, made once."""
    folder = FILES / "starter-fp32"
    if not (folder / "config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_checkpoint(find_starter_gguf(), folder, "fp32")
    return folder


def _print_tables(turns: Turns, rows: list[dict[str, Any]]) -> None:
    print(f"\nmedians of {len(next(iter(turns.values())))} turns, tokens/s")
    for name, speeds in turns.items():
        medians = {p: statistics.median(s[p] for s in speeds) for p in ("prefill", "decode")}
        print(f"  {name:<20}{medians['prefill']:>9.1f}{medians['decode']:>9.1f}")
    print("\nratios (target)")
    for row in rows:
        mark = "" if row["met"] else "   missed"
        print(
            f"  {row['phase']:<8} {row['ours']:<5} / {row['peer']:<18}"
            f"{row['ratio']:>6.2f} ({row['target']}){mark}"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare with llama.cpp and transformers.")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--llama-python", type=Path, help="default: build/llama-venv, made once")
    parser.add_argument(
        "--transformers-python", type=Path, help="default: build/golden-venv, made once"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
