"""Every kernel compiles for the GPUs that are meant, without a GPU, and fits into them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]

# Shared memory a program may take, and the instruction of large matrix products.
SHARED_BYTES = {"sm_80": 163 << 10, "sm_89": 99 << 10, "sm_90": 227 << 10, "sm_100": 227 << 10}
LARGE_PRODUCT = {
    "sm_80": "mma.sync",
    "sm_89": "mma.sync",
    "sm_90": "wgmma.mma_async",
    "sm_100": "tcgen05.mma",
}
# Registers a lane may take, and the least share of loads that move 8 or 16 bytes a lane. What is
# narrow: positions, lengths and block tables (prefill, decode, rope), the inputs of a product with
# one row, whose lanes share them (Triton 3.6 loads them one by one), and INT4's scales.
BUDGETS = {
    "rms_norm": (48, 1.0),
    "fused_add_rms_norm": (48, 1.0),
    "silu_and_mul": (40, 1.0),
    "rope_store_kv": (48, 0.6),
    "reduce_splits": (40, 1.0),
    "int8_row, groups of 32": (128, 0.9),
    "int8_rows, groups of 32": (128, 0.9),
    "int4_row": (168, 0.3),
    "int4_rows, groups of 32": (128, 0.4),
    "dequantize, INT8": (64, 1.0),
    "dequantize, INT4": (96, 1.0),
    "attention_prefill, 128 queries": (232, 0.6),
    "attention_prefill, window and soft-cap": (255, 0.6),
    "attention_decode, splits": (128, 0.6),
    "attention_decode, window and soft-cap": (128, 0.6),
    "attention_decode, merge": (64, 0.4),
}
# Those over a quantized KV cache compile for two targets, which differ most. Entries are no
# multiples of 16 bytes, and a scale with its offset is a load of 4.
KV_TARGETS = ("sm_80", "sm_90")
KV_BUDGETS = {
    "rope_store_kv, K8V4": (64, 0.5),
    "rope_store_kv, INT4 KV": (56, 0.5),
    "close_blocks": (176, 0.7),
    "attention_prefill, K8V4": (176, 0.4),
    "attention_prefill, INT4 KV": (248, 0.5),
    "attention_decode, K8V4": (128, 0.4),
    "attention_decode, INT4 KV": (128, 0.4),
}
KERNELS = [(name, target) for name in BUDGETS for target in SHARED_BYTES] + [
    (name, target) for name in KV_BUDGETS for target in KV_TARGETS
]

pytestmark = pytest.mark.skipif(
    find_spec("triton") is None, reason="Triton is not installed; it exists for Linux only"
)


@pytest.fixture(scope="module")
def table() -> dict[str, dict[str, Any]]:
    """What `aot` says, by kernel and target."""
    return _compiled("without", SHARED_BYTES) | _compiled("only", KV_TARGETS)


def _compiled(kv: str, targets: Iterable[str]) -> dict[str, dict[str, Any]]:
    """A process of its own, where Triton compiles."""
    command = [sys.executable, "-m", "tests.kernels.gpu.aot", "--json", "--main"]
    command += ["--kv", kv, *targets]
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_every_kernel_has_a_budget(table: dict[str, dict[str, Any]]) -> None:
    """A kernel that is added must say what it may take."""
    assert set(table) == set(BUDGETS | KV_BUDGETS)


@pytest.mark.parametrize(("name", "target"), KERNELS)
def test_fits(table: dict[str, dict[str, Any]], name: str, target: str) -> None:
    """No spilled register, registers and shared memory within bounds, loads as wide as meant."""
    found = table[name][target]
    assert not isinstance(found, str), found
    registers, wide_share = (BUDGETS | KV_BUDGETS)[name]
    assert found["stack_bytes"] == 0
    assert found["registers"] <= registers
    assert found["shared_bytes"] <= SHARED_BYTES[target]
    assert found["wide_loads"] >= wide_share * found["loads"] > 0


@pytest.mark.parametrize("target", SHARED_BYTES)
def test_products_of_several_rows_run_on_tensor_cores(
    table: dict[str, dict[str, Any]], target: str
) -> None:
    """Prefill attention with the target's own instruction, the narrow ones with any."""
    assert table["attention_prefill, 128 queries"][target]["tensor_core"] == LARGE_PRODUCT[target]
    for name in ("int8_rows, groups of 32", "int4_rows, groups of 32", "attention_decode, splits"):
        assert table[name][target]["tensor_core"] == "mma.sync"


@pytest.mark.parametrize("target", KV_TARGETS)
@pytest.mark.parametrize("kv_format", ["K8V4", "INT4 KV"])
def test_quantized_keys_and_values_run_on_tensor_cores(
    table: dict[str, dict[str, Any]], kv_format: str, target: str
) -> None:
    """As dense ones do."""
    found = table[f"attention_prefill, {kv_format}"][target]["tensor_core"]
    assert found == LARGE_PRODUCT[target]
    assert table[f"attention_decode, {kv_format}"][target]["tensor_core"] == "mma.sync"
