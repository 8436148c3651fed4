"""Tensors as they lie in a checkpoint: name, shape, format, and quantized payload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import torch

from engine.loading.files import bad_file
from engine.loading.model_config import ModelConfig, expected_tensors, missing_tensors_error

# "F32", "F16", "BF16", "Q4_1", "Q8_0", "Q6_K" as the files say it; "GPTQ 4-bit g128" ...
TensorFormat: TypeAlias = str

GROUP_SIZE = 32  # values that share a scale in Q4_0, Q4_1 and Q8_0


@dataclass(frozen=True, slots=True)
class Grouping:
    """How the quantized matrix that `Checkpoint.quantized` gives is laid out, known beforehand.

    `group_size` divides the number of inputs. `has_order`: inputs must be gathered first.
    """

    bits: Literal[4, 8]
    group_size: int
    has_minimum: bool
    has_order: bool = False

    def num_bytes(self, num_out: int, num_in: int) -> int:
        """Memory of a matrix [N, K]: codes, FP16 scales and minima, the order as int32."""
        halves = num_out * (num_in // self.group_size) * (2 if self.has_minimum else 1)
        return num_out * num_in * self.bits // 8 + 2 * halves + 4 * num_in * self.has_order


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: canonical name, shape in torch order ([out, in]), format, bytes in the file.

    `grouping` is that of quantized matrices whose values can be kept, None of all other tensors.
    """

    name: str
    shape: tuple[int, ...]
    format: TensorFormat
    num_bytes: int
    grouping: Grouping | None = None


@dataclass(frozen=True, slots=True)
class QuantizedBlocks:
    """Groups of consecutive inputs of a matrix [N, K]: value = codes * scale (+ minimum).

    `codes` [N, K]: uint8 0..15 for 4 bits, int8 for 8 bits. `scale`, `minimum`: float16 [N, G].
    `order` int32 [K], where there is one: column k multiplies input order[k].
    """

    bits: Literal[4, 8]
    codes: torch.Tensor
    scale: torch.Tensor
    minimum: torch.Tensor | None
    order: torch.Tensor | None = None


class ModelHeaders(Protocol):
    """What sizes follow from: of a checkpoint on disk, or of a published shape."""

    @property
    def config(self) -> ModelConfig:
        """The architecture."""
        ...

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """The tensors the architecture uses, by Hugging Face name."""
        ...


class TensorReader(ModelHeaders, Protocol):
    """The part of a Checkpoint that gives weights."""

    def dense(self, name: str) -> torch.Tensor:
        """The tensor on the CPU: as stored, float32 for quantized types. Raises EngineError.

        It may lie in the mapped file, privately: writing to it leaves the file as it is.
        """
        ...

    def quantized(self, name: str) -> QuantizedBlocks | None:
        """Payload of a matrix whose TensorInfo has a `grouping`, None for other formats.

        None also where a minimum does not fit FP16. Raises CheckpointError.
        """
        ...


def used_tensors(
    config: ModelConfig,
    found: Mapping[str, TensorInfo],
    ignorable: frozenset[str],
    path: Path,
    files: Mapping[str, Path] | None = None,
) -> dict[str, TensorInfo]:
    """The tensors the architecture uses, each present and of the right shape.

    `files` says which file each tensor lies in, where `path` is a folder.

    Raises CheckpointError for a missing tensor, a wrong shape, and for a tensor that is neither
    used nor `ignorable`: a model that leaves weights out would run and talk nonsense.
    """
    expected, files = expected_tensors(config), files or {}
    missing = [name for name in expected if name not in found]
    if missing:
        raise missing_tensors_error(path, missing)
    for name, shape in expected.items():
        if found[name].shape != shape:
            raise bad_file(
                files.get(name, path),
                f"The tensor {name} is {list(found[name].shape)}, not {list(shape)}.",
            )
    unknown = sorted(found.keys() - expected.keys() - ignorable)
    if unknown:
        raise bad_file(
            files.get(unknown[0], path),
            f"It holds {len(unknown):,} tensors its description has no place for, such as "
            f"{unknown[0][:80]}.",
            "Choose a plain model of a known architecture.",
        )
    return {name: found[name] for name in expected}
