"""GPTQ (arXiv 2210.17323) as AutoGPTQ and GPTQModel store it.

For a layer of K inputs, N outputs and G = ceil(K / group size) groups:

    qweight int32 [K * bits / 32, N]   codes packed along K
    qzeros  int32 [G, N * bits / 32]   zero points packed along N, in version 1 less one
    scales  FP16  [G, N]
    g_idx   int32 [K]                  group of each input

    w[n, k] = scales[g, n] * (code - zero), g = g_idx[k]

Version 1 subtracts one from the zero points. Its zero point of 0 borrows from the next one in the
word when written by GPTQModel; adding the ones back to whole words, as GPTQModel's reader does, is
right for that and for all files without zero points of 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from engine.loading.files import Fields
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
    Read,
    optional_group_size,
    readable_bits,
    refused,
)
from engine.loading.packed.words import WORD_BITS, unpack_words

ONES = {4: 0x11111111, 8: 0x01010101}  # a one in every code of a word
_HALVES = ("F16", "BF16", "F32")


@dataclass(frozen=True, slots=True)
class Gptq:
    """See PackedFormat; `group_size` None means one group a row."""

    bits: int
    group_size: int | None
    desc_act: bool
    symmetric: bool
    version: int

    def matrix(self, module: Module) -> IntegerMatrix:
        """See PackedFormat."""
        num_out, num_in = module.num_out, module.num_in
        size = min(self.group_size or num_in, num_in)
        groups, codes = -(-num_in // size), WORD_BITS // self.bits
        if num_in % codes or num_out % codes:
            raise module.error("qweight", f"cannot hold {num_out} x {num_in} in whole words")
        module.require("qweight", ("I32",), (num_in // codes, num_out))
        module.require("qzeros", ("I32",), (groups, num_out // codes))
        module.require("scales", _HALVES, (groups, num_out))
        if self.desc_act or "g_idx" in module.parts:
            module.require("g_idx", ("I32",), (num_in,))
        grouping = grouping_of(module, self.bits, size, self.symmetric, self.desc_act)
        info = module.info(label("GPTQ", self.bits, self.group_size), grouping)
        return IntegerMatrix(info, module, partial(self._unpack, module, size))

    def _unpack(self, module: Module, group_size: int, read: Read) -> GroupedCodes:
        zeros = read(module.part("qzeros"))
        if self.version == 1:
            zeros = zeros + torch.tensor(ONES[self.bits], dtype=torch.int32)
        if "g_idx" in module.parts:
            group_of = stored_groups(module, "g_idx", read, group_size, self.desc_act)
        else:
            group_of = consecutive_groups(module.num_in, group_size)
        return GroupedCodes(
            codes=unpack_words(read(module.part("qweight")), self.bits, 0).t(),
            zeros=unpack_words(zeros, self.bits, 1).t(),
            scale=read(module.part("scales")).t(),
            group_of=group_of,
        )


def gptq(fields: Fields) -> Gptq:
    """From `quantization_config` or quantize_config.json. Raises CheckpointError."""
    layout = fields.text("checkpoint_format", fields.text("format", "gptq"))
    if fields.flag("is_marlin_format", False):
        layout = "marlin"
    if layout not in ("gptq", "gptq_v2"):
        raise refused(f"GPTQ in the layout {layout[:40]!r}")
    if fields.text("pack_dtype", "int32") != "int32":
        raise refused("GPTQ packed in other words than int32")
    return Gptq(
        bits=readable_bits(fields, "bits", (4, 8), "GPTQ"),
        group_size=optional_group_size(fields, "group_size"),
        desc_act=fields.flag("desc_act", False),
        symmetric=fields.flag("sym", True),
        version=2 if layout == "gptq_v2" else 1,
    )
