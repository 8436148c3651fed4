"""How much memory a configuration takes and how much there is, before anything is loaded."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import psutil
import torch

from engine.config import (
    DEFAULT_BLOCK_SIZE,
    WEIGHT_FORMATS,
    KVGroupSize,
    WeightFormatInfo,
    kv_group_size,
)
from engine.decode_step import RANKED
from engine.footprint import Footprint, Workspace
from engine.kv_formats import possible_kv_formats
from engine.loading.model_config import ModelConfig, layers_by_window
from engine.loading.tensors import ModelHeaders
from engine.loading.weight_source import EMBEDDING, HEAD, kept_format, weight_num_bytes

# Left to the system and the window when deciding what fits.
_HEADROOM = 0.05
# Host memory for evicted blocks: a few times the pool, as a person goes back to a few chats only; a
# small part of what is free, as a GPU copies from pinned pages, which cannot be swapped out; and
# never so much that a load waits long for the pinning.
_HOST_POOLS = 4
_HOST_SHARE = 1 / 8
_HOST_MOST = 4 << 30
_NOMINAL_BITS = {"fp32": 32.0, "bf16": 16.0, "fp16": 16.0, "int8": 8.0, "int4": 4.0}
_LABELS = {"fp32": "FP32", "bf16": "BF16", "fp16": "FP16", "int8": "INT8", "int4": "INT4"}


def available_bytes(device: torch.device) -> int:
    """Memory that could be allocated now, a little left over."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int((free + reserved) * (1 - _HEADROOM))
    return int(psutil.virtual_memory().available * (1 - _HEADROOM))


def host_cache_bytes(device: torch.device, pool_bytes: int) -> int:
    """Host memory for evicted blocks of a pool, unless told otherwise; on a CPU none."""
    if device.type != "cuda":
        return 0
    free = psutil.virtual_memory().available
    return min(_HOST_POOLS * pool_bytes, int(free * _HOST_SHARE), _HOST_MOST)


def peak_memory_bytes(device: torch.device) -> int:
    """The most this process has held: allocated on the GPU, resident on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def weight_bytes(headers: ModelHeaders, weight_format: str) -> int:
    """What all tensors take in a format, norms and biases in FP32."""
    total = 0
    for name, tensor in headers.tensors.items():
        if len(tensor.shape) != 2:
            total += 4 * _count(tensor.shape)
            continue
        if name == HEAD and headers.config.tie_word_embeddings:
            continue
        total += weight_num_bytes(tensor, kept_format(name, weight_format))
    return total


def footprint(headers: ModelHeaders, block_size: int = DEFAULT_BLOCK_SIZE) -> Footprint:
    """What a model takes as any config with blocks of `block_size` tokens."""
    kv_formats = possible_kv_formats(headers.config.head_dim, block_size)
    return Footprint(
        context_length=headers.config.context_length,
        weight_bytes={name: weight_bytes(headers, name) for name in WEIGHT_FORMATS},
        kv_groups={name: _kv_groups(headers.config, name, block_size) for name in kv_formats},
        workspace=_workspace(headers.config),
    )


def _kv_groups(model: ModelConfig, kv_format: str, block_size: int) -> tuple[KVGroupSize, ...]:
    """The sizes of engine.models.decoder.kv_cache_groups, without a tensor."""
    heads, dim = model.num_kv_heads, model.head_dim
    return tuple(
        kv_group_size(kv_format, len(layers), heads, dim, block_size, window)
        for window, layers in layers_by_window(model).items()
    )


def _workspace(model: ModelConfig) -> Workspace:
    """Scratch of a step: the largest matrix expanded, activations of a chunk, logits, RoPE.

    Recorded decode steps keep logits of their own: for 1, 2, 4 ... rows, once for each ranking.
    """
    largest = max(
        model.hidden_size * 2 * model.intermediate_size,
        model.hidden_size * (model.num_heads + 2 * model.num_kv_heads) * model.head_dim,
    )
    return Workspace(
        fixed_bytes=4 * largest,
        bytes_per_batched_token=4 * (4 * model.hidden_size + 4 * model.intermediate_size),
        bytes_per_context_token=4 * (4 * model.num_heads * model.head_dim + model.head_dim),
        bytes_per_sequence=4 * model.vocab_size * (2 * len(RANKED) + 1),
    )


def weight_format_infos(headers: ModelHeaders) -> tuple[WeightFormatInfo, ...]:
    """The choices of the weights menu with what each would take."""
    parameters = num_parameters(headers)
    infos = []
    for name in WEIGHT_FORMATS:
        total = weight_bytes(headers, name)
        bits = 8 * total / parameters
        label = _LABELS.get(name, f"As stored ({stored_format(headers)})")
        infos.append(WeightFormatInfo(name, label, total, _NOMINAL_BITS.get(name, bits), bits))
    return tuple(infos)


def num_parameters(headers: ModelHeaders) -> int:
    """Elements of all tensors, a tied head counted once."""
    tied = headers.config.tie_word_embeddings
    return sum(
        _count(tensor.shape)
        for name, tensor in headers.tensors.items()
        if not (tied and name == HEAD)
    )


def stored_format(headers: ModelHeaders) -> str:
    """How the file stores its matrices, e.g. "Q4_1, head Q8_0"."""
    sizes: dict[str, int] = {}
    for name, tensor in headers.tensors.items():
        if len(tensor.shape) == 2 and name not in (EMBEDDING, HEAD):
            sizes[tensor.format] = sizes.get(tensor.format, 0) + _count(tensor.shape)
    body = " + ".join(sorted(sizes, key=lambda name: -sizes[name]))
    tensors = headers.tensors
    untied = HEAD in tensors and not headers.config.tie_word_embeddings
    head = tensors[HEAD if untied else EMBEDDING].format
    return body if head == body else f"{body}, head {head}"


def _count(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
