"""One function chooses the set of operations for a device, once, when a model is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from kernels import reference
from kernels.reference import LinearKernel


@dataclass(frozen=True, slots=True)
class KernelSet:
    """The operations that layers call; signatures are those of `kernels.reference`.

    `name` is what the window shows, `activation_dtype` the dtype between operations.
    """

    name: str
    activation_dtype: torch.dtype
    rms_norm: Callable[..., torch.Tensor]
    fused_add_rms_norm: Callable[..., torch.Tensor]
    rope_and_store_kv: Callable[..., torch.Tensor]
    attention_prefill: Callable[..., torch.Tensor]
    attention_decode: Callable[..., torch.Tensor]
    silu_and_mul: Callable[..., torch.Tensor]
    embedding: Callable[..., torch.Tensor]
    linear: LinearKernel


def select_kernels(
    activation_dtype: torch.dtype = torch.float32, dense_dtype: torch.dtype = torch.float32
) -> KernelSet:
    """The torch operations, on any device.

    `activation_dtype` is FP32 on CPU, the weights' dtype on a GPU; `dense_dtype` is the dtype
    in which the device multiplies large matrices fastest.
    """
    return KernelSet(
        name="torch",
        activation_dtype=activation_dtype,
        rms_norm=reference.rms_norm,
        fused_add_rms_norm=reference.fused_add_rms_norm,
        rope_and_store_kv=reference.rope_and_store_kv,
        attention_prefill=reference.attention_prefill,
        attention_decode=reference.attention_decode,
        silu_and_mul=reference.silu_and_mul,
        embedding=reference.embedding,
        linear=LinearKernel(dense_dtype),
    )
