"""compressed-tensors, the format of llm-compressor: `pack-quantized` integers and FP8.

A packed integer matrix [N, K] of b bits in G groups along K:

    weight_packed     int32 [N, ceil(K * b / 32)]  code + 2^(b-1), packed along K
    weight_scale      [N, G]
    weight_zero_point int32 [ceil(N * b / 32), G]  zero point + 2^(b-1), packed along N, if any
    weight_g_idx      int32 [K]                    group of each input, with activation ordering
    weight_shape      int64 [2]                    N and K

    w[n, k] = weight_scale[n, g] * (code - zero point)

A config describes one or more groups of layers, chosen by patterns. The shapes of a matrix say
which description is its own, so that patterns, which may be any regular expression, are not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from engine.loading.files import Fields
from engine.loading.packed.float8 import Block, block_size, float8_matrix
from engine.loading.packed.integers import (
    GroupedCodes,
    IntegerMatrix,
    consecutive_groups,
    grouping_of,
    label,
    stored_groups,
)
from engine.loading.packed.module import (
    Module,
    PackedMatrix,
    Read,
    optional_group_size,
    readable_bits,
    refused,
)
from engine.loading.packed.words import WORD_BITS, unpack_words

_METHOD = "compressed-tensors"
_FORMATS = ("pack-quantized", "float-quantized", "naive-quantized", "mixed-precision")
_SCALES = ("F32", "F16", "BF16")
_BY_CHANNEL: Block = (1, 2**22)  # more inputs than any layer has: a whole row


@dataclass(frozen=True, slots=True)
class Integers:
    """A description of packed integers; `group_size` None means one group a row."""

    bits: int
    group_size: int | None
    symmetric: bool

    def fits(self, module: Module) -> bool:
        """Whether the shapes of codes and scales are those of this description."""
        size = min(self.group_size or module.num_in, module.num_in)
        words = -(-module.num_in * self.bits // WORD_BITS)
        codes, scale = module.parts.get("weight_packed"), module.parts.get("weight_scale")
        return (
            codes is not None
            and codes.shape == (module.num_out, words)
            and (scale is None or scale.shape == (module.num_out, -(-module.num_in // size)))
            and self.symmetric == ("weight_zero_point" not in module.parts)
        )

    def matrix(self, module: Module) -> IntegerMatrix:
        """The matrix that a module's parts make up. Raises CheckpointError."""
        num_out, num_in = module.num_out, module.num_in
        size = min(self.group_size or num_in, num_in)
        groups, reordered = -(-num_in // size), "weight_g_idx" in module.parts
        module.require("weight_packed", ("I32",), (num_out, -(-num_in * self.bits // WORD_BITS)))
        module.require("weight_scale", _SCALES, (num_out, groups))
        if not self.symmetric:
            rows = -(-num_out * self.bits // WORD_BITS)
            module.require("weight_zero_point", ("I32",), (rows, groups))
        if reordered:
            module.require("weight_g_idx", ("I32",), (num_in,))
        grouping = grouping_of(module, self.bits, size, self.symmetric, reordered)
        info = module.info(label(_METHOD, self.bits, self.group_size), grouping)
        return IntegerMatrix(info, module, partial(self._unpack, module, size))

    def _unpack(self, module: Module, group_size: int, read: Read) -> GroupedCodes:
        scale = read(module.part("weight_scale"))
        zeros = torch.full(scale.shape, 2 ** (self.bits - 1), dtype=torch.uint8)
        if not self.symmetric:
            words = read(module.part("weight_zero_point"))
            zeros = unpack_words(words, self.bits, 0)[: module.num_out]
        codes = unpack_words(read(module.part("weight_packed")), self.bits, 1)
        if "weight_g_idx" in module.parts:
            group_of = stored_groups(module, "weight_g_idx", read, group_size, reordered=True)
        else:
            group_of = consecutive_groups(module.num_in, group_size)
        return GroupedCodes(codes[:, : module.num_in], zeros, scale, group_of)


@dataclass(frozen=True, slots=True)
class CompressedTensors:
    """See PackedFormat: what the config describes, to be recognised by shape."""

    integers: tuple[Integers, ...]
    blocks: tuple[Block | None, ...]  # of FP8 scales

    def matrix(self, module: Module) -> PackedMatrix:
        """See PackedFormat."""
        if "weight_packed" not in module.parts:
            return float8_matrix(module, "weight_scale", list(self.blocks))
        # Where none fits, the first one says in its error what is wrong.
        fitting = [scheme for scheme in self.integers if scheme.fits(module)] or self.integers
        if not fitting:
            raise module.error("weight_packed", "is not described by the quantization_config")
        return fitting[0].matrix(module)


def compressed_tensors(fields: Fields) -> CompressedTensors:
    """From `quantization_config`. Raises CheckpointError."""
    layout = fields.text("format", "pack-quantized")
    if layout not in _FORMATS:
        raise refused(f"{_METHOD} in the layout {layout[:40]!r}")
    for extra in ("sparsity_config", "transform_config"):
        if fields.raw(extra):
            raise refused(f"{_METHOD} with a {extra}")
    groups = fields.raw("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise fields.error("config_groups", "is not an object of groups")
    described = [fields.nested(group, "config_groups") for group in groups.values()]
    weights = [group.nested(group.raw("weights"), "weights") for group in described]
    floats = [w for w in weights if w.text("type", "int") == "float"]
    return CompressedTensors(
        integers=tuple(_integers(w) for w in weights if w not in floats),
        blocks=tuple(_float_block(w) for w in floats),
    )


def _integers(weights: Fields) -> Integers:
    strategy = weights.text("strategy", "group" if "group_size" in weights else "channel")
    if strategy not in ("group", "channel"):
        raise refused(f"{_METHOD} with one scale per {strategy[:40]}")
    return Integers(
        bits=readable_bits(weights, "num_bits", (4, 8), _METHOD),
        group_size=optional_group_size(weights, "group_size") if strategy == "group" else None,
        symmetric=weights.flag("symmetric", True),
    )


def _float_block(weights: Fields) -> Block | None:
    readable_bits(weights, "num_bits", (8,), f"{_METHOD} floating point")
    strategy = weights.text("strategy", "tensor")
    if strategy == "tensor":
        return None
    if strategy == "channel":
        return _BY_CHANNEL
    block = block_size(weights, "block_structure") if strategy == "block" else None
    if block is None:
        raise refused(f"{_METHOD} FP8 with one scale per {strategy[:40]}")
    return block
