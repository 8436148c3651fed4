"""What a plan needs to know: read from a model's headers or a built-in shape, and of the device."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine import memory
from engine.config import WEIGHT_FORMATS, KVGroupSize
from engine.devices import describe_device, resolve_device
from engine.footprint import Footprint
from engine.loading.checkpoint import open_checkpoint
from engine.loading.model_config import ModelConfig, expected_tensors
from engine.loading.tensors import ModelHeaders, TensorInfo
from engine.model_loader import LoadedModel
from engine.models.registry import read_hf_config
from engine.planner.plan import Machine, PlannedModel, Planning, WeightLevel, nominal_bytes
from engine.planner.shapes import SHAPES, LatentShape, Shape, find_shape
from engine.prediction import DeviceSpeed
from engine.survey import device_speed, known_peaks, model_work

_STORED_AS = {"float16": "F16", "bfloat16": "BF16"}
_DENSE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
_BITS = {"fp32": 32, "bf16": 16, "fp16": 16, "int8": 8, "int4": 4}
_SUFFIXES = (".gguf", ".safetensors")


@dataclass(frozen=True, slots=True)
class ShapeHeaders:
    """A built-in shape in the form of a checkpoint's headers, so that the same code sizes both."""

    config: ModelConfig
    tensors: Mapping[str, TensorInfo]


def read_planning(model: str, device: str, threads: int, loaded: LoadedModel | None) -> Planning:
    """Everything about a model, by path or built-in name, and the device it is planned for.

    `loaded` would be dropped for the model. Raises EngineError for a file that cannot be opened,
    ValueError for a name that is neither a file nor built in.
    """
    return Planning(planned_model(model), _machine(device, threads, loaded))


def planned_model(model: str) -> PlannedModel:
    """What a file's headers or a built-in shape say. Raises as `read_planning`."""
    shape = None if os.path.exists(Path(model).expanduser()) else find_shape(model)
    if isinstance(shape, LatentShape):
        return _latent_model(shape)
    if isinstance(shape, Shape):
        return _model(shape_headers(shape), shape.name, shape.repository, is_built_in=True)
    _require_path(model)
    checkpoint = open_checkpoint(model)
    try:
        return _model(checkpoint, checkpoint.name, checkpoint.path, is_built_in=False)
    finally:
        checkpoint.close()


def shape_headers(shape: Shape) -> ShapeHeaders:
    """The tensors of the published model, in the dtype that it was published in."""
    _, config = read_hf_config(shape.config, Path(shape.name))
    stored = _STORED_AS[shape.config["torch_dtype"]]
    tensors = {
        name: TensorInfo(name, size, stored, 2 * math.prod(size))
        for name, size in expected_tensors(config).items()
    }
    return ShapeHeaders(config, tensors)


def _model(headers: ModelHeaders, name: str, source: str, *, is_built_in: bool) -> PlannedModel:
    parameters = memory.num_parameters(headers)
    levels = (
        WeightLevel(
            name=info.name,
            label=info.label,
            nominal_bits=info.nominal_bits,
            nominal_bytes=nominal_bytes(parameters, info.nominal_bits),
            num_bytes=info.weight_bytes,
        )
        for info in memory.weight_format_infos(headers)
    )
    return PlannedModel(
        name=name,
        source=source,
        is_built_in=is_built_in,
        can_run=True,
        parameters=parameters,
        footprint=memory.footprint(headers),
        levels=tuple(levels),
        work={each: model_work(headers, each, kv_bytes_per_token=0) for each in WEIGHT_FORMATS},
    )


def _latent_model(shape: LatentShape) -> PlannedModel:
    """Sizes follow from the shape alone: how the engine would store it is not decided."""
    levels = (
        WeightLevel(
            name=name,
            label=name.upper(),
            nominal_bits=bits,
            nominal_bytes=nominal_bytes(shape.parameters, bits),
            num_bytes=_DENSE_BYTES[name] * shape.parameters if name in _DENSE_BYTES else None,
        )
        for name, bits in _BITS.items()
    )
    return PlannedModel(
        name=shape.name,
        source=shape.repository,
        is_built_in=True,
        can_run=False,
        parameters=shape.parameters,
        footprint=Footprint(
            context_length=shape.context_length,
            weight_bytes={each: size * shape.parameters for each, size in _DENSE_BYTES.items()},
            kv_groups=_latent_groups(shape),
            workspace=None,
        ),
        levels=tuple(levels),
        work={},
        default_weights="bf16",
    )


def _latent_groups(shape: LatentShape) -> dict[str, tuple[KVGroupSize, ...]]:
    """A latent vector, a RoPE key and the indexer's key a layer: no factor 2, no heads."""
    values = shape.kv_lora_rank + shape.qk_rope_head_dim + shape.index_head_dim
    layer_bytes = {name: values * _DENSE_BYTES[name] for name in ("fp32", "bf16")}
    if shape.packed_layer_bytes is not None:
        layer_bytes["fp8_ds_mla"] = shape.packed_layer_bytes
    return {name: (KVGroupSize(shape.num_layers * size),) for name, size in layer_bytes.items()}


def _machine(device_name: str, threads: int, loaded: LoadedModel | None) -> Machine:
    device = resolve_device(device_name)
    peaks = known_peaks(device, threads, loaded)
    speeds: dict[str, DeviceSpeed] = {}
    if peaks is not None:
        speeds = {name: device_speed(device, name, peaks) for name in WEIGHT_FORMATS}
    return Machine(
        device=describe_device(device),
        threads=threads,
        available_bytes=memory.available_bytes(device),
        freed_by_unload_bytes=loaded.freed_by_unload if loaded else 0,
        speeds=speeds,
    )


def _require_path(model: str) -> None:
    """Raise ValueError for what can only have been meant as a built-in name."""
    path = Path(model).expanduser()
    if path.exists() or len(path.parts) > 1 or path.suffix.lower() in _SUFFIXES:
        return
    names = ", ".join(shape.name for shape in SHAPES)
    raise ValueError(
        f"{model!r} is neither a file or folder here nor a built-in shape. Name a path, or one of: "
        f"{names}"
    )
