"""AWQ (arXiv 2306.00978) in AutoAWQ's "gemm" layout.

For a layer of K inputs, N outputs and G = K / group size groups, of 4 bits:

    qweight int32 [K, N / 8]   codes packed along N, a word's places in the order AWQ_ORDER
    qzeros  int32 [G, N / 8]   zero points, likewise; symmetric ones are 8
    scales  FP16  [G, N]

    w[n, k] = scales[g, n] * (code - zero), g = k // group size
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
)
from engine.loading.packed.module import (
    Module,
    Read,
    optional_group_size,
    readable_bits,
    refused,
)
from engine.loading.packed.words import unpack_words

AWQ_BITS = 4
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # of 8 outputs, which one the i-th nibble of a word holds
_CODES = 8
_SYMMETRIC_ZERO = 8


@dataclass(frozen=True, slots=True)
class Awq:
    """See PackedFormat; `group_size` None means one group a row."""

    group_size: int | None
    has_zeros: bool

    def matrix(self, module: Module) -> IntegerMatrix:
        """See PackedFormat."""
        num_out, num_in = module.num_out, module.num_in
        size = self.group_size or num_in
        if num_in % size or num_out % _CODES:
            raise module.error(
                "qweight", f"cannot hold {num_out} x {num_in} in groups of {size} and whole words"
            )
        module.require("qweight", ("I32",), (num_in, num_out // _CODES))
        if self.has_zeros or "qzeros" in module.parts:
            module.require("qzeros", ("I32",), (num_in // size, num_out // _CODES))
        module.require("scales", ("F16", "BF16", "F32"), (num_in // size, num_out))
        grouping = grouping_of(module, AWQ_BITS, size, symmetric=False, has_order=False)
        info = module.info(label("AWQ", AWQ_BITS, self.group_size), grouping)
        return IntegerMatrix(info, module, partial(self._unpack, module, size))

    def _unpack(self, module: Module, group_size: int, read: Read) -> GroupedCodes:
        scale = read(module.part("scales")).t()
        zeros = torch.full(scale.shape, _SYMMETRIC_ZERO, dtype=torch.uint8)
        if "qzeros" in module.parts:
            zeros = unpack_words(read(module.part("qzeros")), AWQ_BITS, 1, AWQ_ORDER).t()
        return GroupedCodes(
            codes=unpack_words(read(module.part("qweight")), AWQ_BITS, 1, AWQ_ORDER).t(),
            zeros=zeros,
            scale=scale,
            group_of=consecutive_groups(module.num_in, group_size),
        )


def awq(fields: Fields) -> Awq:
    """From `quantization_config`, or AutoAWQ's older quant_config.json. Raises CheckpointError."""
    layout = fields.text("version", fields.text("format", "gemm"))
    if layout.lower() != "gemm":
        raise refused(f"AWQ in the layout {layout[:40]!r}")
    if fields.text("backend", "autoawq") == "llm-awq":
        raise refused("AWQ in the layout of llm-awq")
    readable_bits(fields, "bits" if "bits" in fields else "w_bit", (AWQ_BITS,), "AWQ")
    return Awq(
        optional_group_size(fields, "group_size" if "group_size" in fields else "q_group_size"),
        fields.flag("zero_point", True),
    )
