"""Our engine against llama.cpp and Hugging Face transformers: same model, prompt, tokens, threads.

All sides run in turn, again and again, each in a fresh process that warms up once; a ratio is the
median over the turns. llama.cpp runs without and with flash attention, because one is better in
decode and the other in prefill: in each phase the one with the better median counts. See README.md.

    make bench-peers     or     python -m tests.benchmarks.bench_peers [--alternations 5] ...
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.benchmarks.bench_transformers import peer_python, run_peer
from tests.benchmarks.measuring import (
    QUIET_PERCENT,
    ROOT,
    Workload,
    machine,
    median_ratio,
    run_engine_bench,
    wait_until_quiet,
)
from tests.benchmarks.peers.llama import (
    model_file,
    python_with_llama,
    run_llama,
    unused_features,
)
from tests.golden.write_safetensors import find_starter_gguf, write_checkpoint

FILES = ROOT / "build" / "peer-models"
OURS = ("int8", "int4", "bf16", "fp32")
LLAMA = {"int8": "q8_0", "int4": "q4_0", "bf16": "f16"}  # what stands beside our formats
FLASH_ATTENTION = ("off", "on")
PHASES = ("prefill", "decode")
BEST_LLAMA = "llama.cpp, best"
TARGETS = (  # phase, our format, the other side, least ratio
    ("decode", "int8", "llama.cpp q8_0", 2.0),
    ("decode", "int4", "llama.cpp q4_0", 2.0),
    ("decode", "bf16", "llama.cpp f16", 1.3),
    *(("prefill", ours, BEST_LLAMA, 4.0) for ours in OURS),
    *(("prefill", ours, "transformers bf16", 1.0) for ours in OURS),
    ("decode", "int8", "transformers bf16", 3.0),
    ("decode", "int4", "transformers bf16", 3.0),
    ("decode", "bf16", "transformers bf16", 2.0),
    ("decode", "fp32", "transformers fp32", 1.2),
)

Speeds = dict[str, float]  # "prefill" and "decode", tokens per second
Turns = dict[str, list[Speeds]]  # by side, e.g. "ours int8", "llama.cpp q8_0, flash on"


def main() -> int:
    """Exit code: 0 every target is met, 1 one is not."""
    args = _arguments()
    peers: dict[str, str] = {}  # what the other sides say about themselves
    sides = _sides(args, peers)
    turns: Turns = {name: [] for name in sides}
    busiest = 0.0
    for number in range(args.alternations):
        for name, run in sides.items():
            busiest = max(busiest, wait_until_quiet())
            turns[name].append(run())
            speed = turns[name][-1]
            print(
                f"  turn {number + 1}, {name:<26} prefill {speed['prefill']:8.1f}  "
                f"decode {speed['decode']:7.1f} tok/s",
                flush=True,
            )
    rows = compare(turns)
    _print_tables(turns, rows)
    unused = unused_features(peers["llama.cpp"]) if "llama.cpp" in peers else []
    if unused:
        print(f"  llama.cpp was built without {', '.join(unused)}: do not trust this.")
    if busiest > QUIET_PERCENT:
        print(f"  The machine was up to {busiest:.0f} % busy before a run: do not trust this.")
    result = {"machine": machine(), "threads": args.threads, "prompt_tokens": args.prompt_tokens}
    result |= {"generate": args.generate, "peers": peers, "turns": turns, "ratios": rows}
    print(json.dumps(result | {"busy_pct": busiest}))
    return 0 if all(row["met"] for row in rows) else 1


def compare(turns: Turns) -> list[dict[str, Any]]:
    """Every ratio that has a target and whose two sides ran."""
    rows = []
    for phase, ours, peer, target in TARGETS:
        candidates = _candidates(turns, peer)
        if f"ours {ours}" not in turns or not candidates:
            continue
        own = [speed[phase] for speed in turns[f"ours {ours}"]]
        best = max(candidates, key=lambda name: _median(turns, name, phase))
        other = [speed[phase] for speed in turns[best]]
        ratio = median_ratio(own, other)
        row = {"phase": phase, "ours": ours, "peer": peer, "counted": best}
        row |= {"ours_tok_s": statistics.median(own), "peer_tok_s": statistics.median(other)}
        rows.append(row | {"ratio": ratio, "target": target, "met": ratio >= target})
    return rows


def _candidates(turns: Turns, peer: str) -> list[str]:
    """The sides that `peer` stands for."""
    prefix = "llama.cpp" if peer == BEST_LLAMA else peer
    return [name for name in turns if name.startswith(prefix)]


def _median(turns: Turns, name: str, phase: str) -> float:
    return statistics.median(speed[phase] for speed in turns[name])


def _sides(args: argparse.Namespace, peers: dict[str, str]) -> dict[str, Callable[[], Speeds]]:
    """What runs in a turn, neighbours beside each other; `peers` fills as they run."""
    sides: dict[str, Callable[[], Speeds]] = {}
    llama = args.llama_python
    for ours in args.only:
        sides[f"ours {ours}"] = _our_side(args, ours)
        if ours in LLAMA:
            llama = llama or python_with_llama()
            file = model_file(llama, FILES, LLAMA[ours])
            for setting in FLASH_ATTENTION:
                name = f"llama.cpp {LLAMA[ours]}, flash {setting}"
                sides[name] = _llama_side(args, llama, file, setting, peers)
    if args.transformers:
        python = args.transformers_python or peer_python()
        folder = _checkpoint_folder()
        for weights in ("bf16", "fp32") if "fp32" in args.only else ("bf16",):
            sides[f"transformers {weights}"] = _transformers_side(
                args, python, folder, weights, peers
            )
    return sides


def _our_side(args: argparse.Namespace, weights: str) -> Callable[[], Speeds]:
    def run() -> Speeds:
        result = run_engine_bench(_work(args, weights, None))
        prefill = args.prompt_tokens / result["ttft_ms"] * 1e3
        return {"prefill": prefill, "decode": result["decode_tok_s"]}

    return run


def _llama_side(
    args: argparse.Namespace, python: Path, file: Path, setting: str, peers: dict[str, str]
) -> Callable[[], Speeds]:
    def run() -> Speeds:
        result = run_llama(python, _work(args, "", file), setting)
        peers["llama.cpp"] = result["system"]
        peers["llama-cpp-python"] = result["version"]
        return {"prefill": result["prefill_tok_s"], "decode": result["decode_tok_s"]}

    return run


def _transformers_side(
    args: argparse.Namespace, python: Path, folder: Path, weights: str, peers: dict[str, str]
) -> Callable[[], Speeds]:
    def run() -> Speeds:
        result = run_peer(_work(args, weights, folder), python)
        peers.update(result["versions"])
        decode = len(result["itl_s"]) / sum(result["itl_s"])
        return {"prefill": args.prompt_tokens / result["ttft_s"], "decode": decode}

    return run


def _work(args: argparse.Namespace, weights: str, model: Path | None) -> Workload:
    return Workload(model, weights, args.threads, args.prompt_tokens, args.generate)


def _checkpoint_folder() -> Path:
    """The starter model as transformers reads it, in FP32, made once."""
    folder = FILES / "starter-fp32"
    if not folder.exists():
        part = FILES / "starter-fp32.part"  # so that a broken one is never taken for the folder
        write_checkpoint(find_starter_gguf(), part, "fp32")
        part.rename(folder)
    return folder


def _print_tables(turns: Turns, rows: Iterable[dict[str, Any]]) -> None:
    print(f"\nmedians of {len(next(iter(turns.values())))} turns, tokens/s     prefill   decode")
    for name in turns:
        prefill, decode = (_median(turns, name, phase) for phase in PHASES)
        print(f"  {name:<35}{prefill:>9.1f}{decode:>9.1f}")
    print("\nratios (target)")
    for row in rows:
        mark = "" if row["met"] else "   missed"
        print(
            f"  {row['phase']:<8} {row['ours']:<5} / {row['counted']:<26}"
            f"{row['ratio']:>6.2f} ({row['target']}){mark}"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare with llama.cpp and transformers.")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--generate", type=int, default=128, help="at least 2")
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=OURS,
        default=list(OURS),
        help="formats of ours, each with its neighbour; a prefill then has fewer to beat",
    )
    parser.add_argument("--no-transformers", dest="transformers", action="store_false")
    parser.add_argument("--llama-python", type=Path, help="default: build/llama-venv, made once")
    parser.add_argument(
        "--transformers-python", type=Path, help="default: build/golden-venv, made once"
    )
    args = parser.parse_args()
    if args.generate < 2:
        parser.error("--generate: decode is timed between tokens, so at least 2")
    return args


if __name__ == "__main__":
    sys.exit(main())
