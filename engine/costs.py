"""FLOPs and bytes of a step, from sizes alone: the numerators of MFU and MBU (docs/metrics.md)."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import KVGroupSize
from engine.scheduler import ScheduledStep


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """Sizes that decide what a token costs; parameters without biases and norms."""

    layer_parameters: int  # all matrices of all layers
    head_parameters: int  # the output projection
    layer_bytes: int  # as stored, scales included
    head_bytes: int
    num_heads: int
    head_dim: int
    kv_groups: tuple[tuple[int, KVGroupSize], ...]  # layers of each group, and what they keep

    def step(self, step: ScheduledStep) -> tuple[int, int]:
        """(FLOPs, bytes) of a step that is about to run.

        FLOPs: 2 x parameters x tokens, the head only where logits are computed, and attention
        4 x layers x heads x head_dim x keys seen per token. Bytes: the weights once per
        sub-batch, the KV cache read (once a sequence and sub-batch) and written. Of a mixture of
        experts what one token uses is counted, also where several tokens use more of it.
        """
        spans = [(len(sequence.token_ids) - 1, 1) for sequence in step.decode]
        spans += [(c.sequence.num_computed_tokens, c.num_tokens) for c in step.prefill]
        num_logits = len(step.decode) + sum(chunk.is_last for chunk in step.prefill)
        flops = 2 * self.layer_parameters * step.num_tokens + 2 * self.head_parameters * num_logits
        passes = bool(step.decode) + bool(step.prefill)
        num_bytes = passes * self.layer_bytes + self.head_bytes * (num_logits > 0)
        for num_layers, group in self.kv_groups:
            attended = sum(_token_pairs(start, count, group.window) for start, count in spans)
            flops += 4 * num_layers * self.num_heads * self.head_dim * attended
            read_tokens = sum(_tokens_seen(start, count, group.window) for start, count in spans)
            num_bytes += (read_tokens + step.num_tokens) * group.bytes_per_token
        return flops, num_bytes


def _token_pairs(start: int, count: int, window: int | None) -> int:
    """Keys that the queries at start .. start + count - 1 see, added up."""
    whole = count if window is None else min(max(window - start, 0), count)
    return whole * start + whole * (whole + 1) // 2 + (count - whole) * (window or 0)


def _tokens_seen(start: int, count: int, window: int | None) -> int:
    """Different keys that these queries see."""
    return start + count if window is None else min(start, window - 1) + count
