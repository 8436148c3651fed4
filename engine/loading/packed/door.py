"""Finds the packed matrices of a checkpoint and joins the parts of each to one tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.loading.files import Fields, bad_file, read_json
from engine.loading.packed.awq import awq
from engine.loading.packed.compressed import compressed_tensors
from engine.loading.packed.float8 import FLOAT8, float8
from engine.loading.packed.gptq import gptq
from engine.loading.packed.module import Module, PackedFormat, PackedMatrix, Read, refused
from engine.loading.tensors import TensorInfo

_METHODS: dict[str, Callable[[Fields], PackedFormat]] = {
    "gptq": gptq,
    "awq": awq,
    "compressed-tensors": compressed_tensors,
    "fp8": float8,
}
# Where settings lay before config.json had them, and whose they are.
_OLD_FILES = (("quantize_config.json", "gptq"), ("quant_config.json", "awq"))
_CODES = ("qweight", "weight_packed")  # parts that only packed matrices have
_PARTS = (
    *_CODES,
    "weight",
    "qzeros",
    "scales",
    "g_idx",
    "weight_scale",
    "weight_scale_inv",
    "weight_zero_point",
    "weight_shape",
    "weight_g_idx",
    # How others quantize activations, which are not quantized here.
    "input_scale",
    "input_zero_point",
    "input_global_scale",
    "activation_scale",
)
# How others quantize the KV cache, which has formats of its own here.
_CACHE_SCALES = (".k_scale", ".v_scale", ".output_scale")


@dataclass(frozen=True, slots=True)
class JoinedTensors:
    """`infos`: all tensors of the files, each packed matrix as one; `matrices` by that name."""

    infos: Mapping[str, TensorInfo]
    matrices: Mapping[str, PackedMatrix]


def packed_format(config: Mapping[str, Any], config_path: Path) -> PackedFormat | None:
    """How the folder of a config.json packs matrices, None where it says nothing of it.

    Raises CheckpointError for a method that cannot be read and for settings that make no sense.
    """
    settings = config.get("quantization_config")
    if settings is not None:
        fields = Fields(config, config_path).nested(settings, "quantization_config")
        return _format(fields, fields.text("quant_method"))
    for name, method in _OLD_FILES:
        path = config_path.with_name(name)
        if path.exists():
            old = Fields(read_json(path), path)
            return _format(old, old.text("quant_method", method))
    return None


def _format(fields: Fields, method: str) -> PackedFormat:
    if method not in _METHODS:
        raise refused(f"Quantization {method[:40]!r}")
    return _METHODS[method](fields)


def join_parts(
    found: Mapping[str, TensorInfo],
    shapes: Mapping[str, tuple[int, ...]],
    packing: PackedFormat | None,
    folder: Path,
    read: Read,
) -> JoinedTensors:
    """`found`, the tensors of the files, with each packed matrix as one tensor `X.weight`.

    `shapes` are those that the architecture expects. Biases that it does not have are left out
    where they are all zero: AutoGPTQ gave every layer one until 2023. Raises CheckpointError for
    parts that are missing or of the wrong shape or dtype, and for matrices without settings.
    """
    modules = _modules(found, shapes, folder)
    if modules and packing is None:
        raise bad_file(
            folder,
            f"The matrix {modules[0].name[:80]} is packed, and no quantization_config says how.",
            "Download config.json again, from the same version of the model.",
        )
    if packing is None:
        return JoinedTensors(found, {})
    parts = {info.name for module in modules for info in module.parts.values()}
    for bias in (f"{module.name}.bias" for module in modules):
        if bias in found and bias not in shapes and not bool(read(bias).any()):
            parts.add(bias)
    infos = {
        name: info
        for name, info in found.items()
        if name not in parts and not name.endswith(_CACHE_SCALES)
    }
    matrices = {f"{module.name}.weight": packing.matrix(module) for module in modules}
    return JoinedTensors(infos | {n: m.info for n, m in matrices.items()}, matrices)


def _modules(
    found: Mapping[str, TensorInfo], shapes: Mapping[str, tuple[int, ...]], folder: Path
) -> list[Module]:
    """The layers that hold codes. Those the architecture does not have are left as they are."""
    modules = []
    for tensor, info in found.items():
        name, _, part = tensor.rpartition(".")
        is_packed = part in _CODES or (part == "weight" and info.format == FLOAT8)
        shape = shapes.get(f"{name}.weight", ())
        if is_packed and len(shape) == 2:
            parts = {p: found[f"{name}.{p}"] for p in _PARTS if f"{name}.{p}" in found}
            modules.append(Module(name, shape[0], shape[1], parts, folder))
    return modules
