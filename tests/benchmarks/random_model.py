"""Models with random weights in the shapes of known ones, made on the device without a file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import torch

from engine.layers.linear import Linear
from engine.loading.model_config import (
    LayerConfig,
    ModelConfig,
    Rope,
    RopeScaling,
    expected_tensors,
)
from engine.models.decoder import DecoderModel
from kernels.select import KernelSet
from kernels.weights import DenseWeight, GroupedWeight, KernelWeight, Weight

if TYPE_CHECKING:
    from engine.loading.weight_source import WeightSource

LLAMA_8B = ModelConfig(
    architecture="llama",
    vocab_size=128256,
    hidden_size=4096,
    intermediate_size=14336,
    layers=(LayerConfig(Rope(500000.0, RopeScaling("llama3", 8.0, 8192))),) * 32,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    rms_norm_eps=1e-5,
    context_length=131072,
    tie_word_embeddings=False,
)
LLAMA_1B = replace(
    LLAMA_8B,
    hidden_size=2048,
    intermediate_size=8192,
    layers=(LayerConfig(Rope(500000.0, RopeScaling("llama3", 32.0, 8192))),) * 16,
    head_dim=64,
    tie_word_embeddings=True,
)


class RandomSource:
    """Stands in for engine's WeightSource: weights made on the device, of variance 1 / inputs."""

    def __init__(
        self, config: ModelConfig, weight_format: str, kernels: KernelSet, device: torch.device
    ) -> None:
        self._shapes = expected_tensors(config)
        self._format = weight_format
        self._kernels = kernels
        self._device = device
        self._rng = torch.Generator(device).manual_seed(0)

    def linear(self, names: list[str]) -> Linear:
        """The product over the weights that share an input."""
        weights = [self._weight(f"{name}.weight", self._format) for name in names]
        return Linear(weights, [None] * len(weights), self._kernels)

    def head(self, name: str) -> Linear:
        """The output projection, in INT8 under INT4, as the engine keeps it."""
        return Linear([self._weight(f"{name}.weight", self._head_format)], [None], self._kernels)

    def embedding(self, name: str) -> KernelWeight:
        """The token embedding [vocab, hidden]."""
        return self._kernels.prepare(self._weight(name, self._head_format))

    def norm(self, name: str) -> torch.Tensor:
        """A norm's weights: all 1."""
        return torch.ones(self._shapes[f"{name}.weight"], device=self._device)

    @property
    def _head_format(self) -> str:
        return "int8" if self._format == "int4" else self._format

    def _weight(self, name: str, weight_format: str) -> Weight:
        num_out, num_in = self._shapes[name]
        deviation = num_in**-0.5
        if weight_format == "int8":
            codes = self._random_bytes(1, num_in, num_out).view(torch.int8).clamp_(min=-127)
            scale = torch.full((1, num_out), deviation / 73, device=self._device)
            return GroupedWeight(8, codes, scale.half(), None)
        if weight_format == "int4":
            groups = num_in // 32
            codes = self._random_bytes(groups, 16, num_out)
            scale = torch.full((groups, num_out), deviation / 4.6, device=self._device)
            return GroupedWeight(4, codes, scale.half(), (-7.5 * scale).half())
        dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[weight_format]
        weight = torch.empty(num_out, num_in, dtype=dtype, device=self._device)
        return DenseWeight(weight.normal_(0, deviation, generator=self._rng))

    def _random_bytes(self, *shape: int) -> torch.Tensor:
        codes = torch.empty(shape, dtype=torch.uint8, device=self._device)
        return codes.random_(0, 256, generator=self._rng)


def build(
    config: ModelConfig, weight_format: str, kernels: KernelSet, device: torch.device, context: int
) -> DecoderModel:
    """A model with random weights and rotary tables for `context` tokens."""
    model = DecoderModel(config, kernels, device)
    source = cast("WeightSource", RandomSource(config, weight_format, kernels, device))
    for _ in model.load(source, context):
        pass
    return model


def step_weight_bytes(model: DecoderModel) -> int:
    """What a decode step reads of the weights."""
    layers = sum(linear.num_bytes for layer in model.layers for linear in layer.linears)
    return layers + model.head.num_bytes
