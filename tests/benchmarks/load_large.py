"""Loading a checkpoint of 4 GB: time to the first token beside transformers, and peak memory.

A random checkpoint of a 2B Llama's shape is written in BF16 (sharded), then loaded in fresh
processes, ours and theirs in turn, from a warm page cache. Time runs from the begin of the load to
the first token of a 16-token prompt; libraries are imported before. Memory is what the kernel calls
RssAnon, sampled every 5 ms: at its largest, and once the model is there. See README.md.

    python -m tests.benchmarks.load_large [--folder DIR] [--turns 3] [--python PATH]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from engine.loading.model_config import expected_tensors
from engine.models.registry import read_hf_config
from tests.benchmarks.bench_transformers import peer_python
from tests.benchmarks.measuring import (
    QUIET_PERCENT,
    ROOT,
    machine,
    median_ratio,
    run_for_json,
    wait_until_quiet,
)

WORKER = Path(__file__).with_name("load_worker.py")
TOKENIZER = ROOT / "tests" / "golden" / "tiny"
SHARD_BYTES = 2 * 10**9
MAX_OVER_FINAL_BYTES = 10**9
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 31,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "dtype": "bfloat16",
}


def main() -> int:
    """Exit code: 0 both targets are reached, 1 one is not."""
    args = _arguments()
    if args.folder is not None:
        return measure(args, write_checkpoint(args.folder))
    with tempfile.TemporaryDirectory() as scratch:
        return measure(args, write_checkpoint(Path(scratch) / "random-2b"))


def measure(args: argparse.Namespace, folder: Path) -> int:
    """Alternate the sides, print what was seen; the exit code."""
    python = args.python or peer_python()
    ours, theirs, busiest = [], [], 0.0
    for _ in range(args.turns):
        busiest = max(busiest, wait_until_quiet())
        ours.append(_run(sys.executable, "ours", folder, "as-stored", args.threads))
        busiest = max(busiest, wait_until_quiet())
        theirs.append(_run(str(python), "transformers", folder, "bf16", args.threads))
    int4 = _run(sys.executable, "ours", folder, "int4", args.threads)
    first = {
        name: [run["first_token_s"] for run in runs]
        for name, runs in (("ours", ours), ("transformers", theirs))
    }
    ratio = median_ratio(first["transformers"], first["ours"])
    over = int4["peak_anonymous_bytes"] - int4["final_anonymous_bytes"]
    for name, seconds in first.items():
        print(f"BF16 to the first token, {name}: {statistics.median(seconds):.1f} s of {seconds}")
    print(f"theirs / ours: {ratio:.2f} (1 wanted)")
    print(
        f"INT4: {int4['first_token_s']:.1f} s, RssAnon "
        f"{int4['final_anonymous_bytes'] / 1e9:.2f} GB in the end, "
        f"{over / 1e9:.2f} GB more at its peak (1 allowed)"
    )
    if busiest > QUIET_PERCENT:
        print(f"The machine was up to {busiest:.0f} % busy before a run: do not trust the times.")
    report = {"machine": machine(), "threads": args.threads, "busy_pct": busiest}
    report |= {"ours": ours, "transformers": theirs, "int4": int4, "ratio": ratio}
    print(json.dumps(report))
    return 0 if ratio >= 1.0 and over <= MAX_OVER_FINAL_BYTES else 1


def write_checkpoint(folder: Path, **changed: int) -> Path:
    """The random checkpoint, written once, a shard at a time; fields of CONFIG may be `changed`."""
    config = CONFIG | changed
    if (folder / "model.safetensors.index.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, folder)
    shapes = expected_tensors(read_hf_config(config, folder / "config.json")[1])
    generator = torch.Generator().manual_seed(0)
    parts: list[dict[str, tuple[int, ...]]] = [{}]
    filled = 0
    for name, shape in shapes.items():
        filled += 2 * torch.Size(shape).numel()
        if filled > SHARD_BYTES:
            parts.append({})
            filled = 2 * torch.Size(shape).numel()
        parts[-1][name] = shape
    weight_map = {}
    for number, part in enumerate(parts, start=1):
        file_name = f"model-{number:05}-of-{len(parts):05}.safetensors"
        tensors = {
            name: torch.empty(shape, dtype=torch.bfloat16).normal_(0, 0.02, generator=generator)
            if len(shape) == 2
            else torch.ones(shape, dtype=torch.bfloat16)
            for name, shape in part.items()
        }
        save_file(tensors, folder / file_name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file_name)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def _run(python: str, side: str, folder: Path, weights: str, threads: int) -> dict[str, Any]:
    command = [python, str(WORKER), side, str(folder), weights, str(threads)]
    return run_for_json(command, {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time and memory of loading 4 GB.")
    parser.add_argument("--folder", type=Path, help="where the checkpoint is, or is to be, kept")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--python", type=Path, help="interpreter with transformers")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
