"""Each CPU kernel alone: microseconds, GB/s and GFLOP/s beside what the machine can do.

A pass over many copies of a weight or cache, so that a step's memory is read and not a cache, is
recorded once and replayed: no Python in what is timed. Best of the repeats. See README.md.

    python -m tests.benchmarks.kernel_speed [--threads 2] [--only linear attention small]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch

from engine.device_peaks import DevicePeaks, measure_peaks, stored_peaks
from kernels.recording import CancelCell
from kernels.reference import PrefillSpan
from kernels.select import KernelSet, select_kernels
from kernels.weights import DenseWeight, KernelWeight, Weight, quantize_int4, quantize_int8
from tests.benchmarks.measuring import machine, wait_until_quiet

CPU = torch.device("cpu")
WORKING_SET = 128 << 20  # bytes: that of the starter model
REPEATS = 9
SHAPES = ((960, 576), (3072, 576), (576, 1536), (16_384, 2048), (2048, 8192))
ROWS = (1, 4, 8, 512)
CONTEXTS = (128, 1024, 8000)
FORMATS: dict[str, Callable[[torch.Tensor], Weight]] = {
    "fp32": DenseWeight,
    "bf16": lambda w: DenseWeight(w.bfloat16()),
    "int8": quantize_int8,
    "int4": quantize_int4,
}
PARTS = ("linear", "attention", "small")


@dataclass(frozen=True)
class Speed:
    """One kernel on one shape. `num_bytes` and `flops` are those of a call."""

    name: str
    shape: str
    microseconds: float
    num_bytes: int
    flops: int

    def line(self, peaks: DevicePeaks) -> str:
        """A row of the table, with shares of the measured peaks."""
        seconds = self.microseconds / 1e6
        rate, flops = self.num_bytes / seconds, self.flops / seconds
        of_bandwidth = rate / peaks.bandwidth_at(WORKING_SET)
        of_peak = flops / peaks.matmul_flops["fp32"]
        return (
            f"{self.name:<18}{self.shape:<22}{self.microseconds:>10.1f} us{rate / 1e9:>8.1f} GB/s "
            f"({of_bandwidth:>4.0%}){flops / 1e9:>9.1f} GFLOP/s ({of_peak:>4.0%})"
        )


def main() -> int:
    """Print the table; the JSON object last."""
    parser = argparse.ArgumentParser(description="Time each CPU kernel.")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    kernels = select_kernels(CPU, threads=args.threads)
    peaks = _peaks(args.threads)
    busy = wait_until_quiet()
    print(f"{kernels.name}, {args.threads} threads; shares are of a read and of torch's FP32 GEMM")
    speeds = []
    for part, measure in (("linear", linear), ("attention", attention), ("small", small)):
        for speed in measure(kernels) if part in args.only else ():
            speeds.append(asdict(speed))
            print(speed.line(peaks), flush=True)
    print(
        json.dumps(
            {"machine": machine(), "threads": args.threads, "busy_pct": busy, "speeds": speeds}
        )
    )
    return 0


def linear(kernels: KernelSet) -> Iterator[Speed]:
    """Products in every format, from a decode step's row to a prompt's."""
    for num_out, num_in in SHAPES:
        for name, make in FORMATS.items():
            matrix = torch.randn(num_out, num_in)
            weight = kernels.prepare(make(matrix))
            copies = [kernels.prepare(make(matrix)) for _ in range(_copies(weight.num_bytes))]
            for rows in ROWS:
                x = torch.randn(rows, num_in)
                passes = copies if rows <= 8 else copies[:2]
                yield Speed(
                    f"linear {name}",
                    f"{rows} x {num_in} -> {num_out}",
                    _microseconds(kernels, [_product(kernels, x, copy) for copy in passes]),
                    weight.num_bytes,
                    2 * rows * num_out * num_in,
                )


def attention(kernels: KernelSet) -> Iterator[Speed]:
    """Decode over several contexts, and a prompt, with the starter's heads and a BF16 cache."""
    heads, kv_heads, dim, size = 9, 3, 64, 16
    for context in CONTEXTS:
        blocks = -(-context // size)
        num_bytes = 2 * 2 * context * kv_heads * dim
        caches = [
            torch.randn(2, blocks + 1, size, kv_heads, dim).bfloat16()
            for _ in range(_copies(num_bytes))
        ]
        table = torch.arange(1, blocks + 1)[None]
        q, length = torch.randn(1, heads, dim), torch.tensor([context])

        def decode(cache: torch.Tensor, arguments: tuple[torch.Tensor, ...]) -> torch.Tensor:
            query, tables, lengths = arguments
            return kernels.attention_decode(query, *cache, tables, lengths, 0.125)

        calls = [lambda c=cache, a=(q, table, length): decode(c, a) for cache in caches]
        flops = 4 * heads * dim * context
        yield Speed(
            "attention decode",
            f"context {context}",
            _microseconds(kernels, calls),
            num_bytes,
            flops,
        )
    cache = torch.randn(2, 33, size, kv_heads, dim).bfloat16()
    q = torch.randn(512, heads, dim)
    spans = [PrefillSpan(512, 512, torch.arange(1, 33))]
    calls = [lambda: kernels.attention_prefill(q, *cache, spans, 0.125)] * 2
    num_bytes, flops = 2 * 2 * 512 * kv_heads * dim, 4 * heads * dim * 512 * 513 // 2
    yield Speed("attention prefill", "512", _microseconds(kernels, calls), num_bytes, flops)


def small(kernels: KernelSet) -> Iterator[Speed]:
    """What lies between the products, one row, hot in the cache."""
    x, weight = torch.randn(1, 576), torch.ones(576)
    calls = [lambda: kernels.rms_norm(x, weight, 1e-5)] * 100
    yield Speed("rms_norm", "576", _microseconds(kernels, calls), 8 * 576, 4 * 576)
    gate = torch.randn(1, 3072)
    calls = [lambda: kernels.silu_and_mul(gate)] * 100
    yield Speed("silu_and_mul", "1536", _microseconds(kernels, calls), 12 * 1536, 10 * 1536)
    logits, inverse = torch.randn(1, 49_152), torch.ones(1)
    for k in (1, 64):
        calls = [lambda k=k: kernels.top_k(logits, inverse, k).ids] * 20
        yield Speed("top_k", f"{k} of 49152", _microseconds(kernels, calls), 4 * 49_152, 0)


def _product(
    kernels: KernelSet, x: torch.Tensor, weight: KernelWeight
) -> Callable[[], torch.Tensor]:
    return lambda: kernels.linear(x, weight)


def _microseconds(kernels: KernelSet, calls: list[Callable[[], torch.Tensor]]) -> float:
    """Time of one call, the best of the repeats of all of them in one replay."""
    _, recording = kernels.record(lambda: tuple(call() for call in calls))
    cancel, best = CancelCell(), float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        recording.replay(cancel)
        best = min(best, time.perf_counter() - start)
    return best / len(calls) * 1e6


def _copies(num_bytes: int) -> int:
    return max(2, WORKING_SET // num_bytes)


def _peaks(threads: int) -> DevicePeaks:
    """The device's figures, measured if they are not known."""
    known = stored_peaks(CPU, threads)
    if known is not None:
        return known
    *_, measured = measure_peaks(CPU, threads)
    assert isinstance(measured, DevicePeaks)
    return measured


if __name__ == "__main__":
    sys.exit(main())
