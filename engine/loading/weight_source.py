"""Tensors of a checkpoint as weights in the chosen format, on the device, with a byte count."""

from __future__ import annotations

import torch

from engine.layers.linear import Linear
from engine.loading.tensors import Grouping, QuantizedBlocks, TensorInfo, TensorReader
from kernels.select import KernelSet
from kernels.weights import (
    INT4_GROUP_SIZE,
    DenseWeight,
    GroupedWeight,
    KernelWeight,
    Weight,
    pack_groups,
    quantize_int4,
    quantize_int8,
)

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_DENSE_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


class WeightSource:
    """Reads what a model asks for by name and converts it to `weight_format`.

    The embedding and the output head stay at 8 bits under INT4: they are the most sensitive
    matrices, and a tied one is both.
    """

    def __init__(
        self,
        checkpoint: TensorReader,
        weight_format: str,
        kernels: KernelSet,
        device: torch.device,
    ) -> None:
        self._checkpoint = checkpoint
        self._format = weight_format
        self._kernels = kernels
        self._device = device
        self.bytes_read = 0
        self.weight_bytes = 0

    def linear(self, names: list[str]) -> Linear:
        """The product over the weights `<name>.weight` (and biases) that share an input."""
        return self._linear(names, self._format)

    def head(self, name: str) -> Linear:
        """The output projection."""
        return self._linear([name], kept_format(f"{name}.weight", self._format))

    def embedding(self, name: str) -> KernelWeight:
        """The token embedding [vocab, hidden]. Formats with an order have none of these."""
        weight, order = self._ordered_weight(name, kept_format(name, self._format))
        assert order is None, "rows are looked up with their columns in order"
        return self._kernels.prepare(weight)

    def router(self, name: str) -> Linear:
        """The matrix that chooses experts: small, and a wrong choice costs much, so FP32."""
        return self._linear([name], kept_format(f"{name}.weight", self._format))

    def norm(self, name: str) -> torch.Tensor:
        """The weight of an RMSNorm, what is to be added to it added."""
        return self.vector(f"{name}.weight") + self._checkpoint.config.norm_offset

    def vector(self, name: str) -> torch.Tensor:
        """A norm weight or bias as it is, FP32 on the device."""
        self._count(name)
        vector = self._checkpoint.dense(name).float().to(self._device)
        self.weight_bytes += vector.numel() * vector.element_size()
        return vector

    def _linear(self, names: list[str], weight_format: str) -> Linear:
        read = [self._ordered_weight(f"{name}.weight", weight_format) for name in names]
        tensors = self._checkpoint.tensors
        biases = [
            self.vector(f"{name}.bias") if f"{name}.bias" in tensors else None for name in names
        ]
        weights, orders = [weight for weight, _ in read], [order for _, order in read]
        return Linear(weights, biases, self._kernels, orders)

    def _ordered_weight(self, name: str, weight_format: str) -> tuple[Weight, torch.Tensor | None]:
        self._count(name)
        weight, order = read_weight(self._checkpoint, name, weight_format)
        weight = _to_device(weight, self._device)
        self.weight_bytes += weight.num_bytes
        if order is not None:
            order = order.to(self._device)
            self.weight_bytes += order.numel() * order.element_size()
        return weight, order

    def _count(self, name: str) -> None:
        self.bytes_read += self._checkpoint.tensors[name].num_bytes


def kept_format(name: str, weight_format: str) -> str:
    """The format of one matrix: embedding, head and routers may keep more than was asked for."""
    if name.endswith(".mlp.gate.weight"):
        return "fp32"
    if name in (EMBEDDING, HEAD) and weight_format == "int4":
        return "int8"
    return weight_format


def read_weight(
    checkpoint: TensorReader, name: str, weight_format: str
) -> tuple[Weight, torch.Tensor | None]:
    """One matrix in `weight_format`, and the order (int32 [K]) its inputs are gathered in, if any.

    Quantized matrices of the same bits, under "as-stored" all that have a grouping, keep their
    values; other quantized types are expanded, to BF16 under "as-stored".
    """
    info = checkpoint.tensors[name]
    if kept_grouping(info, weight_format) is not None:
        blocks = checkpoint.quantized(name)
        if blocks is not None:
            return _keep(blocks), blocks.order
    return _convert(checkpoint.dense(name), info, weight_format), None


def _convert(dense: torch.Tensor, info: TensorInfo, weight_format: str) -> Weight:
    if weight_format == "as-stored":
        return DenseWeight(dense if info.format in _DENSE_BYTES else dense.bfloat16())
    if weight_format == "int8":
        return quantize_int8(dense)
    if weight_format == "int4" and dense.shape[1] % INT4_GROUP_SIZE == 0:
        return quantize_int4(dense)
    if weight_format == "int4":
        return quantize_int8(dense)
    return DenseWeight(dense.to(_DTYPES[weight_format]))


def kept_grouping(info: TensorInfo, weight_format: str) -> Grouping | None:
    """The layout of a quantized matrix that keeps its values in a format, None to convert."""
    grouping = info.grouping
    if grouping is None:
        return None
    wanted = {"as-stored": grouping.bits, "int8": 8, "int4": 4}.get(weight_format)
    return grouping if grouping.bits == wanted else None


def weight_num_bytes(info: TensorInfo, weight_format: str) -> int:
    """Bytes a matrix [N, K] will take in a format, without reading it."""
    num_out, num_in = info.shape
    count = num_out * num_in
    kept = kept_grouping(info, weight_format)
    if kept is not None:
        return kept.num_bytes(num_out, num_in)
    if weight_format == "as-stored":
        return count * _DENSE_BYTES.get(info.format, 2)
    if weight_format in _DTYPES:
        return count * _DTYPES[weight_format].itemsize
    if weight_format == "int4" and num_in % INT4_GROUP_SIZE == 0:
        return count // 2 + 4 * count // INT4_GROUP_SIZE
    return count + 2 * num_out


def _keep(blocks: QuantizedBlocks) -> GroupedWeight:
    return pack_groups(blocks.bits, blocks.codes, blocks.scale, blocks.minimum)


def _to_device(weight: Weight, device: torch.device) -> Weight:
    if isinstance(weight, DenseWeight):
        return DenseWeight(weight.data.to(device))
    return GroupedWeight(
        weight.bits,
        weight.codes.to(device),
        weight.scale.to(device),
        None if weight.minimum is None else weight.minimum.to(device),
    )
