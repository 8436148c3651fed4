"""One decoder layer run by itself on what the layers before it made of a text.

The engine's own model class computes it, made of one layer: its embedding table holds the hidden
states, so that "token" t is looked up as the state at t, and what its final norm is given is what
the layer puts out. Whatever a family's layers do, they do here too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch

from engine.block_manager import BlockManager, PoolSpec
from engine.config import EngineConfig, GenerationRequest
from engine.kv_cache import KVCache
from engine.loading.model_config import ModelConfig
from engine.model_runner import ModelRunner
from engine.models.decoder import DecoderModel, kv_cache_groups
from engine.quantization.observation import LAYER, InputStatistics, MemoryTensors, ObservedSource
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from kernels.recording import CancelCell
from kernels.select import KernelSet

EMBEDDING, FINAL_NORM = "model.embed_tokens.weight", "model.norm.weight"
_CHUNK = 512
_BLOCK_SIZE = 16
_CPU = torch.device("cpu")


class LayerPass:
    """A layer with the weights it is given, ready to run. `statistics` is by product's name.

    `weights` are the layer's tensors in FP32 by their name within it (`self_attn.q_proj.weight`);
    products of one input share their statistics. Kernels must be for the CPU.
    """

    def __init__(
        self,
        config: ModelConfig,
        index: int,
        weights: Mapping[str, torch.Tensor],
        kernels: KernelSet,
        cancel: CancelCell,
    ) -> None:
        self._config = config
        self._index = index
        self._weights = weights
        self._kernels = kernels
        self._cancel = cancel
        self.statistics: dict[str, InputStatistics] = {}

    def observe(self, hidden: torch.Tensor, samples: list[range]) -> Iterator[None]:
        """Run the samples, rows of the hidden states FP32 [T, hidden]; gather `statistics`.

        Yields after each sample. Raises StepAborted when `cancel` is set.
        """
        yield from self._run(hidden, samples, self.statistics, None)

    def advance(self, hidden: torch.Tensor, samples: list[range]) -> Iterator[None]:
        """Replace the samples' hidden states by what the layer makes of them, one after another.

        Yields after each sample. Raises StepAborted when `cancel` is set.
        """
        yield from self._run(hidden, samples, None, hidden)

    def _run(
        self,
        hidden: torch.Tensor,
        samples: list[range],
        statistics: dict[str, InputStatistics] | None,
        out: torch.Tensor | None,
    ) -> Iterator[None]:
        stream = _LastNormInput(self._kernels)
        context = max(len(sample) for sample in samples)
        config = _single_layer(self._config, self._index, len(hidden))
        tensors = {LAYER + name: tensor for name, tensor in self._weights.items()}
        tensors |= {EMBEDDING: hidden, FINAL_NORM: torch.ones(hidden.shape[1])}
        source = ObservedSource(MemoryTensors(config, tensors), stream.kernels, statistics)
        model = DecoderModel(config, stream.kernels, _CPU)
        for _ in model.load(source, context):
            pass
        groups = kv_cache_groups(config, "fp32")
        limits = EngineConfig(
            "", block_size=_BLOCK_SIZE, max_num_seqs=1, max_num_batched_tokens=_CHUNK
        )
        pools = [
            PoolSpec(group.size(_BLOCK_SIZE).pool_blocks(limits, context), group.spec.window)
            for group in groups
        ]
        cache = KVCache(
            groups,
            [pool.num_blocks for pool in pools],
            _BLOCK_SIZE,
            _CPU,
            max_num_seqs=1,
            max_num_batched_tokens=_CHUNK,
        )
        blocks = BlockManager(pools, _BLOCK_SIZE, prefix_caching=False)
        scheduler = Scheduler(blocks, 1, _CHUNK)
        runner = ModelRunner(model, cache, context, 1, self._cancel)
        for sample in samples:
            sequence = _sequence(sample)
            scheduler.add(sequence)
            while sequence.num_uncomputed_tokens:
                step = scheduler.schedule()
                start = sample.start + sequence.num_computed_tokens
                runner.hidden_states(step.prefill)
                if out is not None:
                    out[start : start + step.num_tokens] = stream.value
                scheduler.commit(step)
            scheduler.remove(sequence)
            yield


def _single_layer(config: ModelConfig, index: int, num_states: int) -> ModelConfig:
    """The config of a model of layer `index` alone over a vocabulary of hidden states."""
    return replace(
        config,
        layers=(config.layers[index],),
        vocab_size=num_states,
        embedding_scale=1.0,
        tie_word_embeddings=True,
    )


def _sequence(sample: range) -> Sequence:
    request = GenerationRequest("calibration", prompt_ids=tuple(sample))
    return Sequence(request, list(sample), max_tokens=1, seed=0, t_send_ns=0, started_at="")


class _LastNormInput:
    """`kernels` with norms that keep what the last one was given: the residual stream."""

    def __init__(self, kernels: KernelSet) -> None:
        self._plain = kernels
        self.value = torch.empty(0)
        self.kernels = replace(
            kernels, rms_norm=self._rms_norm, fused_add_rms_norm=self._fused_add_rms_norm
        )

    def _rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        self.value = x
        return self._plain.rms_norm(x, weight, eps)

    def _fused_add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> torch.Tensor:
        out = self._plain.fused_add_rms_norm(x, residual, weight, eps)
        self.value = residual  # the sum is in it now
        return out
