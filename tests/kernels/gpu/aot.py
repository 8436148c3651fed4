"""Compiles every kernel ahead of time and reads what the machine code takes. Needs no GPU.

python -m tests.kernels.gpu.aot [--json] [--main] [--kv only|without] [TARGET ...]

prints a Markdown table (that of docs/gpu-kernels.md) or one JSON object, for the targets named
(sm_80 sm_89 sm_90 sm_100 gfx942; all by default); with --main one configuration a kernel, with
--kv only those over a quantized KV cache, or the others. The shapes are those of Llama-3.1-8B in
BF16, with the alignment that its tensors have.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels.gpu import (
    attention_decode,
    attention_prefill,
    dequantize,
    gate_and_mul,
    linear_int4,
    linear_int8,
    rms_norm,
    rope_store_kv,
    split_k,
)
from kernels.gpu.kv_entries import CHANNEL, DENSE, INT4, INT8
from kernels.gpu.launch import OPTIONS, dot_dtype

BF16 = torch.bfloat16

# Formats of keys and of values, as kernels are told them.
KV_FORMATS = {
    "": (DENSE.value, DENSE.value),
    "INT8 KV": (INT8.value, INT8.value),
    "K8V4": (INT8.value, INT4.value),
    "INT4 KV": (CHANNEL.value, INT4.value),
}

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_89": GPUTarget("cuda", 89, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}


@dataclass(frozen=True)
class Build:
    """A kernel at one configuration. `types` names its run-time arguments, by name.

    `unaligned` are those whose value says nothing about alignment: counts and lengths. `kv_format`
    is one of KV_FORMATS, "" where keys and values are dense or there are none.
    """

    name: str
    kernel: Any
    types: dict[str, str]
    constants: dict[str, Any]
    num_warps: int
    unaligned: tuple[str, ...] = ()
    is_main: bool = True
    kv_format: str = ""


@dataclass(frozen=True)
class Resources:
    """What one compiled kernel takes; None where a target's tools do not tell.

    `stack_bytes` above 0 means spilled registers. `wide_loads` of `loads` from global memory move
    8 or 16 bytes a lane; `tensor_core` is the matrix instruction used, "" when none.
    """

    registers: int | None
    shared_bytes: int
    stack_bytes: int | None
    loads: int
    wide_loads: int
    tensor_core: str


def _pointers(text: str) -> dict[str, str]:
    """'x:bf16 codes:i8' as argument types."""
    return {name: f"*{kind}" for name, kind in (pair.split(":") for pair in text.split())}


def _integers(names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), "i32")


def builds() -> list[Build]:
    """Every kernel, those with two paths twice."""
    linear_sizes = _integers("num_in num_out group_size blocks_per_split")
    rows_sizes = _integers("x_stride num_rows") | linear_sizes
    int8 = _pointers("x:bf16 codes:i8 scale:fp16 out:fp32")
    int4 = _pointers("x:bf16 codes:u8 scale:fp16 minimum:fp16 out:fp32")
    rows = {"BLOCK_N": 128, "ROWS": 16, "DOT": tl.bfloat16, "STAGES": 3}
    split = "blocks_per_split"
    found = [
        Build(
            "rms_norm",
            rms_norm.rms_norm_kernel,
            _pointers("x:bf16 weight:fp32 out:bf16")
            | _integers("x_stride hidden")
            | {"eps": "fp32"},
            {"BLOCK": 4096},
            rms_norm.block_and_warps(4096)[1],
        ),
        Build(
            "fused_add_rms_norm",
            rms_norm.fused_add_rms_norm_kernel,
            _pointers("x:bf16 residual:bf16 weight:fp32 out:bf16")
            | _integers("x_stride residual_stride hidden")
            | {"eps": "fp32"},
            {"BLOCK": 4096},
            rms_norm.block_and_warps(4096)[1],
        ),
        Build(
            "silu_and_mul",
            gate_and_mul.gate_and_mul_kernel,
            _pointers("x:bf16 out:bf16") | _integers("x_stride width"),
            {"GELU": False, "BLOCK": gate_and_mul.BLOCK},
            gate_and_mul.WARPS,
        ),
        Build(
            "reduce_splits",
            split_k.reduce_splits_kernel,
            _pointers("parts:fp32 out:bf16") | _integers("count splits"),
            {"BLOCK": split_k.REDUCE_BLOCK},
            split_k.REDUCE_WARPS,
            ("splits",),
        ),
    ]
    for name, grouped, row_k, rows_k in (
        ("groups of 32", True, 32, 32),
        ("by channel", False, 16, 128),
    ):
        found += [
            Build(
                f"int8_row, {name}",
                linear_int8.int8_row_kernel,
                int8 | linear_sizes,
                {"BLOCK_K": row_k, "GROUPED": grouped, "EVEN_K": True, "BLOCK_N": 128, "UNROLL": 2},
                1,
                (split,),
                grouped,
            ),
            Build(
                f"int8_rows, {name}",
                linear_int8.int8_rows_kernel,
                int8 | rows_sizes,
                {"BLOCK_K": rows_k, "GROUPED": grouped, "EVEN_K": True, **rows},
                4,
                (split, "num_rows"),
                grouped,
            ),
        ]
    found.append(
        Build(
            "int4_row",
            linear_int4.int4_row_kernel,
            int4 | linear_sizes,
            {"BLOCK": 16, "HAS_MINIMUM": True, "BLOCK_N": 512, "UNROLL": 1},
            1,
            (split,),
        )
    )
    for name, half in (("groups of 32", 16), ("groups of 128", 64)):
        found.append(
            Build(
                f"int4_rows, {name}",
                linear_int4.int4_rows_kernel,
                int4 | rows_sizes,
                {"BLOCK": half, "HAS_MINIMUM": True, **rows},
                4,
                (split, "num_rows"),
                half == 16,
            )
        )
    for bits in (8, 4):
        found.append(
            Build(
                f"dequantize, INT{bits}",
                dequantize.dequantize_kernel,
                _pointers(f"codes:{'i8' if bits == 8 else 'u8'} scale:fp16 minimum:fp16 out:bf16")
                | _integers("num_rows num_out group_size"),
                {"INT4": bits == 4, "HAS_MINIMUM": bits == 4}
                | {"BLOCK_K": dequantize.BLOCK_K, "BLOCK_N": dequantize.BLOCK_N},
                dequantize.WARPS,
            )
        )
    return found + _store_builds() + _prefill_builds() + _decode_builds()


def _entries(kv: str, dtype: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Types and constants of a layer's keys and values in a format."""
    k_format, v_format = KV_FORMATS[kv]
    data = dtype if k_format == DENSE.value else "u8"
    types = _pointers(f"k_cache:{data} v_cache:{data} tails:i64 k_tails:bf16 fresh:bf16")
    constants: dict[str, Any] = {"K_FORMAT": k_format, "V_FORMAT": v_format}
    if k_format != CHANNEL.value:
        for name in ("tails", "k_tails", "fresh"):
            del types[name]
            constants[name] = None
    return types, constants


