"""The Triton operations as a `KernelSet`, to be imported once a GPU was chosen."""

from __future__ import annotations

from pathlib import Path

import torch

from kernels import reference
from kernels.gpu.attention_decode import attention_decode
from kernels.gpu.attention_prefill import attention_prefill
from kernels.gpu.event_clock import EventClock
from kernels.gpu.gate_and_mul import gelu_and_mul, silu_and_mul
from kernels.gpu.graph import GraphRecorder
from kernels.gpu.linear import GpuLinear
from kernels.gpu.rms_norm import fused_add_rms_norm, rms_norm
from kernels.gpu.rope_store_kv import rope_and_store_kv
from kernels.select import KernelSet
from kernels.stages import StageClock

# Prompts of these many tokens, and decode steps of one and of two rows, compile every kernel that
# an answer runs: a model's warm-up runs them, so that no compilation falls into the TTFT.
WARM_UP_TOKENS = (2, 32, 129)


def gpu_kernels(
    activation_dtype: torch.dtype,
    dense_dtype: torch.dtype,
    tuning_folder: Path | None = None,
    device: torch.device | None = None,
) -> KernelSet:
    """Triton for all but dense products (the library's) and what torch does as well: the
    embedding's lookup, gathering, top-k, the choice of experts, sums and soft-caps.

    `activation_dtype` is BF16 or FP16 (FP32 works, slowly); `dense_dtype` is what weights are
    expanded to for more than 16 rows. Weights are used as they lie. Configurations that
    `linear.tune` chooses are kept in `tuning_folder`, under the name of `device`, which must be
    the current CUDA device.
    """
    device_name = torch.cuda.get_device_name(device) if torch.cuda.is_available() else "cpu"
    return KernelSet(
        name="triton",
        activation_dtype=activation_dtype,
        clock=EventClock() if torch.cuda.is_available() else StageClock(),
        prepare=lambda weight: weight,
        rms_norm=rms_norm,
        fused_add_rms_norm=fused_add_rms_norm,
        add=reference.add,
        rope_and_store_kv=rope_and_store_kv,
        attention_prefill=attention_prefill,
        attention_decode=attention_decode,
        silu_and_mul=silu_and_mul,
        gelu_and_mul=gelu_and_mul,
        mix_experts=reference.mix_experts,
        soft_cap=reference.soft_cap,
        gather_columns=reference.gather_columns,
        embedding=reference.embedding,
        linear=GpuLinear(activation_dtype, dense_dtype, tuning_folder, device_name),
        top_k=reference.top_k,
        record=GraphRecorder(),
        warm_up_tokens=WARM_UP_TOKENS,
    )
