"""Runs cases in a process of its own and prints one JSON object: what failed, by name.

python -m tests.kernels.gpu.worker DEVICE SEED [NAME ...]

Triton decides when it is imported whether it interprets, hence the process of its own: with
TRITON_INTERPRET=1 in the environment and DEVICE cpu kernels run in numpy, with DEVICE cuda and
without the variable on a GPU.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Iterable

import torch

from kernels.gpu.kernel_set import gpu_kernels
from tests.kernels.gpu.cases import CASES, LARGE_CASES
from tests.kernels.gpu.rig import Rig
from tests.kernels.gpu.tolerances import FP16, FP32


def run_case(name: str, device: torch.device, seed: int) -> str | None:
    """None, or why the case failed."""
    # Expanded weights are compared within the tolerance of the activations' dtype.
    dense_dtype = next((d for d in (torch.bfloat16, FP16) if f" {d}"[7:] in name), FP32)
    ops = gpu_kernels(dense_dtype, dense_dtype)
    try:
        (CASES | LARGE_CASES)[name](Rig(ops, device, seed))
    except Exception as error:  # noqa: BLE001  whatever it is, it is this case's result
        where = traceback.format_exc(limit=-4)
        return f"{type(error).__name__}: {error}\n{where}"
    return None


def run_cases(names: Iterable[str], device: torch.device, seed: int) -> dict[str, str | None]:
    """The cases one after another, and the seconds each took on stderr."""
    results = {}
    for name in names:
        start = time.perf_counter()
        results[name] = run_case(name, device, seed)
        print(f"{time.perf_counter() - start:7.3f} s  {name}", file=sys.stderr)  # noqa: T201
    return results


if __name__ == "__main__":
    device_name, seed_text, *wanted = sys.argv[1:]
    torch.set_num_threads(1)
    answer = run_cases(wanted or CASES, torch.device(device_name), int(seed_text))
    print(json.dumps(answer))  # noqa: T201
