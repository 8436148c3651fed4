"""Attention over the paged cache: projections, norms of q and k, RoPE and store, output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engine.layers.attention_metadata import AttentionMetadata, PrefillMetadata
from engine.layers.rotary import RotaryTable
from engine.loading.model_config import ModelConfig
from kernels.kv_entries import KVEntries
from kernels.select import KernelSet

if TYPE_CHECKING:
    from engine.loading.weight_source import WeightSource


class Attention:
    """q, k, v in one product, RoPE and KV store in one operation, paged attention, output."""

    def __init__(self, layer: int, config: ModelConfig, source: WeightSource, kernels: KernelSet):
        prefix = f"model.layers.{layer}.self_attn."
        names = ("qkv_proj",) if config.fused_projections else ("q_proj", "k_proj", "v_proj")
        self.qkv = source.linear([prefix + name for name in names])
        self.output = source.linear([prefix + "o_proj"])
        self._norms: tuple[torch.Tensor, torch.Tensor] | None = None
        if config.qk_norm is not None:
            self._norms = (source.norm(prefix + "q_norm"), source.norm(prefix + "k_norm"))
        self._window = config.layers[layer].window or 0
        self._config = config
        self._scale = config.attention_scale or config.head_dim**-0.5
        self._kernels = kernels

    def __call__(
        self,
        x: torch.Tensor,
        positions: torch.Tensor,
        rotary: RotaryTable,
        cache: tuple[KVEntries, KVEntries],
        metadata: AttentionMetadata,
    ) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]; writes the tokens' keys and values into the cache."""
        config = self._config
        heads = self.qkv(x).view(x.shape[0], -1, config.head_dim)
        q, k, v = heads.split((config.num_heads, config.num_kv_heads, config.num_kv_heads), dim=1)
        if self._norms is not None:
            q, k = self._norm(q, self._norms[0]), self._norm(k, self._norms[1])
        k_cache, v_cache = cache
        q = self._kernels.rope_and_store_kv(
            q,
            k,
            v,
            positions,
            rotary.cos,
            rotary.sin,
            k_cache,
            v_cache,
            metadata.slot_mapping,
            metadata.tails,
        )
        if isinstance(metadata, PrefillMetadata):
            out = self._kernels.attention_prefill(
                q,
                k_cache,
                v_cache,
                metadata.spans,
                self._scale,
                self._window,
                config.attention_softcap,
            )
        else:
            out = self._kernels.attention_decode(
                q,
                k_cache,
                v_cache,
                metadata.block_tables,
                metadata.context_lens,
                self._scale,
                self._window,
                config.attention_softcap,
                metadata.tails,
            )
        return self.output(out.reshape(x.shape[0], -1))

    def _norm(self, heads: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """heads [T, H, D], each normed by itself or all of a token together."""
        rows = heads.flatten(1) if self._config.qk_norm == "all_heads" else heads
        return self._kernels.rms_norm(rows, weight, self._config.rms_norm_eps).view(heads.shape)
