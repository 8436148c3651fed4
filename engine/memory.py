"""How much memory a configuration takes and how much there is, before anything is loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import psutil
import torch

from engine.config import (
    DEFAULT_CONTEXT_LENGTH,
    WEIGHT_FORMATS,
    EngineConfig,
    KVGroupSize,
    MemoryEstimate,
    WeightFormatInfo,
    kv_bytes,
    kv_pool_bytes,
)
from engine.decode_step import RANKED
from engine.loading.checkpoint import Checkpoint
from engine.loading.weight_source import EMBEDDING, HEAD, kept_format, weight_num_bytes

# Contexts that are offered, besides the model's own.
CONTEXT_CHOICES = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
# Left to the system and the window when deciding what fits.
_HEADROOM = 0.05
_NOMINAL_BITS = {"fp32": 32.0, "bf16": 16.0, "fp16": 16.0, "int8": 8.0, "int4": 4.0}
_LABELS = {"fp32": "FP32", "bf16": "BF16", "fp16": "FP16", "int8": "INT8", "int4": "INT4"}


def available_bytes(device: torch.device) -> int:
    """Memory that could be allocated now, a little left over."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int((free + reserved) * (1 - _HEADROOM))
    return int(psutil.virtual_memory().available * (1 - _HEADROOM))


def peak_memory_bytes(device: torch.device) -> int:
    """The most this process has held: allocated on the GPU, resident on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def weight_bytes(checkpoint: Checkpoint, weight_format: str) -> int:
    """What all tensors take in a format, norms and biases in FP32."""
    total = 0
    for name, tensor in checkpoint.tensors.items():
        if len(tensor.shape) != 2:
            total += 4 * _count(tensor.shape)
            continue
        if name == HEAD and checkpoint.config.tie_word_embeddings:
            continue
        total += weight_num_bytes(tensor, kept_format(name, weight_format))
    return total


def workspace_bytes(checkpoint: Checkpoint, config: EngineConfig) -> int:
    """Scratch of a step: the largest matrix expanded, activations of a chunk, logits, RoPE.

    Recorded decode steps keep logits of their own: for 1, 2, 4 ... rows, once for each ranking.
    """
    model = checkpoint.config
    chunk = config.max_num_batched_tokens
    expanded = 4 * max(
        model.hidden_size * 2 * model.intermediate_size,
        model.hidden_size * (model.num_heads + 2 * model.num_kv_heads) * model.head_dim,
    )
    activations = 4 * chunk * (4 * model.hidden_size + 4 * model.intermediate_size)
    context = config.context_length or DEFAULT_CONTEXT_LENGTH
    attention = 4 * context * (4 * model.num_heads * model.head_dim) + chunk * context
    rows = (2 * len(RANKED) + 1) * config.max_num_seqs
    logits = 4 * model.vocab_size * rows
    rotary = 4 * context * model.head_dim
    return expanded + activations + attention + logits + rotary


def estimate(
    checkpoint: Checkpoint,
    config: EngineConfig,
    kv_groups: Callable[[str], tuple[KVGroupSize, ...]],
    device: torch.device,
    freed_by_unload: int,
) -> MemoryEstimate:
    """What loading `config` takes and what would fit; `kv_groups` is by weight format."""
    available = available_bytes(device)
    context = config.context_length or _default_context(
        checkpoint, config, kv_groups, available + freed_by_unload
    )
    groups = kv_groups(config.weight_format)
    weights = weight_bytes(checkpoint, config.weight_format)
    workspace = workspace_bytes(checkpoint, config)
    budget = available + freed_by_unload
    own = checkpoint.config.context_length
    contexts = [
        c for c in _choices(own) if weights + workspace + kv_pool_bytes(groups, config, c) <= budget
    ]
    formats = [
        f
        for f in WEIGHT_FORMATS
        if weight_bytes(checkpoint, f) + workspace + kv_pool_bytes(kv_groups(f), config, context)
        <= budget
    ]
    return MemoryEstimate(
        weight_bytes=weights,
        kv_bytes=kv_pool_bytes(groups, config, config.kv_pool_tokens or context),
        workspace_bytes=workspace,
        freed_by_unload_bytes=freed_by_unload,
        available_bytes=available,
        context_length=context,
        kv_bytes_per_token=kv_bytes(groups, 1),
        fitting_contexts=tuple(sorted(contexts, reverse=True)),
        fitting_weight_formats=tuple(formats),
    )


def weight_format_infos(checkpoint: Checkpoint) -> tuple[WeightFormatInfo, ...]:
    """The choices of the weights menu with what each would take."""
    parameters = num_parameters(checkpoint)
    infos = []
    for name in WEIGHT_FORMATS:
        total = weight_bytes(checkpoint, name)
        bits = 8 * total / parameters
        label = _LABELS.get(name, f"As stored ({stored_format(checkpoint)})")
        infos.append(WeightFormatInfo(name, label, total, _NOMINAL_BITS.get(name, bits), bits))
    return tuple(infos)


def num_parameters(checkpoint: Checkpoint) -> int:
    """Elements of all tensors, a tied head counted once."""
    tied = checkpoint.config.tie_word_embeddings
    return sum(
        _count(tensor.shape)
        for name, tensor in checkpoint.tensors.items()
        if not (tied and name == HEAD)
    )


def stored_format(checkpoint: Checkpoint) -> str:
    """How the file stores its matrices, e.g. "Q4_1, head Q8_0"."""
    sizes: dict[str, int] = {}
    for name, tensor in checkpoint.tensors.items():
        if len(tensor.shape) == 2 and name not in (EMBEDDING, HEAD):
            sizes[tensor.format] = sizes.get(tensor.format, 0) + _count(tensor.shape)
    body = " + ".join(sorted(sizes, key=lambda name: -sizes[name]))
    tensors = checkpoint.tensors
    untied = HEAD in tensors and not checkpoint.config.tie_word_embeddings
    head = tensors[HEAD if untied else EMBEDDING].format
    return body if head == body else f"{body}, head {head}"


def _default_context(
    checkpoint: Checkpoint,
    config: EngineConfig,
    kv_groups: Callable[[str], tuple[KVGroupSize, ...]],
    budget: int,
) -> int:
    """The smallest of 4,096, the model's own context and what fits."""
    wanted = min(DEFAULT_CONTEXT_LENGTH, checkpoint.config.context_length)
    left = budget - weight_bytes(checkpoint, config.weight_format)
    left -= workspace_bytes(checkpoint, config)
    groups = kv_groups(config.weight_format)
    fitting = [c for c in _choices(wanted) if kv_pool_bytes(groups, config, c) <= left]
    return max(fitting, default=min(wanted, CONTEXT_CHOICES[0]))


def _choices(longest: int) -> list[int]:
    return [c for c in CONTEXT_CHOICES if c < longest] + [longest]


def _count(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def resolve_kv_format(weight_format: str, kv_format: str) -> str:
    """ "auto" is FP32 under FP32 weights, BF16 otherwise."""
    if kv_format == "auto":
        return "fp32" if weight_format == "fp32" else "bf16"
    return kv_format
