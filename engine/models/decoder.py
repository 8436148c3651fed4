"""The model that computes every family: embedding, decoder layers, norm, head.

Families differ in their `ModelConfig` alone. Tensor names are those of Hugging Face checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from engine.kv_cache import KVCache, KVCacheGroup, KVCacheSpec
from engine.layers.attention_metadata import AttentionMetadata
from engine.layers.decoder_layer import DecoderLayer
from engine.layers.linear import Linear
from engine.layers.rotary import RotaryTable
from engine.loading.model_config import ModelConfig, Rope, layers_by_window
from kernels.recording import CancelCell
from kernels.select import KernelSet
from kernels.stages import Stage
from kernels.weights import KernelWeight

if TYPE_CHECKING:
    from engine.loading.weight_source import WeightSource


class StepAborted(Exception):
    """A forward pass was left between two layers because a request in it was cancelled."""


def kv_cache_groups(config: ModelConfig, kv_format: str) -> tuple[KVCacheGroup, ...]:
    """What the layers keep: those that see equally far share a block table."""
    return tuple(
        KVCacheGroup(
            KVCacheSpec(config.num_kv_heads, config.head_dim, kv_format, window), tuple(layers)
        )
        for window, layers in layers_by_window(config).items()
    )


class DecoderModel:
    """Weights and the forward pass. Knows nothing of sequences, scheduling or sampling."""

    def __init__(self, config: ModelConfig, kernels: KernelSet, device: torch.device) -> None:
        self.config = config
        self.kernels = kernels
        self.device = device
        self.layers: list[DecoderLayer] = []

    def load(self, source: WeightSource, context_length: int) -> Iterator[None]:
        """Read all weights, yielding after each part so that the caller can report and stop."""
        config = self.config
        self.embedding: KernelWeight = source.embedding("model.embed_tokens.weight")
        yield
        for index in range(config.num_layers):
            self.layers.append(DecoderLayer(index, config, source, self.kernels))
            yield
        # The head is linear: scaling what it reads scales the logits.
        self.final_norm = source.norm("model.norm") * config.logits_scale
        if config.tie_word_embeddings:
            self.head = Linear([self.embedding], [None], self.kernels)
        else:
            self.head = source.head("lm_head")
        yield
        tables: dict[Rope | None, RotaryTable] = {}
        for layer in config.layers:
            if layer.rope not in tables:
                rotary_dim = config.rotary_dim or config.head_dim
                tables[layer.rope] = RotaryTable(
                    rotary_dim, layer.rope, context_length, self.device
                )
        self._rotary = [tables[layer.rope] for layer in config.layers]

    def typical_weights(self) -> list[KernelWeight]:
        """One of every shape and format, for kernels that want to be tuned."""
        linears = (*self.layers[0].linears, self.head)
        return [weight for linear in linears for weight, _ in linear.parts]

    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        cache: KVCache,
        metadata: tuple[AttentionMetadata, ...],
        cancel: CancelCell,
    ) -> torch.Tensor:
        """Hidden states [T, hidden] of int64 ids and positions [T] after the final norm.

        `metadata` is per cache group. Raises StepAborted between layers once `cancel` is set;
        what was stored until then is overwritten when the tokens are computed again.
        """
        kernels, config = self.kernels, self.config
        kernels.clock.begin(Stage.ATTENTION)
        residual = kernels.embedding(
            ids, self.embedding, kernels.activation_dtype, config.embedding_scale
        )
        delta: torch.Tensor | None = None
        for index, layer in enumerate(self.layers):
            if cancel:
                raise StepAborted
            delta = layer(
                delta,
                residual,
                positions,
                self._rotary[index],
                cache.layer(index),
                metadata[cache.group_of(index)],
            )
        kernels.clock.begin(Stage.HEAD)
        return kernels.fused_add_rms_norm(delta, residual, self.final_norm, config.rms_norm_eps)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """FP32 logits [rows, vocab] of hidden states [rows, hidden]."""
        self.kernels.clock.begin(Stage.HEAD)
        logits = self.head(hidden).float()
        if self.config.logits_softcap:
            logits = self.kernels.soft_cap(logits, self.config.logits_softcap)
        return logits
