"""The parts of one packed matrix as the files' headers describe them, checked by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import torch

from engine.loading.files import CheckpointError, Fields, bad_file, unsupported
from engine.loading.tensors import Grouping, QuantizedBlocks, TensorInfo

Read: TypeAlias = Callable[[str], torch.Tensor]  # a tensor of the files by its own name

READABLE = (
    "Readable are GPTQ of 4 or 8 bits, AWQ (gemm) of 4, compressed-tensors as pack-quantized of "
    "4 or 8 bits or as float-quantized, and FP8 (E4M3)."
)
_EMBEDDING = "model.embed_tokens"


class PackedMatrix(Protocol):
    """A matrix [N, K] that the files hold in several parts."""

    @property
    def info(self) -> TensorInfo:
        """The matrix as one tensor."""
        ...

    def dense(self, read: Read) -> torch.Tensor:
        """Float32 [N, K], as the format defines it. Raises CheckpointError."""
        ...

    def quantized(self, read: Read) -> QuantizedBlocks | None:
        """The payload, None where `info` has no grouping. Raises CheckpointError."""
        ...


class PackedFormat(Protocol):
    """A way to pack matrices, with the settings of one checkpoint."""

    def matrix(self, module: Module) -> PackedMatrix:
        """The matrix that a module's parts make up. Raises CheckpointError for wrong parts."""
        ...


@dataclass(frozen=True, slots=True)
class Module:
    """A layer's packed matrix [num_out, num_in]: `parts` by what follows the layer's name."""

    name: str
    num_out: int
    num_in: int
    parts: Mapping[str, TensorInfo]
    folder: Path

    def require(self, part: str, dtypes: tuple[str, ...], *shapes: tuple[int, ...]) -> None:
        """Raise CheckpointError unless the part is there, in one of the dtypes and shapes."""
        info = self.parts.get(part)
        if info is None:
            raise self.error(part, "is missing")
        if info.format not in dtypes:
            raise self.error(part, f"is {info.format}, not {' or '.join(dtypes)}")
        if info.shape not in shapes:
            wanted = " or ".join(str(list(shape)) for shape in shapes)
            raise self.error(part, f"is {list(info.shape)}, not {wanted}")

    def part(self, part: str) -> str:
        """The part's name in the files."""
        return f"{self.name}.{part}"

    def error(self, part: str, why: str) -> CheckpointError:
        """The error for a part that makes no sense."""
        return bad_file(self.folder, f"The tensor {self.part(part)[:120]} {why}.")

    def info(self, label: str, grouping: Grouping | None) -> TensorInfo:
        """The matrix as one tensor, its bytes those of all parts."""
        if grouping is not None and grouping.has_order and self.name == _EMBEDDING:
            grouping = None  # its rows are looked up, not multiplied with inputs in that order
        num_bytes = sum(part.num_bytes for part in self.parts.values())
        shape = (self.num_out, self.num_in)
        return TensorInfo(f"{self.name}.weight", shape, label, num_bytes, grouping)


def refused(what: str) -> CheckpointError:
    """The error for a way of packing that this program does not read."""
    return unsupported(what, READABLE, "Choose one of these, or an unquantized or GGUF version.")


def readable_bits(fields: Fields, name: str, known: tuple[int, ...], method: str) -> int:
    """The field as bits that can be read. Raises CheckpointError."""
    bits = fields.integer(name, 64)
    if bits not in known:
        raise refused(f"{method} of {bits} bits")
    return bits


def optional_group_size(fields: Fields, name: str) -> int | None:
    """Inputs that share a scale; None for -1, a whole row. Raises CheckpointError."""
    return None if fields.raw(name) == -1 else fields.integer(name, 2**22)
