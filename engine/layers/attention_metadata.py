"""What attention needs to know about the tokens of one forward pass, besides the tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.reference import PrefillSpan


@dataclass(frozen=True, slots=True)
class PrefillMetadata:
    """Spans of one or more sequences for one cache group; `slot_mapping`, `tails` int64 [T].

    `tails`, the numbers of the sequences' tails, matter to keys that are kept by channel.
    """

    slot_mapping: torch.Tensor
    spans: tuple[PrefillSpan, ...]
    tails: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class DecodeMetadata:
    """One token of each of B sequences for one cache group.

    slot_mapping, context_lens, tails int64 [B]; block_tables int64 [B, blocks].
    """

    slot_mapping: torch.Tensor
    block_tables: torch.Tensor
    context_lens: torch.Tensor
    tails: torch.Tensor | None = None


AttentionMetadata = PrefillMetadata | DecodeMetadata
