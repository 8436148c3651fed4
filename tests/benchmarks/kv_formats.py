"""Decode steps over a long context in each format of the KV cache, beside BF16.

The starter's shape at a context of 8,000 tokens and Llama-3.2-1B's at 16,000, with random weights
in INT8; every round runs a step of each format in turn, so that
what slows the machine slows all of them. Medians of the rounds; the floor is what the cache's
bytes take at the bandwidth of a torch sum measured in the same rounds.

    python -m tests.benchmarks.kv_formats [--threads 2] [--rounds 15]

Targets: INT8 no slower than BF16 at 8,000 (within 2 %, the noise), faster at 16,000.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from typing import Any

import torch

from engine.kv_formats import KV_FORMATS, kv_format_bytes
from engine.loading.checkpoint import open_checkpoint
from engine.loading.model_config import ModelConfig
from engine.starter import starter_model_path
from kernels.select import select_kernels
from tests.benchmarks.decode_floor import read_ms
from tests.benchmarks.lone_step import BLOCK_SIZE, lone_step
from tests.benchmarks.measuring import machine, wait_until_quiet
from tests.benchmarks.random_model import LLAMA_1B, build

CPU = torch.device("cpu")
FORMATS = [name for name in KV_FORMATS if name not in ("auto", "fp32")]
SUM_FLOATS = 1 << 26


def main() -> int:
    """Exit code: 0 INT8 meets both targets, 1 it does not."""
    parser = argparse.ArgumentParser(description="Decode in each format of the KV cache.")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    busy = wait_until_quiet()
    path = starter_model_path()
    if path is None:
        raise SystemExit("the starter model is not installed")
    cases = (("SmolLM2-135M", open_checkpoint(path).config, 8_000, 1.02),
             ("Llama-3.2-1B", LLAMA_1B, 16_000, 1.0))  # fmt: skip
    rows = [row for case in cases for row in measure(*case, args)]
    print(
        json.dumps({"machine": machine(), "threads": args.threads, "busy_pct": busy, "rows": rows})
    )
    return 0 if all(row["met"] for row in rows) else 1


def measure(
    name: str, config: ModelConfig, context: int, most: float, args: argparse.Namespace
) -> list[dict[str, Any]]:
    """A row a format; INT8 may take `most` of BF16's time."""
    model = build(config, "int8", select_kernels(CPU, threads=args.threads), CPU, context)
    steps = {kv_format: lone_step(model, kv_format, context) for kv_format in FORMATS}
    times: dict[str, list[float]] = {kv_format: [] for kv_format in FORMATS}
    data, reads = torch.zeros(SUM_FLOATS), []
    for _ in range(args.rounds + 2):  # the first two are warm-up: a step is recorded
        for kv_format, step in steps.items():
            times[kv_format].append(step())
        reads.append(read_ms(data))
    bandwidth = SUM_FLOATS * 4 / statistics.median(reads[2:])
    rows = []
    for kv_format in FORMATS:
        pairs = zip(times[kv_format][2:], times["bf16"][2:], strict=True)
        ratio = statistics.median(one / other for one, other in pairs)
        token = kv_format_bytes(kv_format, config.num_kv_heads, config.head_dim, BLOCK_SIZE)
        num_bytes = token * config.num_layers * context
        ms = statistics.median(times[kv_format][2:])
        print(
            f"{name} at {context:,}, {kv_format}: {ms:.2f} ms a token, {ratio:.2f} of BF16; the "
            f"cache's {num_bytes / 1e6:,.0f} MB would take {num_bytes / bandwidth:.2f} ms",
            flush=True,
        )
        row = {"model": name, "context": context, "kv": kv_format, "step_ms": ms, "ratio": ratio}
        met = kv_format != "int8" or ratio <= most
        rows.append(row | {"floor_ms": num_bytes / bandwidth, "met": met})
    return rows


if __name__ == "__main__":
    sys.exit(main())
