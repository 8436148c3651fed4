"""What a case is given: the operations under test and random inputs; and how results compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernels.reference import PrefillSpan
from tests.kernels.gpu.tolerances import FP32, Tolerance

Heads = tuple[int, int, int]
Seen = tuple[int, float]  # window and soft-cap
ALL: Seen = (0, 0.0)


@dataclass
class Rig:
    """What is under test (`ops`: a KernelSet), on which device, and the seed of its inputs."""

    ops: Any
    device: torch.device
    seed: int
    rng: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = torch.Generator().manual_seed(self.seed)

    def randn(self, *shape: int, dtype: torch.dtype = FP32) -> torch.Tensor:
        """Normal values on the CPU, exact in `dtype`."""
        return torch.randn(shape, generator=self.rng).to(dtype)

    def put(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Copies on the device under test."""
        return [tensor.to(self.device, copy=True) for tensor in tensors]


def check(actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> None:
    """Shapes equal and values within the tolerance; neither may have NaN."""
    torch.testing.assert_close(
        actual.double().cpu(), expected.double(), rtol=tolerance.rtol, atol=tolerance.atol
    )


def make_spans(
    spans: Sequence[tuple[int, int]], tables: Sequence[torch.Tensor]
) -> tuple[PrefillSpan, ...]:
    return tuple(
        PrefillSpan(count, context, table)
        for (count, context), table in zip(spans, tables, strict=True)
    )
