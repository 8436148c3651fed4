"""FLOPs and bytes of a step, from sizes alone: the numerators of MFU and MBU (docs/metrics.md)."""

from __future__ import annotations

from dataclasses import dataclass

from engine.scheduler import ScheduledStep


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """Sizes that decide what a token costs; parameters without biases and norms."""

    layer_parameters: int  # all matrices of all layers
    head_parameters: int  # the output projection
    layer_bytes: int  # as stored, scales included
    head_bytes: int
    num_layers: int
    num_heads: int
    head_dim: int
    kv_bytes_per_token: int  # all layers

    def step(self, step: ScheduledStep) -> tuple[int, int]:
        """(FLOPs, bytes) of a step that is about to run.

        FLOPs: 2 x parameters x tokens, the head only where logits are computed, and attention
        4 x layers x heads x head_dim x context per token. Bytes: the weights once per
        sub-batch, the KV cache read (once a sequence and sub-batch) and written.
        """
        attended = 0  # token pairs
        read_tokens = 0
        for sequence in step.decode:
            attended += len(sequence.token_ids)
            read_tokens += len(sequence.token_ids)
        for chunk in step.prefill:
            start, count = chunk.sequence.num_computed_tokens, chunk.num_tokens
            attended += count * start + count * (count + 1) // 2
            read_tokens += start + count
        num_logits = len(step.decode) + sum(chunk.is_last for chunk in step.prefill)
        flops = 2 * self.layer_parameters * step.num_tokens + 2 * self.head_parameters * num_logits
        flops += 4 * self.num_layers * self.num_heads * self.head_dim * attended
        passes = bool(step.decode) + bool(step.prefill)
        num_bytes = passes * self.layer_bytes + self.head_bytes * (num_logits > 0)
        num_bytes += (read_tokens + step.num_tokens) * self.kv_bytes_per_token
        return flops, num_bytes
