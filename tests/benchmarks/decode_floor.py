"""Decode against what memory allows: growth with the context, and a model of a billion weights.

- growth: ms a token at several context lengths on the starter model; the growth is compared with
  the time that reading the cache takes at the bandwidth measured beside it.
- large: random weights in the shape of Llama-3.2-1B, made in memory; bytes of a step over its time,
  as a share of the bandwidth measured at that working-set size.
- several: tokens a second of four sequences at once beside one.

Bandwidth and steps alternate in one process; medians. See README.md.

    python -m tests.benchmarks.decode_floor [growth] [large] [several] [--threads 2]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch

from engine.config import GenerationRequest, SamplingParams
from engine.kv_cache import KVCache
from engine.layers.linear import Linear
from engine.loading.model_config import ModelConfig
from engine.model_runner import ModelRunner
from engine.models.llama import LlamaModel
from engine.scheduler import ScheduledStep
from engine.sequence import Sequence
from kernels.select import KernelSet, select_kernels
from kernels.weights import GroupedWeight, KernelWeight, quantize_int4, quantize_int8
from tests.benchmarks.measuring import machine, wait_until_quiet

CPU = torch.device("cpu")
CONTEXTS = (128, 1024, 4096, 8000)
MAX_GROWTH, MIN_BANDWIDTH_SHARE, MIN_SEVERAL = 1.5, 0.7, 2.2
BLOCK_SIZE = 16
ROUNDS = 9
PARTS = ("growth", "large", "several")
STARTER = ModelConfig(
    architecture="llama",
    num_layers=30,
    hidden_size=576,
    intermediate_size=1536,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    vocab_size=49_152,
    context_length=8192,
    rms_norm_eps=1e-5,
    rope_theta=1e5,
    rope_scaling=None,
    tie_word_embeddings=True,
)
LLAMA_1B = ModelConfig(
    architecture="llama",
    num_layers=16,
    hidden_size=2048,
    intermediate_size=8192,
    num_heads=32,
    num_kv_heads=8,
    head_dim=64,
    vocab_size=128_256,
    context_length=8192,
    rms_norm_eps=1e-5,
    rope_theta=5e5,
    rope_scaling=None,
    tie_word_embeddings=True,
)


class RandomWeights:
    """Stands in for a WeightSource: random matrices of the right shapes in INT8 or INT4."""

    def __init__(self, config: ModelConfig, bits: int, kernels: KernelSet) -> None:
        heads, hidden = config.num_heads * config.head_dim, config.hidden_size
        kv = config.num_kv_heads * config.head_dim
        self._shapes = {
            "q_proj": (heads, hidden),
            "k_proj": (kv, hidden),
            "v_proj": (kv, hidden),
            "o_proj": (hidden, heads),
            "gate_proj": (config.intermediate_size, hidden),
            "up_proj": (config.intermediate_size, hidden),
            "down_proj": (hidden, config.intermediate_size),
            "embed_tokens.weight": (config.vocab_size, hidden),
        }
        self._hidden, self._bits, self._kernels = hidden, bits, kernels

    def linear(self, names: list[str]) -> Linear:
        """The product over several matrices."""
        weights = [self._matrix(name.rpartition(".")[2], self._bits) for name in names]
        return Linear(weights, [None] * len(weights), self._kernels)

    def embedding(self, name: str) -> KernelWeight:
        """The embedding, at 8 bits as the engine keeps it."""
        return self._kernels.prepare(self._matrix(name.removeprefix("model."), 8))

    def vector(self, name: str) -> torch.Tensor:
        """A norm's weight."""
        return torch.ones(self._hidden)

    def _matrix(self, name: str, bits: int) -> GroupedWeight:
        matrix = torch.randn(self._shapes[name]) * 0.02
        return quantize_int4(matrix) if bits == 4 else quantize_int8(matrix, 32)


