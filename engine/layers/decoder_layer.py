"""One layer: attention and feed-forward, each between the norms that the family places there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engine.layers.attention import Attention
from engine.layers.attention_metadata import AttentionMetadata
from engine.layers.linear import Linear
from engine.layers.mlp import GatedMLP, MixtureOfExperts
from engine.layers.rotary import RotaryTable
from engine.loading.model_config import ModelConfig
from kernels.kv_entries import KVEntries
from kernels.select import KernelSet
from kernels.stages import Stage

if TYPE_CHECKING:
    from engine.loading.weight_source import WeightSource


class DecoderLayer:
    """Adds attention(norm(h)) and mlp(norm(h)) to the residual h, their results normed or not.

    What a layer adds last is handed to the next one, whose first norm adds it on its way.
    """

    def __init__(self, layer: int, config: ModelConfig, source: WeightSource, kernels: KernelSet):
        prefix = f"model.layers.{layer}."
        self.attention = Attention(layer, config, source, kernels)
        block = MixtureOfExperts if config.layers[layer].is_sparse else GatedMLP
        self.mlp = block(prefix + "mlp.", config, source, kernels)
        norms = [source.norm(prefix + name) if name else None for name in config.norm_names]
        self._before_attention, self._after_attention, self._before_mlp, self._after_mlp = norms
        self._eps = config.rms_norm_eps
        self._kernels = kernels

    def __call__(
        self,
        delta: torch.Tensor | None,
        residual: torch.Tensor,
        positions: torch.Tensor,
        rotary: RotaryTable,
        cache: tuple[KVEntries, KVEntries],
        metadata: AttentionMetadata,
    ) -> torch.Tensor:
        """What is still to be added to `residual` [T, hidden], which gets `delta` and attention."""
        self._kernels.clock.begin(Stage.ATTENTION)
        x = self._enter(delta, residual, self._before_attention)
        x = self.attention(x, positions, rotary, cache, metadata)
        x = self._leave(x, self._after_attention)
        self._kernels.clock.begin(Stage.FFN)
        x = self._enter(x, residual, self._before_mlp)
        return self._leave(self.mlp(x), self._after_mlp)

    @property
    def linears(self) -> tuple[Linear, ...]:
        """Every weight matrix that one token passes."""
        return (self.attention.qkv, self.attention.output, *self.mlp.linears)

    def _enter(
        self, delta: torch.Tensor | None, residual: torch.Tensor, norm: torch.Tensor | None
    ) -> torch.Tensor:
        """Add `delta` to the residual; what the block reads is the sum, normed where it is."""
        if delta is None:
            return residual if norm is None else self._kernels.rms_norm(residual, norm, self._eps)
        if norm is None:
            return self._kernels.add(delta, residual)
        return self._kernels.fused_add_rms_norm(delta, residual, norm, self._eps)

    def _leave(self, x: torch.Tensor, norm: torch.Tensor | None) -> torch.Tensor:
        return x if norm is None else self._kernels.rms_norm(x, norm, self._eps)
