"""FP8 E4M3 weights with scales: w = value * scale, one scale a matrix, an output or a block.

Values are those of the OCP 8-bit floating point specification (E4M3, no infinities). Activations
are not quantized here, whatever the checkpoint proposes, so that results are the more exact ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.loading.files import Fields
from engine.loading.packed.module import Module, Read, refused
from engine.loading.tensors import QuantizedBlocks, TensorInfo

FLOAT8 = "F8_E4M3"  # as safetensors spells it
_SCALES = ("F32", "F16", "BF16", "F8_E8M0")  # the last holds powers of two
Block = tuple[int, int]  # outputs and inputs that share a scale


@dataclass(frozen=True, slots=True)
class Float8Matrix:
    """See PackedMatrix. Expanded when it is read: there are no kernels for FP8."""

    info: TensorInfo
    module: Module
    scale_part: str
    block: Block

    def dense(self, read: Read) -> torch.Tensor:
        """Float32 [N, K]."""
        values = read(self.module.part("weight")).float()
        scale = read(self.module.part(self.scale_part)).float()
        if scale.numel() == 1:
            return values.mul_(scale.view(()))
        num_out, num_in = values.shape
        scale = scale.repeat_interleave(self.block[0], 0)[:num_out]
        return values.mul_(scale.repeat_interleave(self.block[1], 1)[:, :num_in])

    def quantized(self, read: Read) -> QuantizedBlocks | None:
        """None: 8-bit floating point is not kept."""
        return None


@dataclass(frozen=True, slots=True)
class Float8:
    """Hugging Face's `quant_method: fp8`; see PackedFormat. `block` None: one scale a matrix."""

    block: Block | None

    def matrix(self, module: Module) -> Float8Matrix:
        """See PackedFormat."""
        return float8_matrix(module, "weight_scale_inv", [self.block])


def float8_matrix(module: Module, scale_part: str, blocks: list[Block | None]) -> Float8Matrix:
    """A matrix whose scale fits one of the blocks; None is one scale a matrix.

    Raises CheckpointError.
    """
    size = (module.num_out, module.num_in)
    module.require("weight", (FLOAT8,), size)
    by_shape: dict[tuple[int, ...], Block] = {}
    for block in blocks:
        if block is None:
            by_shape |= {(): size, (1,): size, (1, 1): size}
        else:
            rows, columns = min(block[0], size[0]), min(block[1], size[1])
            by_shape[-(-size[0] // rows), -(-size[1] // columns)] = (rows, columns)
    module.require(scale_part, _SCALES, *by_shape)
    block = by_shape[module.parts[scale_part].shape]
    kinds = {size: "per tensor", (1, size[1]): "per channel"}
    kind = kinds.get(block, f"{block[0]}x{block[1]} blocks")
    return Float8Matrix(module.info(f"FP8 {kind}", None), module, scale_part, block)


def float8(fields: Fields) -> Float8:
    """From `quantization_config`. Raises CheckpointError."""
    if fields.text("fmt", "e4m3").lower() not in ("e4m3", "float8_e4m3fn"):
        raise refused(f"FP8 in the format {fields.text('fmt')[:40]!r}")
    return Float8(block_size(fields, "weight_block_size"))


def block_size(fields: Fields, name: str) -> Block | None:
    """[outputs, inputs] of a block, None where the field is absent. Raises CheckpointError."""
    value = fields.raw(name)
    if value is None:
        return None
    valid = isinstance(value, list) and len(value) == 2
    if not valid or not all(type(item) is int and 1 <= item <= 2**22 for item in value):
        raise fields.error(name, "is not a pair of whole numbers")
    return (value[0], value[1])