class Bench:
    """A model with random weights and sequences of a given length, decoding without end."""

    def __init__(self, config: ModelConfig, bits: int, threads: int, max_rows: int = 1) -> None:
        torch.set_num_threads(threads)
        kernels = select_kernels(CPU, threads=threads)
        self.name = kernels.name
        self.model = LlamaModel(config, kernels, CPU)
        for _ in self.model.load(RandomWeights(config, bits, kernels), config.context_length):  # type: ignore[arg-type]
            pass
        groups = self.model.kv_cache_groups(config, torch.bfloat16)
        self._blocks = config.context_length // BLOCK_SIZE
        self.cache = KVCache(groups, self._blocks * max_rows, BLOCK_SIZE, CPU)
        for layer in range(config.num_layers):
            for entries in self.cache.layer(layer):
                entries.normal_()  # pages that were never written would all be the same one
        self._runner = ModelRunner(self.model, self.cache, config.context_length, max_rows)

    @property
    def weight_bytes(self) -> int:
        """What a step reads of the weights."""
        layers = sum(linear.num_bytes for layer in self.model.layers for linear in layer.linears)
        return layers + self.model.head.num_bytes

    def step_ms(self, context: int, rows: int = 1) -> float:
        """One decode step of `rows` sequences whose newest token is number `context`."""
        step = ScheduledStep(decode=[self._sequence(context, row) for row in range(rows)])
        start = time.perf_counter()
        self._runner.run(step)
        return (time.perf_counter() - start) * 1e3

    def _sequence(self, context: int, row: int) -> Sequence:
        request = GenerationRequest(f"{row}", prompt_ids=(1,), sampling=SamplingParams())
        sequence = Sequence(request, [1] * context, 1, 0, 0, "")
        first = 1 + row * self._blocks
        sequence.block_tables = [list(range(first, first + self._blocks))]
        return sequence


def read_ms(data: torch.Tensor) -> float:
    """Time to read a tensor once with all threads."""
    start = time.perf_counter()
    data.sum()
    return (time.perf_counter() - start) * 1e3


def growth(threads: int) -> list[dict[str, Any]]:
    """ms a token by context, and the growth over what its bytes cost."""
    bench = Bench(STARTER, 8, threads)
    times: dict[int, list[float]] = {context: [] for context in CONTEXTS}
    bandwidth: list[float] = []
    data = torch.zeros(bench.weight_bytes // 4)
    for _ in rounds():
        for context in CONTEXTS:
            times[context].append(bench.step_ms(context))
        bandwidth.append(data.numel() * 4 / read_ms(data))
    rows = []
    base = statistics.median(times[CONTEXTS[0]])
    for context in CONTEXTS[1:]:
        extra_bytes = (context - CONTEXTS[0]) * bench.cache.bytes_per_token
        floor = extra_bytes / statistics.median(bandwidth)
        ratio = (statistics.median(times[context]) - base) / floor
        rows.append({"part": "growth", "context": context, "ratio": ratio, "floor_ms": floor})
        rows[-1] |= {"step_ms": statistics.median(times[context]), "met": ratio <= MAX_GROWTH}
        print(
            f"context {context:>5}: {rows[-1]['step_ms']:.2f} ms a token, {base:.2f} at "
            f"{CONTEXTS[0]}; growth {ratio:.2f} x reading the cache (at most {MAX_GROWTH})"
        )
    return rows


def large(threads: int) -> list[dict[str, Any]]:
    """Share of the measured bandwidth that a step of Llama-3.2-1B's shape reaches."""
    rows = []
    for bits in (8, 4):
        bench = Bench(LLAMA_1B, bits, threads)
        data = torch.zeros(bench.weight_bytes // 4)
        steps, reads = [], []
        for _ in rounds():
            steps.append(bench.step_ms(64))
            reads.append(read_ms(data))
        step, read = statistics.median(steps), statistics.median(reads)
        share = read / step
        rate = bench.weight_bytes / step / 1e6
        print(
            f"Llama-3.2-1B's shape, INT{bits}: {bench.weight_bytes / 1e6:,.0f} MB, {step:.1f} ms a "
            f"token, {rate:.1f} GB/s, {share:.0%} of what torch's sum reads"
        )
        row = {"part": "large", "bits": bits, "step_ms": step, "share": share}
        rows.append(row | {"met": share >= MIN_BANDWIDTH_SHARE})
        del bench, data
    return rows


def several(threads: int) -> list[dict[str, Any]]:
    """Four rows in a step beside one."""
    bench = Bench(STARTER, 8, threads, max_rows=4)
    one, four = [], []
    for _ in rounds():
        one.append(bench.step_ms(300))
        four.append(bench.step_ms(300, rows=4))
    gain = 4 * statistics.median(one) / statistics.median(four)
    print(f"four sequences: {gain:.2f} x the tokens a second of one (at least {MIN_SEVERAL})")
    return [{"part": "several", "gain": gain, "met": gain >= MIN_SEVERAL}]


def rounds() -> Iterator[int]:
    """A warm-up's worth of patience, then the rounds."""
    wait_until_quiet()
    yield from range(ROUNDS)


def main() -> int:
    """Exit code: 0 every target is met, 1 one is not."""
    parser = argparse.ArgumentParser(description="Decode against what memory allows.")
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}")
    rows: list[dict[str, Any]] = []
    for name, measure in (("growth", growth), ("large", large), ("several", several)):
        if name in (args.parts or PARTS):
            rows += measure(args.threads)
    print(json.dumps({"machine": machine(), "threads": args.threads, "rows": rows}))
    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
