"""Each CPU kernel alone: microseconds, GB/s and GFLOP/s beside what the machine can do.

A pass over many copies of a weight or cache, so that a model's memory is read and not a cache, is
recorded once and replayed: no Python in what is timed. Products of a prompt's many rows run as in
a prompt, one by one and by what is faster here. Best of the repeats. See README.md.

    python -m tests.benchmarks.kernel_speed [--threads 2] [--only linear attention small]
        [--shapes starter llama-1b]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from tempfile import TemporaryDirectory
from typing import TypeVar
from unittest.mock import patch

import torch

from engine.device_peaks import measure_peaks
from engine.peaks import DevicePeaks
from kernels.recording import CancelCell
from kernels.reference import PrefillSpan
from kernels.select import KernelSet, select_kernels
from kernels.weights import DenseWeight, KernelWeight, Weight, quantize_int4, quantize_int8
from tests.benchmarks.measuring import machine, wait_until_quiet

CPU = torch.device("cpu")
REPEATS = 9
REPEATS_OF_MANY = 3  # products of a prompt's rows take long and scatter less
DECODE_ROWS = (1, 4, 8)
PROMPT_ROWS = 512
CONTEXTS = (128, 1024, 4096, 8000)
BLOCK_SIZE = 16
FORMATS: dict[str, Callable[[torch.Tensor], Weight]] = {
    "fp32": DenseWeight,
    "bf16": lambda w: DenseWeight(w.bfloat16()),
    "int8": quantize_int8,
    "int4": quantize_int4,
}
PARTS = ("linear", "attention", "small")

W = TypeVar("W", bound=KernelWeight)
Call = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Shape:
    """A model's sizes; `working_set` is about what a step of it reads, in bytes."""

    hidden: int
    inner: int
    heads: int
    kv_heads: int
    vocab: int
    working_set: int
    head_dim: int = 64

    @property
    def products(self) -> tuple[tuple[str, int, int], ...]:
        """(name, outputs, inputs) of every matrix."""
        queries = self.heads * self.head_dim
        return (
            ("qkv", queries + 2 * self.kv_heads * self.head_dim, self.hidden),
            ("output", self.hidden, queries),
            ("gate_up", 2 * self.inner, self.hidden),
            ("down", self.hidden, self.inner),
            ("head", self.vocab, self.hidden),
        )

    def copies(self, num_bytes: int) -> int:
        """How many things of this size make the working set."""
        return max(1, self.working_set // num_bytes)


SHAPES = {
    "starter": Shape(576, 1536, 9, 3, 49_152, working_set=128 << 20),
    "llama-1b": Shape(2048, 8192, 32, 8, 128_256, working_set=512 << 20),
}


@dataclass(frozen=True)
class Speed:
    """One kernel on one shape: bytes and FLOPs of a call, bytes that calls in turn go over."""

    model: str
    name: str
    shape: str
    microseconds: float
    num_bytes: int
    flops: int
    working_set: int

    def shares(self, peaks: DevicePeaks) -> dict[str, float]:
        """GB/s and GFLOP/s, each also as a share of what the machine can do."""
        rate, flops = (1e6 * count / self.microseconds for count in (self.num_bytes, self.flops))
        return {
            "gb_s": rate / 1e9,
            "of_bandwidth": rate / peaks.bandwidth_at(self.working_set),
            "gflop_s": flops / 1e9,
            "of_matmul": flops / max(peaks.matmul_flops.values()),
        }


def main() -> int:
    """Print the table; the JSON object last."""
    args = _arguments()
    torch.set_num_threads(args.threads)
    busy = wait_until_quiet()
    peaks = _peaks(args.threads)
    fast_bf16 = peaks.matmul_flops["bf16"] > peaks.matmul_flops["fp32"]
    dense_dtype = torch.bfloat16 if fast_bf16 else torch.float32
    kernels = select_kernels(CPU, dense_dtype=dense_dtype, threads=args.threads)
    print(
        f"{kernels.name}, {args.threads} threads; shares are of a read of as many bytes and of "
        "torch's fastest matmul"
    )
    speeds = []
    for model in args.shapes:
        peaks = _peaks(args.threads)  # again, since speeds drift
        for part, measure in (("linear", linear), ("attention", attention), ("small", small)):
            for speed in measure(kernels, model) if part in args.only else ():
                shares = speed.shares(peaks)
                speeds.append(asdict(speed) | shares)
                print(_line(speed, shares), flush=True)
    result = {"machine": machine(), "threads": args.threads, "kernels": kernels.name}
    print(json.dumps(result | {"busy_pct": busy, "peaks": asdict(peaks), "speeds": speeds}))
    return 0


@torch.inference_mode()
def linear(kernels: KernelSet, model: str) -> Iterator[Speed]:
    """Products in every format, from a decode step's row to a prompt's."""
    shape = SHAPES[model]
    for product, num_out, num_in in shape.products:
        is_head = product == "head"
        for name, make in FORMATS.items():
            if is_head and name == "int4":
                continue  # the engine keeps a head at 8 bits
            weight = kernels.prepare(make(torch.randn(num_out, num_in)))
            copies = [_clone(weight) for _ in range(shape.copies(weight.num_bytes))]
            for rows in DECODE_ROWS if is_head else (*DECODE_ROWS, PROMPT_ROWS):
                x = torch.randn(rows, num_in)
                yield Speed(
                    model,
                    f"linear {name}",
                    f"{product} {num_in} -> {num_out}, {rows} rows",
                    _product_microseconds(kernels, x, copies),
                    weight.num_bytes,
                    2 * rows * num_out * num_in,
                    shape.working_set,
                )


@torch.inference_mode()
def attention(kernels: KernelSet, model: str) -> Iterator[Speed]:
    """Decode over several contexts, and a prompt, over a BF16 cache."""
    shape = SHAPES[model]
    scale = shape.head_dim**-0.5
    for context in CONTEXTS:
        num_bytes = 2 * 2 * context * shape.kv_heads * shape.head_dim
        caches = [_cache(shape, context) for _ in range(shape.copies(num_bytes))]
        table, length = torch.arange(1, _blocks(context) + 1)[None], torch.tensor([context])
        q = torch.randn(1, shape.heads, shape.head_dim)
        calls = [
            lambda c=cache, a=(q, table, length): kernels.attention_decode(a[0], *c, *a[1:], scale)
            for cache in caches
        ]
        yield Speed(
            model,
            "attention decode",
            f"context {context}",
            _microseconds(kernels, calls),
            num_bytes,
            4 * shape.heads * shape.head_dim * context,
            shape.working_set,
        )
    cache = _cache(shape, PROMPT_ROWS)
    q = torch.randn(PROMPT_ROWS, shape.heads, shape.head_dim)
    spans = [PrefillSpan(PROMPT_ROWS, PROMPT_ROWS, torch.arange(1, _blocks(PROMPT_ROWS) + 1))]
    num_bytes = 2 * 2 * PROMPT_ROWS * shape.kv_heads * shape.head_dim
    yield Speed(
        model,
        "attention prefill",
        f"{PROMPT_ROWS} rows",
        _microseconds(kernels, [lambda: kernels.attention_prefill(q, *cache, spans, scale)] * 2),
        num_bytes,
        4 * shape.heads * shape.head_dim * PROMPT_ROWS * (PROMPT_ROWS + 1) // 2,
        num_bytes,
    )


@torch.inference_mode()
def small(kernels: KernelSet, model: str) -> Iterator[Speed]:
    """What lies between the products, one row, hot in the cache as in a step."""
    shape = SHAPES[model]
    hidden, inner, vocab = shape.hidden, shape.inner, shape.vocab

    def speed(name: str, sizes: str, call: Call, num_bytes: int, flops: int) -> Speed:
        microseconds = _microseconds(kernels, [call] * (20 if name == "top_k" else 100))
        return Speed(model, name, sizes, microseconds, num_bytes, flops, num_bytes)

    x, delta, weight = torch.randn(1, hidden), torch.zeros(1, hidden), torch.ones(hidden)
    yield speed(
        "fused_add_rms_norm",
        f"{hidden}",
        lambda: kernels.fused_add_rms_norm(delta, x, weight, 1e-5),
        20 * hidden,
        5 * hidden,
    )
    gate_up = torch.randn(1, 2 * inner)
    yield speed(
        "silu_and_mul", f"{inner}", lambda: kernels.silu_and_mul(gate_up), 12 * inner, 10 * inner
    )
    yield speed("rope_and_store_kv", _heads(shape), _rope(kernels, shape), *_rope_costs(shape))
    logits, inverse = torch.randn(1, vocab), torch.ones(1)
    for k in (1, 64):
        yield speed(
            "top_k",
            f"{k} of {vocab}",
            lambda k=k: kernels.top_k(logits, inverse, k).ids,
            4 * vocab,
            0,
        )


def _rope(kernels: KernelSet, shape: Shape) -> Call:
    """One token's queries, keys and values into an empty cache."""
    heads = torch.randn(1, shape.heads + 2 * shape.kv_heads, shape.head_dim)
    q, k, v = heads.split((shape.heads, shape.kv_heads, shape.kv_heads), dim=1)
    position, slot = torch.tensor([3]), torch.tensor([BLOCK_SIZE + 3])
    cos, sin = torch.rand(2, 16, shape.head_dim // 2)
    cache = _cache(shape, BLOCK_SIZE)
    return lambda: kernels.rope_and_store_kv(q, k, v, position, cos, sin, *cache, slot)


def _rope_costs(shape: Shape) -> tuple[int, int]:
    """(bytes, FLOPs): heads read, queries written, keys and values written in BF16."""
    rotated = shape.heads + shape.kv_heads
    entries = 4 * (rotated + shape.kv_heads) + 4 * shape.heads + 2 * 2 * shape.kv_heads
    return entries * shape.head_dim, 3 * rotated * shape.head_dim


def _heads(shape: Shape) -> str:
    return f"{shape.heads} + 2 x {shape.kv_heads} heads of {shape.head_dim}"


def _cache(shape: Shape, context: int) -> torch.Tensor:
    """Keys and values of a layer, the null block before them."""
    blocks = _blocks(context) + 1
    return torch.randn(2, blocks, BLOCK_SIZE, shape.kv_heads, shape.head_dim).bfloat16()


def _blocks(context: int) -> int:
    return -(-context // BLOCK_SIZE)


def _clone(weight: W) -> W:
    """The same weight at another place in memory."""
    values = {field.name: getattr(weight, field.name) for field in fields(weight)}
    tensors = {name: t.clone() for name, t in values.items() if isinstance(t, torch.Tensor)}
    return replace(weight, **tensors)


def _product_microseconds(kernels: KernelSet, x: torch.Tensor, copies: list[KernelWeight]) -> float:
    if x.shape[0] <= max(DECODE_ROWS):
        return _microseconds(kernels, [lambda w=w: kernels.linear(x, w) for w in copies])
    kernels.linear.tune(copies[0])
    kernels.linear(x, copies[0])
    return min(_seconds(lambda: kernels.linear(x, copies[0])) for _ in range(REPEATS_OF_MANY)) * 1e6


def _microseconds(kernels: KernelSet, calls: list[Call]) -> float:
    """Time of one call, the best of the repeats of all of them in one replay."""
    _, recording = kernels.record(lambda: tuple(call() for call in calls))
    cancel = CancelCell()
    best = min(_seconds(lambda: recording.replay(cancel)) for _ in range(REPEATS))
    return best / len(calls) * 1e6


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _line(speed: Speed, shares: dict[str, float]) -> str:
    return (
        f"{speed.model:<9}{speed.name:<20}{speed.shape:<32}{speed.microseconds:>10.1f} us"
        f"{shares['gb_s']:>8.1f} GB/s ({shares['of_bandwidth']:>4.0%})"
        f"{shares['gflop_s']:>9.1f} GFLOP/s ({shares['of_matmul']:>4.0%})"
    )


def _peaks(threads: int) -> DevicePeaks:
    """The device's figures as of now: what a load kept may come from a busier hour."""
    with TemporaryDirectory() as home, patch.dict(os.environ, {"PHASESCOPE_HOME": home}):
        *_, measured = measure_peaks(CPU, threads)
    assert isinstance(measured, DevicePeaks)
    return measured


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time each CPU kernel.")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--shapes", nargs="+", choices=tuple(SHAPES), default=list(SHAPES))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
