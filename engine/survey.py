"""What a model is, whether it fits and how fast it would be, from its headers alone."""

from __future__ import annotations

from dataclasses import replace

import torch

from engine.config import EngineConfig, MemoryEstimate
from engine.device_peaks import DevicePeaks, stored_peaks
from engine.devices import describe_device, resolve_device
from engine.loading.checkpoint import Checkpoint
from engine.loading.weight_source import head_format, stored_bits, weight_num_bytes
from engine.memory import resolve_kv_format
from engine.model_loader import (
    LoadedModel,
    dense_dtype,
    dtype_name,
    estimate_memory,
    model_info,
)
from engine.prediction import DeviceSpeed, MatrixGroup, ModelSurvey, ModelWork, predict

_EMBEDDING = "model.embed_tokens.weight"
_HEAD = "lm_head.weight"
_DENSE = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}


def survey_model(
    checkpoint: Checkpoint,
    config: EngineConfig,
    default_threads: int,
    loaded: LoadedModel | None,
) -> ModelSurvey:
    """`loaded` would be dropped for the model, and knows peaks that were not kept.

    Raises EngineError, as opening and estimating do.
    """
    device = resolve_device(config.device)
    threads = config.threads or default_threads
    memory = estimate_memory(checkpoint, config, loaded.freed_by_unload if loaded else 0)
    peaks = stored_peaks(device, threads)
    if peaks is None and loaded and (loaded.device, loaded.config.threads) == (device, threads):
        peaks = loaded.peaks
    work = model_work(checkpoint, config.weight_format, memory)
    return ModelSurvey(
        info=model_info(checkpoint),
        config=replace(
            config,
            context_length=memory.context_length,
            kv_format=resolve_kv_format(config.weight_format, config.kv_format),
            device=str(device),
            threads=threads,
        ),
        memory=memory,
        device=describe_device(device),
        threads=threads,
        speed=predict(work, _device_speed(device, config, peaks)) if peaks else None,
    )


def model_work(checkpoint: Checkpoint, weight_format: str, memory: MemoryEstimate) -> ModelWork:
    """What a token of this model costs in a weight format."""
    tensors, config = checkpoint.tensors, checkpoint.config
    tied = config.tie_word_embeddings or _HEAD not in tensors
    head = _EMBEDDING if tied else _HEAD
    layers = [n for n, t in tensors.items() if len(t.shape) == 2 and n not in (_EMBEDDING, _HEAD)]
    return ModelWork(
        layers=_group(checkpoint, layers, weight_format),
        head=_group(checkpoint, [head], head_format(weight_format)),
        attention_size=config.num_layers * config.num_heads * config.head_dim,
        kv_bytes_per_token=memory.kv_bytes_per_token,
    )


def _group(checkpoint: Checkpoint, names: list[str], weight_format: str) -> MatrixGroup:
    by_format: dict[str, int] = {}
    parameters = num_bytes = 0
    for name in names:
        tensor = checkpoint.tensors[name]
        shape = (tensor.shape[0], tensor.shape[1])
        parameters += shape[0] * shape[1]
        num_bytes += weight_num_bytes(shape, tensor.format, weight_format)
        kept = _kernel_format(tensor.format, weight_format)
        by_format[kept] = by_format.get(kept, 0) + shape[0] * shape[1]
    return MatrixGroup(max(by_format, key=lambda each: by_format[each]), parameters, num_bytes)


def _kernel_format(tensor_format: str, weight_format: str) -> str:
    """The format a tensor will be kept in; engine.loading.weight_source.read_weight decides."""
    if weight_format != "as-stored":
        return weight_format
    bits = stored_bits(tensor_format, weight_format)
    return f"int{bits}" if bits else _DENSE.get(tensor_format, "bf16")


def _device_speed(device: torch.device, config: EngineConfig, peaks: DevicePeaks) -> DeviceSpeed:
    dtype = dtype_name(dense_dtype(device, config.weight_format, peaks))
    return DeviceSpeed(device.type, peaks.matmul_flops[dtype], peaks.bandwidth_at)
