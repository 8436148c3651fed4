"""What attention needs to know about the tokens of one forward pass, besides the tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.reference import PrefillSpan


@dataclass(frozen=True, slots=True)
class PrefillMetadata:
    """Spans of one or more sequences for one cache group; `slot_mapping` int64 [T]."""

    slot_mapping: torch.Tensor
    spans: tuple[PrefillSpan, ...]


@dataclass(frozen=True, slots=True)
class DecodeMetadata:
    """One token of each of B sequences for one cache group.

    slot_mapping, context_lens int64 [B]; block_tables int64 [B, blocks].
    """

    slot_mapping: torch.Tensor
    block_tables: torch.Tensor
    context_lens: torch.Tensor


AttentionMetadata = PrefillMetadata | DecodeMetadata