def _only(names: Iterable[str], values: dict[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


def _build(
    name: str,
    kernel: Any,
    kv: str,
    dtype: str,
    types: dict[str, str],
    constants: dict[str, Any],
    num_warps: int,
    unaligned: tuple[str, ...] = (),
    is_main: bool = True,
) -> Build:
    """A kernel over cache entries, of which it takes what it has arguments for."""
    head = {"BLOCK_SIZE": 16, "HEAD_DIM": 128, "BLOCK_DIM": 128}
    entry_types, formats = _entries(kv, dtype)
    types = types | _only(kernel.arg_names, entry_types)
    constants = constants | _only(kernel.arg_names, formats | head)
    return Build(name, kernel, types, constants, num_warps, unaligned, is_main, kv)


def _store_builds() -> list[Build]:
    found = [
        _build(
            ", ".join(filter(None, ("rope_store_kv", kv))),
            rope_store_kv.rope_store_kv_kernel,
            kv,
            "bf16",
            _pointers(
                "q:bf16 k:bf16 v:bf16 positions:i64 cos:fp32 sin:fp32 q_out:bf16 slot_mapping:i64"
            )
            | _integers(
                "q_token_stride q_head_stride k_token_stride k_head_stride v_token_stride "
                "v_head_stride num_heads num_kv_heads num_query_blocks"
            ),
            {"HALF": 64, "BLOCK_HEADS": rope_store_kv.BLOCK_HEADS, "BLOCK_HALF": 64}
            | {"BLOCK_TAIL": 1},
            rope_store_kv.WARPS,
            ("num_heads", "num_kv_heads", "num_query_blocks"),
            kv != "INT8 KV",
        )
        for kv in KV_FORMATS
    ]
    found.append(
        _build(
            "close_blocks",
            rope_store_kv.close_blocks_kernel,
            "INT4 KV",
            "bf16",
            _pointers("slot_mapping:i64"),
            {},
            rope_store_kv.CLOSE_WARPS,
        )
    )
    return found


def _prefill_builds() -> list[Build]:
    plain, narrow = {"WINDOW": 0, "SOFTCAP": 0.0}, {"WINDOW": 4096, "SOFTCAP": 50.0}
    found: list[Build] = []
    for name, kv, dtype, queries, seen in (
        ("64 queries", "", BF16, 64, plain),
        ("128 queries", "", BF16, 2048, plain),
        ("FP32", "", torch.float32, 2048, plain),
        ("window and soft-cap", "", BF16, 2048, narrow),
        *((kv, kv, BF16, 2048, plain) for kv in KV_FORMATS if kv),
        ("INT4 KV, window and soft-cap", "INT4 KV", BF16, 2048, narrow),
    ):
        block_m, block_n, warps, stages = attention_prefill.tile(
            128, dtype, KV_FORMATS[kv][1], queries
        )
        kind = "bf16" if dtype == BF16 else "fp32"
        found.append(
            _build(
                f"attention_prefill, {name}",
                attention_prefill.attention_prefill_kernel,
                kv,
                kind,
                _pointers(f"q:{kind} block_table:i64 out:{kind}")
                | _integers(
                    "num_queries context_len q_token_stride q_head_stride num_kv_heads "
                    "out_token_stride"
                )
                | {"scale_log2": "fp32"},
                {"SHARE": 4, "BLOCK_M": block_m, "BLOCK_N": block_n, "STAGES": stages}
                | seen
                | {"DOT": dot_dtype(dtype)},
                warps,
                ("num_queries", "context_len", "num_kv_heads"),
                name in ("128 queries", "window and soft-cap", "K8V4", "INT4 KV"),
            )
        )
    return found


def _decode_builds() -> list[Build]:
    plain, narrow = {"WINDOW": 0, "SOFTCAP": 0.0}, {"WINDOW": 4096, "SOFTCAP": 50.0}
    found: list[Build] = []
    for name, kv, dtype, seen in (
        ("splits", "", BF16, plain),
        ("splits in FP32", "", torch.float32, plain),
        ("window and soft-cap", "", BF16, narrow),
        *((kv, kv, BF16, plain) for kv in KV_FORMATS if kv),
        ("INT4 KV, window and soft-cap", "INT4 KV", BF16, narrow),
    ):
        block_n, warps, stages = attention_decode.tile(128, dtype, KV_FORMATS[kv][1])
        kind = "bf16" if dtype == BF16 else "fp32"
        found.append(
            _build(
                f"attention_decode, {name}",
                attention_decode.attention_split_kernel,
                kv,
                kind,
                _pointers(f"q:{kind} block_tables:i64 context_lens:i64 parts:fp32 log_sums:fp32")
                | _integers(
                    "table_stride q_token_stride q_head_stride num_heads num_kv_heads num_splits"
                )
                | {"scale_log2": "fp32"},
                {"SHARE": 4, "HEAD_BLOCKS": 1, "BLOCK_H": 16, "BLOCK_N": block_n}
                | {"BLOCK_TAIL": 16, "STAGES": stages}
                | seen
                | {"DOT": dot_dtype(dtype)},
                warps,
                ("table_stride", "num_kv_heads", "num_splits"),
                name in ("splits", "window and soft-cap", "K8V4", "INT4 KV"),
            )
        )
    found.append(
        Build(
            "attention_decode, merge",
            attention_decode.merge_splits_kernel,
            _pointers("parts:fp32 log_sums:fp32 context_lens:i64 out:bf16")
            | _integers("num_heads num_splits"),
            {"WINDOW": 0, "HEAD_DIM": 128, "BLOCK_SPLITS": attention_decode.MAX_SPLITS}
            | {"BLOCK_N": 64, "BLOCK_DIM": 128},
            attention_decode.MERGE_WARPS,
            ("num_splits",),
        )
    )
    return found


def compile_for(build: Build, target: GPUTarget) -> Any:
    """The compiled kernel; `asm` holds every stage of it."""
    names = build.kernel.arg_names
    signature = {name: build.types.get(name, "constexpr") for name in names}
    attrs = {
        (index,): [["tt.divisibility", 16]]
        for index, name in enumerate(names)
        if name in build.types and build.types[name] != "fp32" and name not in build.unaligned
    }
    source = ASTSource(
        fn=build.kernel, signature=signature, constexprs=build.constants, attrs=attrs
    )
    options = {"num_warps": build.num_warps, **OPTIONS}
    return triton.compile(source, target=target, options=options)


def resources(compiled: Any) -> Resources:
    """Read from the machine code (NVIDIA) or its assembly's comments (AMD)."""
    return _amd(compiled) if "amdgcn" in compiled.asm else _nvidia(compiled)


def _nvidia(compiled: Any) -> Resources:
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(compiled.asm["cubin"])
        tool = triton.knobs.nvidia.cuobjdump.path
        told = subprocess.run(
            [tool, "--dump-resource-usage", str(cubin)], capture_output=True, text=True, check=True
        ).stdout
    ptx = compiled.asm["ptx"]
    loads = re.findall(r"(?:ld\.global|cp\.async\.c[ag]\.shared\.global)[^;]*;", ptx)
    # 8 or 16 bytes a lane: vectors of 32-bit registers, or an asynchronous copy of that size.
    wide = [
        load
        for load in loads
        if re.search(r"\.v[24]\.(?:b|f|u)32|\.v2\.b64|, (?:0x10|16|0x8|8)\b", load)
    ]
    found = re.search(r"tcgen05\.mma|wgmma\.mma_async|mma\.sync", ptx)
    return Resources(
        registers=_number(r"REG:(\d+)", told),
        shared_bytes=compiled.metadata.shared,
        stack_bytes=_number(r"STACK:(\d+)", told),
        loads=len(loads),
        wide_loads=len(wide),
        tensor_core="" if found is None else found.group(),
    )


def _amd(compiled: Any) -> Resources:
    text = compiled.asm["amdgcn"]
    loads = re.findall(r"(?:global|buffer)_load_\w+", text)
    found = re.search(r"v_mfma_\w+", text)
    return Resources(
        registers=_number(r"\.vgpr_count:\s*(\d+)", text),
        shared_bytes=compiled.metadata.shared,
        stack_bytes=_number(r"\.private_segment_fixed_size:\s*(\d+)", text),
        loads=len(loads),
        wide_loads=sum("dwordx2" in load or "dwordx4" in load for load in loads),
        tensor_core="" if found is None else found.group(),
    )


def _number(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text)
    return None if found is None else int(found.group(1))


Table = dict[str, dict[str, Resources | str]]


def all_resources(chosen: Iterable[Build], targets: Sequence[str]) -> Table:
    """By kernel and target; the compiler's words where it refuses.

    Compilers run without Python's lock, so that threads share the work among the cores.
    """
    jobs = [(build, target) for build in chosen for target in targets]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(_resources_or_refusal, jobs))
    table: Table = {}
    for (build, target), result in zip(jobs, found, strict=True):
        table.setdefault(build.name, {})[target] = result
    return table


def _resources_or_refusal(job: tuple[Build, str]) -> Resources | str:
    build, target = job
    try:
        return resources(compile_for(build, TARGETS[target]))
    except Exception as error:  # noqa: BLE001  the compiler's errors have no common type
        return f"{type(error).__name__}: {error}"


def markdown(table: Table) -> str:
    """A row a kernel, a column a target: registers, shared KB, stack bytes, wide of all loads."""
    targets = list(next(iter(table.values())))
    lines = [f"| kernel | {' | '.join(targets)} |", "|---" * (len(targets) + 1) + "|"]
    for name, row in table.items():
        cells = [
            found
            if isinstance(found, str)
            else f"{found.registers}, {found.shared_bytes / 1024:.1f}, {found.stack_bytes}, "
            f"{found.wide_loads}/{found.loads}"
            for found in row.values()
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Compile in a cache of its own, so that what is read is what is compiled now."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", default=list(TARGETS))
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--main", action="store_true", help="one configuration a kernel")
    parser.add_argument("--kv", choices=("only", "without"), help="the quantized KV cache")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        chosen = [
            build
            for build in builds()
            if (build.is_main or not arguments.main)
            and arguments.kv != ("without" if build.kv_format else "only")
        ]
        table = all_resources(chosen, arguments.targets)
    if arguments.json:
        plain = {
            name: {
                target: found if isinstance(found, str) else asdict(found)
                for target, found in row.items()
            }
            for name, row in table.items()
        }
        print(json.dumps(plain))  # noqa: T201
    else:
        print(markdown(table))  # noqa: T201


if __name__ == "__main__":
    main()
