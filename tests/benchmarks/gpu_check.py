"""Are the GPU's kernels right, and how fast is a model of Llama-3.1-8B's shape? Without Qt.

    python -m tests.benchmarks.gpu_check [--quick] [--interpret]

needs an NVIDIA GPU with 24 GB, torch 2.11 and Triton 3.6 or newer, and ends within 8 minutes on a
data-centre GPU. It compares every kernel with its reference on fresh random inputs, a small model
with the same model on torch's operations, and a replayed step with a computed one. Then it builds
random-weight models in BF16, INT8 and INT4 on the GPU and times decode at 1k and 16k tokens of
context and prefill of 2k and 8k tokens, beside Hugging Face transformers where that is installed,
and decode's attention over 8k and 16k tokens in each format of the KV cache.
--quick leaves out INT8, 16k, 8k and transformers. --interpret does the small checks in Triton's
interpreter and needs no GPU. The tables come last. Exit code 1: something differs, or no GPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from engine.kv_cache import KVCache
from engine.kv_formats import kv_format_bytes
from engine.layers.attention_metadata import DecodeMetadata, PrefillMetadata
from engine.models.decoder import DecoderModel, kv_cache_groups
from kernels.recording import CancelCell
from kernels.reference import PrefillSpan
from kernels.select import torch_kernels
from tests.benchmarks.random_model import LLAMA_8B, build, step_weight_bytes
from tests.kernels.gpu.cases import CASES, LARGE_CASES

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 8 * 60
BLOCK_SIZE = 16

TINY = replace(
    LLAMA_8B,
    vocab_size=67,
    hidden_size=64,
    intermediate_size=96,
    layers=LLAMA_8B.layers[:2],
    num_heads=5,
    num_kv_heads=1,
    head_dim=32,
)
# Of logits near 1, computed in FP32 by other kernels in another order.
TINY_TOLERANCE = 1e-3
# The same where a value that is rounded elsewhere may take the next code of a quantized cache.
TINY_KV_TOLERANCE = 2e-2
# The one sequence's tail; 0 is that of padding rows.
TAIL = 1
# Formats of weights and of the KV cache. The interpreter cuts BF16 off instead of rounding, and
# with that the keys that INT4 KV is quantized from: codes would differ from torch's.
TINY_FORMATS = (
    *((weights, "fp32") for weights in ("fp32", "int8", "int4")),
    *(("fp32", kv_format) for kv_format in ("int8", "k8v4")),
)
QUICK_TINY_FORMATS = (("int4", "fp32"), ("fp32", "k8v4"))


@dataclass
class Chat:
    """One sequence in a cache of its own: a prompt of any length, then steps of one token."""

    model: DecoderModel
    context: int
    kv_format: str
    ids: torch.Tensor = field(init=False)
    positions: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        device, blocks = self.model.device, -(-self.context // BLOCK_SIZE)
        groups = kv_cache_groups(self.model.config, self.kv_format)
        self.cache = KVCache(
            groups,
            [blocks],
            BLOCK_SIZE,
            device,
            max_num_seqs=1,
            max_num_batched_tokens=self.context,
        )
        # Blocks in an order that nothing may rely on.
        self.table = (torch.randperm(blocks) + 1).to(device)
        self.ids, self.positions = (
            torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2)
        )
        self.step_metadata = DecodeMetadata(
            torch.zeros(1, dtype=torch.int64, device=device),
            self.table[None],
            torch.ones(1, dtype=torch.int64, device=device),
            torch.full((1,), TAIL, device=device),
        )

    def prefill(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits [1, vocab] after the last of ids [T], the sequence's first tokens."""
        positions = torch.arange(len(ids), device=self.model.device)
        slots = self.table[positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE
        table = self.table[: -(-len(ids) // BLOCK_SIZE)]
        tails = torch.full_like(slots, TAIL)
        metadata = PrefillMetadata(slots, (PrefillSpan(len(ids), len(ids), table),), tails)
        hidden = self.model.forward(ids, positions, self.cache, (metadata,), CancelCell())
        return self.model.logits(hidden[-1:])

    def set_step(self, token: int, position: int) -> None:
        """What the next step computes: `token` at `position`, after as many tokens."""
        metadata = self.step_metadata
        self.ids.fill_(token)
        self.positions.fill_(position)
        metadata.context_lens.fill_(position + 1)
        block = self.table[position // BLOCK_SIZE]
        metadata.slot_mapping.copy_(block * BLOCK_SIZE + position % BLOCK_SIZE)

    def step(self) -> tuple[torch.Tensor]:
        """Logits [1, vocab] of one decode step."""
        metadata = (self.step_metadata,)
        hidden = self.model.forward(self.ids, self.positions, self.cache, metadata, CancelCell())
        return (self.model.logits(hidden),)


@dataclass
class Report:
    """What goes into the tables at the end, and whether anything was wrong."""

    checks: list[tuple[str, str]] = field(default_factory=list)
    rows: list[tuple[str, ...]] = field(default_factory=list)
    failed: bool = False

    def check(self, name: str, passed: bool, words: str) -> None:
        """A line of the first table."""
        self.failed |= not passed
        self.checks.append((name, f"{'ok' if passed else 'WRONG'}, {words}"))

    def print(self) -> None:
        """Both tables."""
        _print_table(("check", "result"), self.checks)
        if self.rows:
            print()
            header = ("weights", "work", "time", "rate", "share of measured peak")
            _print_table(header, self.rows)


def _print_table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )


def check_cases(report: Report, device: str, names: list[str], processes: int) -> None:
    """Every kernel against its reference, from a seed that is new each time.

    Most of the time goes into compiling, hence several processes; a crash in one spares the rest.
    """
    seed = time.time_ns() % 2**31

    def run(part: list[str]) -> dict[str, str | None]:
        command = [sys.executable, "-m", "tests.kernels.gpu.worker", device, str(seed), *part]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return dict.fromkeys(part, f"the process died: {done.stderr[-2000:]}")
        results: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
        return results

    with ThreadPoolExecutor(processes) as pool:
        parts = pool.map(run, [names[first::processes] for first in range(processes)])
        failures = {name: why for part in parts for name, why in part.items() if why}
    for name, why in failures.items():
        print(f"\n{name}\n{why}", file=sys.stderr)
    words = f"{len(names) - len(failures)} of {len(names)} cases equal the reference, seed {seed}"
    report.check("kernels", not failures, words)


def check_tiny_models(
    report: Report, device: torch.device, formats: Iterable[tuple[str, str]]
) -> None:
    """A small model's logits, of a prompt and of steps, against those of torch, in FP32.

    `formats` are pairs of a weight format and a KV format. The prompt fills one block, the steps
    the next one.
    """
    from kernels.gpu.kernel_set import gpu_kernels

    fp32 = torch.float32
    # More tokens than the kernels for few rows take.
    ids = torch.randint(TINY.vocab_size, (30,), device=device)
    for weight_format, kv_format in formats:
        answers = []
        for kernels in (gpu_kernels(fp32, fp32), torch_kernels(fp32, fp32)):
            chat = Chat(build(TINY, weight_format, kernels, device, 64), 64, kv_format)
            logits = [chat.prefill(ids)]
            for token in (17, 5, 11):
                chat.set_step(token, len(ids) + len(logits) - 1)
                logits += chat.step()
            answers.append(torch.cat(logits))
        worst = (answers[0] - answers[1]).abs().max().item()
        words = f"logits of a small model within {worst:.1e} of torch's"
        tolerance = TINY_TOLERANCE if kv_format == "fp32" else TINY_KV_TOLERANCE
        report.check(f"model {weight_format}, KV {kv_format}", worst <= tolerance, words)


def milliseconds(run: Callable[[], object], repeats: int) -> float:
    """Median time of `run` on the device."""
    run()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


@dataclass(frozen=True)
class Peaks:
    """What this GPU does at best, measured: bytes/s read and written, BF16 FLOP/s of a product."""

    bandwidth: float
    flops: float


def measure_peaks() -> Peaks:
    """A copy of 2 GiB, a sum over as much, and products of 8192 x 8192 matrices."""
    size = 2 << 30
    source = torch.zeros(size // 4, device="cuda")
    target = torch.empty_like(source)
    copied = 2 * size / milliseconds(lambda: target.copy_(source), 9)
    read = size / milliseconds(lambda: source.sum(), 9)
    a, b = (torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    product = 2 * 8192**3 / milliseconds(lambda: a @ b, 9)
    return Peaks(bandwidth=max(copied, read) * 1e3, flops=product * 1e3)


def measure_model(report: Report, peaks: Peaks, weight_format: str, quick: bool) -> None:
    """Build one model, compare replay with computing, and time it."""
    from kernels.gpu.kernel_set import WARM_UP_TOKENS, gpu_kernels

    bf16, device = torch.bfloat16, torch.device("cuda")
    contexts, prompts = ((1024,), (2048,)) if quick else ((1024, 16384), (2048, 8192))
    start = time.perf_counter()
    kernels = gpu_kernels(bf16, bf16)
    longest = max(*contexts, *prompts)
    model = build(LLAMA_8B, weight_format, kernels, device, longest + BLOCK_SIZE)
    for weight in model.typical_weights():
        kernels.linear.tune(weight)
    chat = Chat(model, longest + BLOCK_SIZE, "bf16")
    ids = torch.randint(LLAMA_8B.vocab_size, (longest,), device=device)
    for count in WARM_UP_TOKENS:
        chat.prefill(ids[:count])
    (logits,), recording = kernels.record(chat.step)
    torch.cuda.synchronize()
    report.rows.append((weight_format, "build, tune, warm up", _s(start), "", ""))

    for count in prompts:
        time_ms = milliseconds(lambda count=count: chat.prefill(ids[:count]), 3)  # type: ignore[misc]
        share = _prefill_flops(model, count) / time_ms * 1e3 / peaks.flops
        rate = f"{count / time_ms * 1e3:,.0f} tok/s"
        work = f"prefill {count}"
        report.rows.append((weight_format, work, f"{time_ms:.1f} ms", rate, f"MFU {share:.0%}"))

    chat.prefill(ids)
    cancel = CancelCell()
    for context in contexts:
        chat.set_step(17, context - 1)
        if context == contexts[0]:
            (computed,) = chat.step()
            recording.replay(cancel)
            words = "a replayed step gives the logits of a computed one, bit by bit"
            report.check(f"graph {weight_format}", torch.equal(computed, logits), words)
        time_ms = milliseconds(lambda: recording.replay(cancel), 50)
        moved = step_weight_bytes(model) + _kv_token_bytes("bf16") * context
        share = moved / time_ms * 1e3 / peaks.bandwidth
        rate = f"{1e3 / time_ms:.1f} tok/s"
        work = f"decode at {context}"
        report.rows.append((weight_format, work, f"{time_ms:.2f} ms", rate, f"MBU {share:.0%}"))


def _kv_token_bytes(kv_format: str) -> int:
    config = LLAMA_8B
    token = kv_format_bytes(kv_format, config.num_kv_heads, config.head_dim, BLOCK_SIZE)
    return config.num_layers * token


def measure_kv_format(report: Report, peaks: Peaks, kv_format: str, context: int) -> None:
    """Decode's attention in all layers, without the rest of a step, and whether it replays."""
    from kernels.gpu.kernel_set import gpu_kernels

    bf16, device, config = torch.bfloat16, torch.device("cuda"), LLAMA_8B
    kernels, blocks = gpu_kernels(bf16, bf16), context // BLOCK_SIZE
    groups = kv_cache_groups(config, kv_format)
    cache = KVCache(groups, [blocks], BLOCK_SIZE, device, max_num_seqs=1, max_num_batched_tokens=1)
    q, k, v = (
        torch.randn(1, heads, config.head_dim, dtype=bf16, device=device)
        for heads in (config.num_heads, config.num_kv_heads, config.num_kv_heads)
    )
    angles = torch.ones(1, config.head_dim // 2, device=device)
    table = (torch.randperm(blocks) + 1).to(device)
    # The last token fills a block, at which keys by channel are quantized.
    last_slot = table[-1:] * BLOCK_SIZE + BLOCK_SIZE - 1
    lengths, tails, position = (
        torch.full((1,), value, device=device) for value in (context, TAIL, 0)
    )

    def attend() -> tuple[torch.Tensor]:
        """All layers one after another."""
        outputs = [
            kernels.attention_decode(
                q, *cache.layer(layer), table[None], lengths, config.head_dim**-0.5, tails=tails
            )
            for layer in range(config.num_layers)
        ]
        return (torch.stack(outputs),)

    def store_and_attend() -> tuple[torch.Tensor]:
        """The newest token's keys and values first."""
        for layer in range(config.num_layers):
            kernels.rope_and_store_kv(
                q, k, v, position, angles, angles, *cache.layer(layer), last_slot, tails
            )
        return attend()

    (replayed,), _ = kernels.record(store_and_attend)
    (computed,) = store_and_attend()
    words = "replayed attention gives what computed one does, bit by bit"
    passed = bool(replayed.any()) and torch.equal(replayed, computed)
    report.check(f"graph KV {kv_format} at {context}", passed, words)
    _, recording = kernels.record(attend)
    cancel = CancelCell()
    time_ms = milliseconds(lambda: recording.replay(cancel), 20)
    rate = _kv_token_bytes(kv_format) * context / time_ms * 1e3
    report.rows.append(
        (
            f"KV {kv_format}",
            f"decode's attention at {context}",
            f"{time_ms:.2f} ms",
            f"{rate / 1e9:,.0f} GB/s",
            f"MBU {rate / peaks.bandwidth:.0%}",
        )
    )


def _s(start: float) -> str:
    return f"{time.perf_counter() - start:.0f} s"


def _prefill_flops(model: DecoderModel, tokens: int) -> float:
    """Two a weight and token, four a pair of positions and query value; the head once."""
    config = model.config
    weights = sum(linear.num_parameters for layer in model.layers for linear in layer.linears)
    attention = 4 * config.num_heads * config.head_dim * config.num_layers * tokens**2 / 2
    return 2.0 * weights * tokens + attention + 2.0 * model.head.num_parameters


# Runs in a process and folder of its own: transformers takes our package `kernels` for another.
_TRANSFORMERS = """
import statistics, sys, torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=32768,
        rope_theta=500000.0, attn_implementation="sdpa")).eval()
    ids = torch.randint(128256, (1, 2048))

def timed(run):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    result = run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end), result

with torch.inference_mode():
    prefill = [timed(lambda: model(ids, use_cache=True, logits_to_keep=1)) for _ in range(4)]
    cache = model(ids[:, :1024], use_cache=True, logits_to_keep=1).past_key_values
    steps = []
    for _ in range(30):
        milliseconds, out = timed(lambda: model(ids[:, :1], past_key_values=cache, use_cache=True))
        cache = out.past_key_values
        steps.append(milliseconds)
print(min(p[0] for p in prefill[1:]), statistics.median(steps[5:]))
"""


def measure_transformers(report: Report, limit_s: float) -> None:
    """Eager transformers with SDPA, BF16; a row that says why where it does not run."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    try:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-c", _TRANSFORMERS],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=limit_s,
                check=False,
            )
    except subprocess.TimeoutExpired:
        report.rows.append(("transformers bf16", "took too long", "", "", ""))
        return
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        report.rows.append(("transformers bf16", f"does not run here: {why[:60]}", "", "", ""))
        return
    prefill_ms, step_ms = (float(word) for word in done.stdout.split()[-2:])
    for work, time_ms, tokens in (
        ("prefill 2048", prefill_ms, 2048),
        ("decode at 1024", step_ms, 1),
    ):
        rate = f"{tokens / time_ms * 1e3:,.1f} tok/s"
        report.rows.append(("transformers bf16", work, f"{time_ms:.2f} ms", rate, ""))


def check_on_gpu(report: Report, quick: bool) -> None:
    """All parts; the slow ones are left out, and said to be, when time runs out."""
    deadline = time.monotonic() + LIMIT_S
    device = torch.device("cuda")
    processes = min(8, max(1, (os.cpu_count() or 1) // 2))
    check_cases(report, "cuda", [*CASES, *LARGE_CASES], processes)
    check_tiny_models(report, device, (*TINY_FORMATS, ("fp32", "int4")))
    peaks = measure_peaks()
    report.rows.append(
        (
            "",
            "measured peaks",
            "",
            f"{peaks.bandwidth / 1e9:,.0f} GB/s",
            f"{peaks.flops / 1e12:,.0f} TFLOP/s",
        )
    )
    for kv_format in ("bf16", "int8", "k8v4", "int4"):
        for context in (8192,) if quick else (8192, 16384):
            measure_kv_format(report, peaks, kv_format, context)
    for weight_format in ("bf16", "int4") if quick else ("bf16", "int8", "int4"):
        if time.monotonic() > deadline - 90:
            report.rows.append((weight_format, "left out: no time", "", "", ""))
            continue
        gc.collect()
        torch.cuda.empty_cache()
        measure_model(report, peaks, weight_format, quick)
    gc.collect()
    torch.cuda.empty_cache()
    left = deadline - time.monotonic()
    if not quick and left > 30:
        measure_transformers(report, left)


def main() -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer models and contexts")
    parser.add_argument("--interpret", action="store_true", help="small checks, without a GPU")
    arguments = parser.parse_args()
    report = Report()
    with torch.inference_mode():
        if arguments.interpret:
            # Before the first import of Triton, which the functions above leave to the last moment.
            os.environ["TRITON_INTERPRET"] = "1"
            formats = QUICK_TINY_FORMATS if arguments.quick else TINY_FORMATS
            names = list(CASES)[:: 40 if arguments.quick else 1]
            check_cases(report, "cpu", names, 1)
            check_tiny_models(report, torch.device("cpu"), formats)
        elif torch.cuda.is_available():
            check_on_gpu(report, arguments.quick)
        else:
            print("There is no CUDA device that torch can use: gpu_check needs an NVIDIA GPU.")
            return 1
    report.print()
    return int(report.failed)


if __name__ == "__main__":
    sys.exit(main())
