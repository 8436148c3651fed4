"""Strided perplexity of a tiny checkpoint, by the loop of transformers' own documentation.

The loop is that of "Perplexity of fixed-length models" (docs/source/en/perplexity.md); each
window's mean loss is weighted by the number of labels that entered it, so that the sum is exact.
"""

from __future__ import annotations

from pathlib import Path

import torch
from make_common import library_versions, write_rows
from transformers import LlamaForCausalLM

CASE = "gqa"
NUM_TOKENS = 300
SETTINGS = ((64, 64), (64, 32), (100, 7), (256, 200), (256, 256))  # window, stride


def write_perplexity(out: Path) -> None:
    """Write perplexity.json from the tiny checkpoint in `out`."""
    model = LlamaForCausalLM.from_pretrained(out / "tiny" / CASE, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(0, 256, (1, NUM_TOKENS), generator=generator)
    rows = []
    for window, stride in SETTINGS:
        total, count = strided_nll(model, ids, window, stride)
        rows.append({"window": window, "stride": stride, "scored": count, "nll": total / count})
    header = {"versions": library_versions(), "case": CASE, "ids": ids[0].tolist()}
    write_rows(out / "perplexity.json", header, "rows", rows)


@torch.inference_mode()
def strided_nll(
    model: LlamaForCausalLM, ids: torch.Tensor, window: int, stride: int
) -> tuple[float, int]:
    """Sum of negative log-likelihoods in nats and how many tokens it is over; ids [1, n]."""
    total, count, previous_end = 0.0, 0, 0
    for begin in range(0, ids.shape[1], stride):
        end = min(begin + window, ids.shape[1])
        target_length = end - previous_end
        input_ids = ids[:, begin:end]
        labels = input_ids.clone()
        labels[:, :-target_length] = -100
        valid = int((labels[:, 1:] != -100).sum())  # the loss shifts labels by one
        if valid:
            total += float(model(input_ids, labels=labels).loss.double()) * valid
            count += valid
        previous_end = end
        if end == ids.shape[1]:
            break
    return total, count
