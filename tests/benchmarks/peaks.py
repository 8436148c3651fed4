"""The roofs of MFU, MBU and the roofline beside an independent measurement of the same device.

- bandwidth: the C library's memchr over arrays of each large working set, a slice a thread, beside
  what `engine.device_peaks` keeps; small sets live in the processor's cache and are only told.
- products: numpy's own BLAS (OpenBLAS) in a process of its own for FP32; for BF16, which numpy
  has not, torch's linear (oneDNN) on matrices of another shape.
- shares: the starter model in several formats; the highest MFU and MBU of any step.

Targets: each ratio within 15 %, MFU at most 1.0, MBU at most 1.1. See README.md.

    python -m tests.benchmarks.peaks [roofs] [shares] [--threads 2] [--rounds 3] [--fresh]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.benchmarks.measuring import QUIET_PERCENT, machine, run_for_json, wait_until_quiet

if TYPE_CHECKING:
    from engine.peaks import DevicePeaks

LARGE_SETS = (128 << 20, 512 << 20)
BLAS_SIZE, LINEAR_SHAPE = 2048, (1024, 1024, 1024)
REPEATS = 9
MAX_DEVIATION, MAX_MFU, MAX_MBU = 0.15, 100.0, 110.0
FORMATS = ("as-stored", "int8", "int4", "bf16", "fp32")
PROMPT_TOKENS, GENERATE = 1_024, 128
PARTS = ("roofs", "shares")

Row = dict[str, Any]


def main() -> int:
    """Exit code: 0 every target is met, 1 one is not."""
    args = _arguments()
    if args.blas:
        print(json.dumps({"flops": blas_flops()}))
        return 0
    busiest, rows = 0.0, []
    for part in args.parts:
        busiest = max(busiest, wait_until_quiet())
        rows += {"roofs": roofs, "shares": shares}[part](args)
    if busiest > QUIET_PERCENT:
        print(f"The machine was up to {busiest:.0f} % busy before a part: do not trust this.")
    report = {"machine": machine(), "threads": args.threads, "busy_pct": busiest, "rows": rows}
    print(json.dumps(report))
    return 0 if all(row["met"] for row in rows) else 1


def roofs(args: argparse.Namespace) -> list[Row]:
    """Each roof of the engine over the same one measured otherwise, in turn: the best of each."""
    import torch

    from engine.device_peaks import stored_peaks

    torch.set_num_threads(args.threads)
    kept = None if args.fresh else stored_peaks(torch.device("cpu"), args.threads)
    theirs, ours = independent(args.threads), _rates(kept or _measured(args.threads))
    for _ in range(args.rounds - 1):
        theirs = _best(theirs, independent(args.threads))
        ours = _best(ours, _rates(kept or _measured(args.threads)))
    return [_ratio(name, ours[name], theirs[name]) for name in theirs]


def _measured(threads: int) -> DevicePeaks:
    import torch

    from engine.device_peaks import measure_peaks
    from engine.peaks import DevicePeaks

    *_, peaks = measure_peaks(torch.device("cpu"), threads)
    assert isinstance(peaks, DevicePeaks)
    return peaks


def _rates(peaks: DevicePeaks) -> dict[str, float]:
    rates = {f"read {size >> 20} MiB": peaks.bandwidth_at(size) for size in LARGE_SETS}
    return rates | {f"{name} products": flops for name, flops in peaks.matmul_flops.items()}


def _best(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {name: max(rate, other[name]) for name, rate in one.items()}


def _ratio(name: str, ours: float, theirs: float) -> Row:
    ratio = ours / theirs
    print(f"{name:>14}: {ours / 1e9:7.1f}, independent {theirs / 1e9:7.1f} G/s: {ratio:.2f}")
    met = abs(ratio - 1) <= MAX_DEVIATION
    return {"part": "roofs", "roof": name, "ours": ours, "theirs": theirs, "met": met}


def independent(threads: int) -> dict[str, float]:
    """Bytes/s and FLOP/s by the other ways, by the name of the roof."""
    rates = {f"read {size >> 20} MiB": memchr_rate(size, threads) for size in LARGE_SETS}
    command = [sys.executable, "-m", "tests.benchmarks.peaks", "--blas"]
    blas = run_for_json(command, {"OPENBLAS_NUM_THREADS": str(threads)})
    return rates | {"fp32 products": blas["flops"], "bf16 products": linear_flops()}


def memchr_rate(size: int, threads: int) -> float:
    """Bytes/s of a search for a byte that is not there: reads alone, no arithmetic to speak of."""
    memchr = ctypes.CDLL(None).memchr
    memchr.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    memchr.restype = ctypes.c_void_p
    data = np.ones(size, dtype=np.uint8)
    piece = size // threads
    starts = [data.ctypes.data + n * piece for n in range(threads)]
    with ThreadPoolExecutor(threads) as pool:

        def read() -> None:
            list(pool.map(lambda start: memchr(start, 2, piece), starts))

        return size / best_seconds(read)


def blas_flops() -> float:
    """FLOP/s of numpy's matrix product in FP32, on as many threads as the environment says."""
    rng = np.random.default_rng(0)
    a, b = (rng.random((BLAS_SIZE, BLAS_SIZE), dtype=np.float32) for _ in range(2))
    return 2 * BLAS_SIZE**3 / best_seconds(lambda: a @ b)


