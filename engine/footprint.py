"""What a model takes in memory as any config, and what fits: arithmetic on sizes. No torch.

The loader, the list of models and the planner all ask here, so that their figures are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from engine.config import (
    DEFAULT_CONTEXT_LENGTH,
    EngineConfig,
    KVGroupSize,
    MemoryEstimate,
    kv_bytes,
    kv_pool_bytes,
)

# Contexts that are offered, besides the model's own.
CONTEXT_CHOICES = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)


@dataclass(frozen=True, slots=True)
class Workspace:
    """Scratch of a step, in bytes: what is always there, and what grows with the config."""

    fixed_bytes: int = 0
    bytes_per_batched_token: int = 0  # of the step's token budget
    bytes_per_context_token: int = 0
    bytes_per_sequence: int = 0

    def bytes(self, config: EngineConfig, context: int) -> int:
        """All of it, a mask of one byte for each pair of batched and context token included."""
        chunk = config.max_num_batched_tokens
        return (
            self.fixed_bytes
            + chunk * self.bytes_per_batched_token
            + context * (self.bytes_per_context_token + chunk)
            + config.max_num_seqs * self.bytes_per_sequence
        )


@dataclass(frozen=True, slots=True)
class Footprint:
    """A model's sizes in every format.

    `context_length` is what the model was made for; `weight_bytes`, scales included, is by weight
    format, `kv_groups` by KV format. `workspace` None: no engine of ours runs the model.
    """

    context_length: int
    weight_bytes: Mapping[str, int]
    kv_groups: Mapping[str, tuple[KVGroupSize, ...]]
    workspace: Workspace | None

    def workspace_bytes(self, config: EngineConfig, context: int) -> int:
        """Scratch of a step."""
        return self.workspace.bytes(config, context) if self.workspace else 0

    def pool_bytes(self, config: EngineConfig, kv_format: str, context: int) -> int:
        """The KV pool that a load reserves: `kv_pool_tokens`, else one context."""
        groups = self.kv_groups[kv_format]
        return kv_pool_bytes(groups, config, config.kv_pool_tokens or context)

    def required_bytes(self, config: EngineConfig, kv_format: str, context: int) -> int:
        """Weights, KV pool and workspace together; the formats named here count, not "auto"."""
        return (
            self.weight_bytes[config.weight_format]
            + self.pool_bytes(config, kv_format, context)
            + self.workspace_bytes(config, context)
        )


def resolve_kv_format(weight_format: str, kv_format: str) -> str:
    """ "auto" is FP32 under FP32 weights, BF16 otherwise."""
    if kv_format == "auto":
        return "fp32" if weight_format == "fp32" else "bf16"
    return kv_format


def estimate(
    footprint: Footprint, config: EngineConfig, available_bytes: int, freed_by_unload: int
) -> MemoryEstimate:
    """What loading `config` takes and what would fit."""
    budget = available_bytes + freed_by_unload
    kv_format = resolve_kv_format(config.weight_format, config.kv_format)
    context = config.context_length or default_context(footprint, config, kv_format, budget)
    contexts = [
        each
        for each in _choices(footprint.context_length)
        if footprint.required_bytes(config, kv_format, each) <= budget
    ]
    formats = [
        each
        for each in footprint.weight_bytes
        if footprint.required_bytes(
            replace(config, weight_format=each), resolve_kv_format(each, config.kv_format), context
        )
        <= budget
    ]
    return MemoryEstimate(
        weight_bytes=footprint.weight_bytes[config.weight_format],
        kv_bytes=footprint.pool_bytes(config, kv_format, context),
        workspace_bytes=footprint.workspace_bytes(config, context),
        freed_by_unload_bytes=freed_by_unload,
        available_bytes=available_bytes,
        context_length=context,
        kv_bytes_per_token=kv_bytes(footprint.kv_groups[kv_format], 1),
        fitting_contexts=tuple(sorted(contexts, reverse=True)),
        fitting_weight_formats=tuple(formats),
    )


def default_context(footprint: Footprint, config: EngineConfig, kv_format: str, budget: int) -> int:
    """The smallest of 4,096, the model's own context and what fits."""
    wanted = min(DEFAULT_CONTEXT_LENGTH, footprint.context_length)
    fitting = [
        each
        for each in _choices(wanted)
        if footprint.required_bytes(config, kv_format, each) <= budget
    ]
    return max(fitting, default=min(wanted, CONTEXT_CHOICES[0]))


def longest_context(
    footprint: Footprint, config: EngineConfig, kv_format: str, budget: int
) -> int | None:
    """The longest context, to the token, up to the model's own that fits; None where none does."""

    def fits(context: int) -> bool:
        return footprint.required_bytes(config, kv_format, context) <= budget

    return _largest(fits, footprint.context_length) or None


def most_sequences(
    footprint: Footprint, config: EngineConfig, kv_format: str, context: int, budget: int
) -> int:
    """How many sequences of `context` tokens fit at once, each in whole blocks of its own."""
    blocks = -(-context // config.block_size)

    def fits(count: int) -> bool:
        num_seqs = max(count, config.max_num_seqs)
        together = replace(
            config,
            max_num_seqs=num_seqs,
            max_num_batched_tokens=max(num_seqs + config.block_size, config.max_num_batched_tokens),
            kv_pool_tokens=count * blocks * config.block_size,
        )
        return footprint.required_bytes(together, kv_format, context) <= budget

    return _largest(fits, budget // kv_bytes(footprint.kv_groups[kv_format], 1))


def _choices(longest: int) -> list[int]:
    return [c for c in CONTEXT_CHOICES if c < longest] + [longest]


def _largest(fits: Callable[[int], bool], limit: int) -> int:
    """The largest number up to `limit` that fits, 0 where none does; what is larger takes more."""
    low, high = 0, max(0, limit)
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
