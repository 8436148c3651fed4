"""Weights in memory behind a checkpoint's face, whose products count what goes into them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from engine.layers.linear import Linear
from engine.loading.model_config import ModelConfig
from engine.loading.tensors import QuantizedBlocks, TensorInfo
from engine.loading.weight_source import WeightSource
from kernels.select import KernelSet
from kernels.weights import DenseWeight, KernelWeight

LAYER = "model.layers.0."
_CPU = torch.device("cpu")


@dataclass(slots=True)
class InputStatistics:
    """Sums over the inputs of one or more products: of |x| FP32 [K], of x x^T FP32 [K, K]."""

    num_tokens: int
    magnitude_sum: torch.Tensor
    moment_sum: torch.Tensor

    @classmethod
    def empty(cls, num_in: int) -> InputStatistics:
        """Of no inputs yet."""
        return cls(0, torch.zeros(num_in), torch.zeros(num_in, num_in))

    def add(self, x: torch.Tensor) -> None:
        """Count inputs [T, K]."""
        x = x.float()
        self.num_tokens += x.shape[0]
        self.magnitude_sum += x.abs().sum(0)
        self.moment_sum.addmm_(x.T, x)

    @property
    def magnitude(self) -> torch.Tensor:
        """Mean |x|, [K]."""
        return self.magnitude_sum / self.num_tokens

    @property
    def moment(self) -> torch.Tensor:
        """E[x x^T], [K, K]."""
        return self.moment_sum / self.num_tokens


class MemoryTensors:
    """Tensors in memory behind the face of a checkpoint; satisfies TensorReader."""

    def __init__(self, config: ModelConfig, tensors: Mapping[str, torch.Tensor]) -> None:
        self.config = config
        self._tensors = tensors
        self.tensors = {
            name: TensorInfo(name, tuple(tensor.shape), "F32", tensor.nbytes)
            for name, tensor in tensors.items()
        }

    def dense(self, name: str) -> torch.Tensor:
        """The tensor itself."""
        return self._tensors[name]

    def quantized(self, name: str) -> QuantizedBlocks | None:
        """None: they are all dense."""
        return None


class ObservedLinear(Linear):
    """A product that counts its inputs."""

    def __init__(
        self,
        weights: list[KernelWeight],
        biases: list[torch.Tensor | None],
        kernels: KernelSet,
        statistics: InputStatistics,
    ) -> None:
        super().__init__(weights, biases, kernels)
        self._statistics = statistics

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self._statistics.add(x)
        return super().__call__(x)


class ObservedSource(WeightSource):
    """Dense FP32 weights whose products count their inputs into `statistics`, if there are any."""

    def __init__(
        self,
        reader: MemoryTensors,
        kernels: KernelSet,
        statistics: dict[str, InputStatistics] | None,
    ) -> None:
        super().__init__(reader, "fp32", kernels, _CPU)
        self._reader = reader
        self._kernel_set = kernels
        self._statistics = statistics

    def linear(self, names: list[str]) -> Linear:
        """See WeightSource; every part of a product gets the same statistics."""
        if self._statistics is None:
            return super().linear(names)
        tensors = self._reader.tensors
        weights: list[KernelWeight] = [
            DenseWeight(self._reader.dense(f"{name}.weight")) for name in names
        ]
        biases = [
            self.vector(f"{name}.bias") if f"{name}.bias" in tensors else None for name in names
        ]
        seen = InputStatistics.empty(weights[0].shape[1])
        for name in names:
            self._statistics[name.removeprefix(LAYER)] = seen
        return ObservedLinear(weights, biases, self._kernel_set, seen)
