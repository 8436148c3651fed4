"""Matrix products over a weight in any format: one `Linear` interface for all layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels.select import KernelSet
from kernels.weights import DenseWeight, KernelWeight, concat_outputs


class Linear:
    """y = x W^T + b. Several weights over the same input become one product where that pays.

    `orders`, where weights have their columns sorted (GPTQ's act-order): column k of a weight
    multiplies input order[k], int32 [K]. Weights of different orders stay apart.
    """

    def __init__(
        self,
        weights: Sequence[KernelWeight],
        biases: Sequence[torch.Tensor | None],
        kernels: KernelSet,
        orders: Sequence[torch.Tensor | None] | None = None,
    ) -> None:
        orders = orders or [None] * len(weights)
        merged = concat_outputs(weights) if _all_equal(orders) and _pays(weights) else None
        if merged is not None:
            weights, biases, orders = [merged], [_concat(biases)], orders[:1]
        prepared = [kernels.prepare(weight) for weight in weights]
        self.parts = list(zip(prepared, biases, strict=True))
        self._orders = list(orders)
        self._linear = kernels.linear
        self._gather = kernels.gather_columns

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, in] -> [T, sum of outputs]."""
        if len(self.parts) == 1:
            weight, bias = self.parts[0]
            return self._linear(self._inputs(x, 0), weight, bias)
        out = x.new_empty(x.shape[0], sum(weight.shape[0] for weight, _ in self.parts))
        start = 0
        for index, (weight, bias) in enumerate(self.parts):
            end = start + weight.shape[0]
            self._linear(self._inputs(x, index), weight, bias, out=out[:, start:end])
            start = end
        return out

    def _inputs(self, x: torch.Tensor, part: int) -> torch.Tensor:
        order = self._orders[part]
        return x if order is None else self._gather(x, order)

    @property
    def num_bytes(self) -> int:
        """Memory of the weights, scales included, biases not."""
        return sum(weight.num_bytes for weight, _ in self.parts)

    @property
    def num_parameters(self) -> int:
        """Elements of the weights, biases not."""
        return sum(weight.shape[0] * weight.shape[1] for weight, _ in self.parts)


def _pays(weights: Sequence[KernelWeight]) -> bool:
    """Not for dense weights on a CPU: they may lie in a mapped file, and joining copies them."""
    first = weights[0]
    return not (isinstance(first, DenseWeight) and first.data.device.type == "cpu")


def _concat(biases: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    present = [bias for bias in biases if bias is not None]
    if not present:
        return None
    if len(present) != len(biases):
        raise ValueError("projections over one input must all have a bias or none")
    return torch.cat(present)


def _all_equal(orders: Sequence[torch.Tensor | None]) -> bool:
    first = orders[0]
    if first is None:
        return all(order is None for order in orders)
    return all(order is not None and torch.equal(order, first) for order in orders)
