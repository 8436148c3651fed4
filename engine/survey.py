"""What a model is, whether it fits and how fast it would be, from its headers alone."""

from __future__ import annotations

from dataclasses import replace

import torch

from engine.config import EngineConfig
from engine.device_peaks import stored_peaks
from engine.devices import describe_device, resolve_device
from engine.footprint import resolve_kv_format
from engine.loading.checkpoint import Checkpoint
from engine.loading.tensors import ModelHeaders, TensorInfo
from engine.loading.weight_source import (
    EMBEDDING,
    HEAD,
    kept_format,
    kept_grouping,
    weight_num_bytes,
)
from engine.model_loader import (
    LoadedModel,
    dense_dtype,
    dtype_name,
    estimate_memory,
    model_info,
)
from engine.peaks import DevicePeaks
from engine.prediction import DeviceSpeed, MatrixGroup, ModelSurvey, ModelWork, predict

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
    peaks = known_peaks(device, threads, loaded)
    work = model_work(checkpoint, config.weight_format, memory.kv_bytes_per_token)
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
        speed=predict(work, device_speed(device, config.weight_format, peaks)) if peaks else None,
    )


def model_work(headers: ModelHeaders, weight_format: str, kv_bytes_per_token: int) -> ModelWork:
    """What a token of this model costs in a weight format."""
    tensors, config = headers.tensors, headers.config
    tied = config.tie_word_embeddings or HEAD not in tensors
    head = EMBEDDING if tied else HEAD
    layers = [n for n, t in tensors.items() if len(t.shape) == 2 and n not in (EMBEDDING, HEAD)]
    return ModelWork(
        layers=_group(headers, layers, weight_format),
        head=_group(headers, [head], weight_format),
        attention_size=config.num_layers * config.num_heads * config.head_dim,
        kv_bytes_per_token=kv_bytes_per_token,
    )


def _group(headers: ModelHeaders, names: list[str], weight_format: str) -> MatrixGroup:
    by_format: dict[str, float] = {}
    parameters = num_bytes = 0.0
    for name in names:
        tensor, kept = headers.tensors[name], kept_format(name, weight_format)
        share = _share_used(headers, name)
        count = share * tensor.shape[0] * tensor.shape[1]
        parameters += count
        num_bytes += share * weight_num_bytes(tensor, kept)
        kernel_format = _kernel_format(tensor, kept)
        by_format[kernel_format] = by_format.get(kernel_format, 0) + count
    main_format = max(by_format, key=lambda each: by_format[each])
    return MatrixGroup(main_format, round(parameters), round(num_bytes))


def _share_used(headers: ModelHeaders, name: str) -> float:
    """The share of tokens that pass a matrix: of an expert's, those that are sent to it."""
    experts = headers.config.experts
    if experts is None or ".experts." not in name:
        return 1.0
    return experts.num_experts_per_token / experts.num_experts


def _kernel_format(tensor: TensorInfo, weight_format: str) -> str:
    """The format a tensor will be kept in; engine.loading.weight_source.read_weight decides."""
    if weight_format != "as-stored":
        return weight_format
    grouping = kept_grouping(tensor, weight_format)
    return f"int{grouping.bits}" if grouping else _DENSE.get(tensor.format, "bf16")


def known_peaks(
    device: torch.device, threads: int, loaded: LoadedModel | None
) -> DevicePeaks | None:
    """The device's figures as they were kept, else as the loaded model's load found them."""
    peaks = stored_peaks(device, threads)
    if peaks is None and loaded and (loaded.device, loaded.config.threads) == (device, threads):
        return loaded.roofs.peaks
    return peaks


def device_speed(device: torch.device, weight_format: str, peaks: DevicePeaks) -> DeviceSpeed:
    """The peaks that count for weights in a format."""
    dtype = dtype_name(dense_dtype(device, weight_format, peaks))
    return DeviceSpeed(device.type, peaks.matmul_flops[dtype], peaks.bandwidth_at)