def linear_flops() -> float:
    """FLOP/s of torch's linear layer in BF16."""
    import torch

    rows, columns, outputs = LINEAR_SHAPE
    x = torch.randn(rows, columns).to(torch.bfloat16)
    weight = torch.randn(outputs, columns).to(torch.bfloat16)
    seconds = best_seconds(lambda: torch.nn.functional.linear(x, weight))
    return 2 * rows * columns * outputs / seconds


def best_seconds(operation: Callable[[], object]) -> float:
    """The shortest of several runs after one that warms up."""
    operation()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        operation()
        times.append(time.perf_counter() - start)
    return min(times)


def shares(args: argparse.Namespace) -> list[Row]:
    """The highest MFU and MBU that any step of the starter model is said to reach."""
    return [_share(weights, args.threads) for weights in FORMATS]


def _share(weights: str, threads: int) -> Row:
    from engine.config import EngineConfig, GenerationRequest, SamplingParams
    from engine.events import StepStats
    from engine.load_blocking import load_or_raise
    from engine.session import create_session
    from engine.starter import starter_model_path

    session = create_session()
    path = starter_model_path()
    assert path is not None
    load_or_raise(session, EngineConfig(path, weight_format=weights, threads=threads))
    request = GenerationRequest(
        "shares",
        prompt_ids=tuple(range(100, 100 + PROMPT_TOKENS)),
        sampling=SamplingParams(temperature=0.0),
        max_tokens=GENERATE,
        ignore_eos=True,
    )
    steps = [event for event in session.generate(request) if isinstance(event, StepStats)]
    session.close()
    mfu = max(step.mfu_pct or 0.0 for step in steps)
    mbu = sorted(step.mbu_pct or 0.0 for step in steps)
    print(
        f"{weights:>10}: MFU up to {mfu:.0f} %, MBU up to {mbu[-1]:.0f} %, "
        f"half of the steps over {mbu[len(mbu) // 2]:.0f} %",
        flush=True,
    )
    row: Row = {"part": "shares", "weights": weights, "mfu_pct": mfu, "mbu_pct": mbu[-1]}
    return row | {"met": mfu <= MAX_MFU and mbu[-1] <= MAX_MBU}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peaks", description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS, help=f"of {', '.join(PARTS)}")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each, in turn")
    parser.add_argument("--fresh", action="store_true", help="measure anew instead of what is kept")
    parser.add_argument("--blas", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
