"""The Llama architecture: RMSNorm, grouped-query attention with RoPE, gated feed-forward.

Covers Llama 2 and 3.x and models of the same shape (SmolLM2, TinyLlama ...), with explicit
head_dim and optional biases. Tensor names are those of Hugging Face checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from engine.kv_cache import KVCache, KVCacheGroup, KVCacheSpec
from engine.layers.attention_metadata import AttentionMetadata, PrefillMetadata
from engine.layers.linear import Linear
from engine.layers.rotary import RotaryTable
from engine.loading.model_config import ModelConfig
from kernels.recording import CancelCell
from kernels.select import KernelSet
from kernels.stages import Stage
from kernels.weights import KernelWeight

if TYPE_CHECKING:
    from engine.loading.weight_source import WeightSource


class StepAborted(Exception):
    """A forward pass was left between two layers because a request in it was cancelled."""


class Attention:
    """q, k, v in one product, RoPE and KV store in one operation, paged attention, output."""

    def __init__(self, layer: int, config: ModelConfig, source: WeightSource, kernels: KernelSet):
        prefix = f"model.layers.{layer}.self_attn."
        self.qkv = source.linear([prefix + name for name in ("q_proj", "k_proj", "v_proj")])
        self.output = source.linear([prefix + "o_proj"])
        self.num_heads = config.num_heads
        self.num_kv_heads = config.num_kv_heads
        self.head_dim = config.head_dim
        self.scale = config.head_dim**-0.5
        self._kernels = kernels

    def __call__(
        self,
        x: torch.Tensor,
        positions: torch.Tensor,
        rotary: RotaryTable,
        cache: tuple[torch.Tensor, torch.Tensor],
        metadata: AttentionMetadata,
    ) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]; writes the tokens' keys and values into the cache."""
        heads = self.qkv(x).view(x.shape[0], -1, self.head_dim)
        q, k, v = heads.split((self.num_heads, self.num_kv_heads, self.num_kv_heads), dim=1)
        k_cache, v_cache = cache
        q = self._kernels.rope_and_store_kv(
            q, k, v, positions, rotary.cos, rotary.sin, k_cache, v_cache, metadata.slot_mapping
        )
        if isinstance(metadata, PrefillMetadata):
            out = self._kernels.attention_prefill(q, k_cache, v_cache, metadata.spans, self.scale)
        else:
            out = self._kernels.attention_decode(
                q,
                k_cache,
                v_cache,
                metadata.block_tables,
                metadata.context_lens,
                self.scale,
            )
        return self.output(out.reshape(x.shape[0], -1))


class GatedMLP:
    """down(silu(gate(x)) * up(x)), gate and up in one product."""

    def __init__(self, layer: int, source: WeightSource, kernels: KernelSet):
        prefix = f"model.layers.{layer}.mlp."
        self.gate_up = source.linear([prefix + "gate_proj", prefix + "up_proj"])
        self.down = source.linear([prefix + "down_proj"])
        self._kernels = kernels

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        return self.down(self._kernels.silu_and_mul(self.gate_up(x)))


class DecoderLayer:
    """Attention and feed-forward, each behind a norm that also adds the previous result."""

    def __init__(self, layer: int, config: ModelConfig, source: WeightSource, kernels: KernelSet):
        prefix = f"model.layers.{layer}."
        self.input_norm = source.vector(prefix + "input_layernorm.weight")
        self.attention = Attention(layer, config, source, kernels)
        self.post_attention_norm = source.vector(prefix + "post_attention_layernorm.weight")
        self.mlp = GatedMLP(layer, source, kernels)

    @property
    def linears(self) -> tuple[Linear, ...]:
        """Every weight matrix of the layer."""
        return (self.attention.qkv, self.attention.output, self.mlp.gate_up, self.mlp.down)


class LlamaModel:
    """Weights and the forward pass. Knows nothing of sequences, scheduling or sampling."""

    def __init__(self, config: ModelConfig, kernels: KernelSet, device: torch.device) -> None:
        self.config = config
        self.kernels = kernels
        self.device = device
        self.layers: list[DecoderLayer] = []

    @staticmethod
    def kv_cache_groups(config: ModelConfig, dtype: torch.dtype) -> tuple[KVCacheGroup, ...]:
        """What the layers keep: all of them every token, hence one group."""
        spec = KVCacheSpec(config.num_kv_heads, config.head_dim, dtype)
        return (KVCacheGroup(spec, tuple(range(config.num_layers))),)

    def load(self, source: WeightSource, context_length: int) -> Iterator[None]:
        """Read all weights, yielding after each part so that the caller can report and stop."""
        config = self.config
        self.embedding: KernelWeight = source.embedding("model.embed_tokens.weight")
        yield
        for index in range(config.num_layers):
            self.layers.append(DecoderLayer(index, config, source, self.kernels))
            yield
        self.final_norm = source.vector("model.norm.weight")
        if config.tie_word_embeddings:
            self.head = Linear([self.embedding], [None], self.kernels)
        else:
            self.head = source.head("lm_head")
        yield
        self.rotary = RotaryTable(
            config.head_dim,
            config.rope_theta,
            config.rope_scaling,
            context_length,
            self.device,
        )

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
        kernels, eps = self.kernels, self.config.rms_norm_eps
        kernels.clock.begin(Stage.ATTENTION)
        residual = kernels.embedding(ids, self.embedding, kernels.activation_dtype)
        delta: torch.Tensor | None = None
        for index, layer in enumerate(self.layers):
            if cancel:
                raise StepAborted
            kernels.clock.begin(Stage.ATTENTION)
            if delta is None:
                x = kernels.rms_norm(residual, layer.input_norm, eps)
            else:
                x = kernels.fused_add_rms_norm(delta, residual, layer.input_norm, eps)
            x = layer.attention(x, positions, self.rotary, cache.layer(index), metadata[0])
            kernels.clock.begin(Stage.FFN)
            x = kernels.fused_add_rms_norm(x, residual, layer.post_attention_norm, eps)
            delta = layer.mlp(x)
        kernels.clock.begin(Stage.HEAD)
        return kernels.fused_add_rms_norm(delta, residual, self.final_norm, eps)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """FP32 logits [rows, vocab] of hidden states [rows, hidden]."""
        self.kernels.clock.begin(Stage.HEAD)
        return self.head(hidden).float()
