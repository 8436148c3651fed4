"""Linear: orders of inputs, and which weights become one product."""

import torch

from engine.layers.linear import Linear
from kernels.select import torch_kernels
from kernels.weights import dequantize, quantize_int8

KERNELS = torch_kernels(torch.float32, torch.float32)


def test_weights_of_one_order_are_one_product() -> None:
    """Merged, and the inputs are gathered once."""
    weights = [quantize_int8(torch.randn(n, 16)) for n in (3, 5)]
    order = torch.randperm(16).int()
    linear = Linear(weights, [None, None], KERNELS, [order, order.clone()])
    assert len(linear.parts) == 1
    x = torch.randn(4, 16)
    expected = x[:, order.long()] @ torch.cat([dequantize(w) for w in weights]).t()
    torch.testing.assert_close(linear(x), expected)


def test_weights_of_different_orders_stay_apart() -> None:
    """Each part gathers its own, or none."""
    weights = [quantize_int8(torch.randn(n, 16)) for n in (3, 5, 2)]
    biases = [torch.randn(3), torch.randn(5), torch.randn(2)]
    orders = [torch.randperm(16).int(), None, torch.randperm(16).int()]
    linear = Linear(weights, biases, KERNELS, orders)
    assert len(linear.parts) == 3
    x = torch.randn(4, 16)
    gathered = [x if order is None else x[:, order.long()] for order in orders]
    products = zip(gathered, weights, biases, strict=True)
    expected = torch.cat([g @ dequantize(w).t() + b for g, w, b in products], dim=1)
    torch.testing.assert_close(linear(x), expected)
