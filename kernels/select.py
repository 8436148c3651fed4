"""One function chooses the set of operations for a device, once, when a model is loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import torch

from kernels import reference
from kernels.recording import Recording
from kernels.reference import LinearKernel, TopK
from kernels.stages import StageClock
from kernels.weights import KernelWeight

log = logging.getLogger("kernels")


class LinearOperation(Protocol):
    """x @ weight.T + bias for every weight format."""

    def __call__(
        self,
        x: torch.Tensor,
        weight: Any,
        bias: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """x [M, K] -> [M, N]."""
        ...

    def tune(self, weight: Any) -> None:
        """Measure, at load, what is best for weights like this one on this device."""
        ...


@dataclass(frozen=True, slots=True)
class KernelSet:
    """The operations that layers call; signatures are those of `kernels.reference`.

    `name` is what the window shows, `activation_dtype` the dtype between operations. `prepare`
    lays a weight out as `linear` and `embedding` want it. `record` writes a forward pass down to
    replay it (see kernels.recording); `clock` says where a step's time went.
    """

    name: str
    activation_dtype: torch.dtype
    clock: StageClock
    prepare: Callable[[KernelWeight], KernelWeight]
    rms_norm: Callable[..., torch.Tensor]
    fused_add_rms_norm: Callable[..., torch.Tensor]
    add: Callable[..., torch.Tensor]
    rope_and_store_kv: Callable[..., torch.Tensor]
    attention_prefill: Callable[..., torch.Tensor]
    attention_decode: Callable[..., torch.Tensor]
    silu_and_mul: Callable[..., torch.Tensor]
    gelu_and_mul: Callable[..., torch.Tensor]
    mix_experts: Callable[..., torch.Tensor]
    soft_cap: Callable[..., torch.Tensor]
    gather_columns: Callable[..., torch.Tensor]
    embedding: Callable[..., torch.Tensor]
    linear: LinearOperation
    top_k: Callable[..., TopK]
    record: Callable[[Callable[[], Any]], tuple[Any, Recording]]
    # Prompts of these lengths touch (on a GPU: compile) everything that an answer runs.
    warm_up_tokens: tuple[int, ...] = (16,)


def select_kernels(
    device: torch.device,
    activation_dtype: torch.dtype = torch.float32,
    dense_dtype: torch.dtype = torch.float32,
    threads: int = 1,
    tuning_folder: Path | None = None,
) -> KernelSet:
    """Native kernels on a CPU, Triton's on a GPU, torch's operations where they cannot be had.

    `activation_dtype` is FP32 on CPU, the weights' dtype on a GPU; `dense_dtype` is the dtype
    in which the device multiplies large matrices fastest. What is tuned on a GPU is kept in
    `tuning_folder`. Raises ValueError when the environment
    names an instruction level that cannot run here.
    """
    if device.type == "cpu":
        from kernels.cpu.library import best_library

        library = best_library()
        if library is not None:
            from kernels.cpu.kernel_set import cpu_kernels

            return cpu_kernels(library, threads, dense_dtype)
        log.info("no native CPU kernels here: computing with torch's operations")
    # "cuda" is also what torch calls AMD devices. Products in BF16 need compute capability 8.0.
    elif find_spec("triton") and torch.cuda.get_device_capability(device) >= (8, 0):
        from kernels.gpu.kernel_set import gpu_kernels

        return gpu_kernels(activation_dtype, dense_dtype, tuning_folder, device)
    return torch_kernels(activation_dtype, dense_dtype)


def torch_kernels(activation_dtype: torch.dtype, dense_dtype: torch.dtype) -> KernelSet:
    """The reference operations, on any device."""
    return KernelSet(
        name="torch",
        activation_dtype=activation_dtype,
        clock=StageClock(),
        prepare=lambda weight: weight,
        rms_norm=reference.rms_norm,
        fused_add_rms_norm=reference.fused_add_rms_norm,
        add=reference.add,
        rope_and_store_kv=reference.rope_and_store_kv,
        attention_prefill=reference.attention_prefill,
        attention_decode=reference.attention_decode,
        silu_and_mul=reference.silu_and_mul,
        gelu_and_mul=reference.gelu_and_mul,
        mix_experts=reference.mix_experts,
        soft_cap=reference.soft_cap,
        gather_columns=reference.gather_columns,
        embedding=reference.embedding,
        linear=LinearKernel(dense_dtype),
        top_k=reference.top_k,
        record=reference.record,
    )
