"""Distributions that transformers' logits processors leave to sample from.

Order, as in `generate`: repetition penalty, temperature, top-k, top-p, min-p.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from make_common import library_versions
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

VOCAB = 512
HISTORY = 24


class Case(NamedTuple):
    """One setting; each field's default means off."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


CASES = [
    Case(),
    Case(temperature=0.7),
    Case(temperature=2.5),
    Case(top_k=1),
    Case(top_k=40),
    Case(top_k=VOCAB + 100),
    Case(top_p=0.05),
    Case(top_p=0.9),
    Case(min_p=0.1),
    Case(min_p=0.02, temperature=1.5),
    Case(repetition_penalty=1.3),
    Case(repetition_penalty=0.8),
    Case(temperature=0.2, top_p=0.9),
    Case(temperature=0.6, top_k=20, top_p=0.95),
    Case(temperature=0.8, top_k=50, top_p=0.95, min_p=0.05, repetition_penalty=1.1),
    Case(temperature=1.8, top_k=200, top_p=0.7, repetition_penalty=1.5),
]


def write_sampler(out: Path) -> None:
    """Write `sampler.npz`."""
    logits, history = _rows()
    probabilities = [_processors(case)(history, logits).softmax(-1) for case in CASES]
    columns = {name: np.array([getattr(case, name) for case in CASES]) for name in Case._fields}
    file = out / "sampler.npz"
    np.savez_compressed(
        file,
        versions=np.array(json.dumps(library_versions())),
        logits=logits.numpy(),
        history=history.numpy(),
        probabilities=torch.stack(probabilities).numpy(),
        **columns,
    )
    print(
        f"  {file.name}: {len(CASES)} settings x {len(logits)} rows, {file.stat().st_size:,} bytes"
    )


def _rows() -> tuple[torch.Tensor, torch.Tensor]:
    """Logits flat, ordinary, peaked and all negative; a history with repeats, no padding."""
    generator = torch.Generator().manual_seed(20240601)
    noise = torch.randn(4, VOCAB, generator=generator)
    logits = noise * torch.tensor([0.5, 2.0, 6.0, 2.0])[:, None]
    logits[3] -= 40.0
    history = torch.randint(0, VOCAB, (4, HISTORY), generator=generator)
    history[:, :4] = logits.topk(4, dim=-1).indices
    history[:, 4:8] = history[:, :4]
    return logits, history


def _processors(case: Case) -> LogitsProcessorList:
    processors = LogitsProcessorList()
    if case.repetition_penalty != 1.0:
        processors.append(RepetitionPenaltyLogitsProcessor(case.repetition_penalty))
    if case.temperature != 1.0:
        processors.append(TemperatureLogitsWarper(case.temperature))
    if case.top_k:
        processors.append(TopKLogitsWarper(case.top_k))
    if case.top_p < 1.0:
        processors.append(TopPLogitsWarper(case.top_p))
    if case.min_p:
        processors.append(MinPLogitsWarper(case.min_p))
    return processors
