"""Logits to token ids. Rows may be several positions of one sequence; text is unknown here.

Order of the steps as in Hugging Face: penalties, temperature, top-k, top-p, min-p. The random
number of a row depends on (seed, position) alone, so a request samples the same tokens whatever
else runs beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.config import SamplingParams

# With no top-k, look this far down the ranking first: a full sort of a large vocabulary costs
# more than the rest of the step, and top-p or min-p rarely keep more.
_FIRST_LOOK = 256


@dataclass(frozen=True, slots=True)
class SampleRow:
    """How one row of logits is sampled: `position` is the index of the token to be drawn.

    `context` are the ids before it, `num_prompt_tokens` of them the prompt.
    """

    params: SamplingParams
    seed: int
    position: int
    context: Sequence[int]
    num_prompt_tokens: int


def sample(logits: torch.Tensor, rows: Sequence[SampleRow]) -> list[int]:
    """Draw a token id for each row of FP32 logits [rows, vocab]; the logits may be changed."""
    for row_logits, row in zip(logits, rows, strict=True):
        apply_penalties(row_logits, row)
    if all(row.params.temperature == 0.0 for row in rows):
        greedy: list[int] = logits.argmax(-1).tolist()
        return greedy
    return [_sample_row(x, row) for x, row in zip(logits, rows, strict=True)]


def apply_penalties(logits: torch.Tensor, row: SampleRow) -> None:
    """Repetition (prompt and answer), presence and frequency penalty (answer only), in place."""
    params = row.params
    if params.repetition_penalty != 1.0 and row.context:
        seen = torch.tensor(sorted(set(row.context)), device=logits.device)
        values = logits[seen]
        penalty = params.repetition_penalty
        logits[seen] = torch.where(values > 0, values / penalty, values * penalty)
    answer = row.context[row.num_prompt_tokens :]
    if (params.presence_penalty or params.frequency_penalty) and answer:
        ids, counts = torch.tensor(answer, device=logits.device).unique(return_counts=True)
        logits[ids] -= params.presence_penalty + params.frequency_penalty * counts


def candidates(logits: torch.Tensor, params: SamplingParams) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and probabilities, most likely first, of what temperature and filters leave.

    logits FP32 [vocab] after penalties; temperature must be above 0.
    """
    # The maximum is taken off first: a tiny temperature then yields -inf, never nan.
    scaled = (logits - logits.max()) / params.temperature
    vocab = scaled.shape[-1]
    if params.top_k:
        values, ids = scaled.topk(min(params.top_k, vocab))
        probs = values.softmax(-1)
    else:
        probs, ids = _ranked(scaled, params)
    keep = torch.ones_like(probs, dtype=torch.bool)
    if params.top_p < 1.0:
        keep &= probs.cumsum(-1) - probs < params.top_p
    if params.min_p > 0.0:
        keep &= probs >= params.min_p * probs[0]
    probs = torch.where(keep, probs, 0.0)
    return ids, probs / probs.sum()


def uniform(seed: int, position: int) -> float:
    """The random number in [0, 1) of a position: Philox (Salmon et al. 2011) keyed by both."""
    return float(np.random.Generator(np.random.Philox(key=seed, counter=position)).random())


def _ranked(scaled: torch.Tensor, params: SamplingParams) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax probabilities and ids in descending order, as far down as the filters can look."""
    vocab = scaled.shape[-1]
    if params.top_p == 1.0 and params.min_p == 0.0:
        # Nothing is cut off, so the order does not matter.
        return scaled.softmax(-1), torch.arange(vocab, device=scaled.device)
    total = scaled.logsumexp(-1)
    values, ids = scaled.topk(min(_FIRST_LOOK, vocab))
    probs = (values - total).exp()
    enough = probs.sum() >= params.top_p or bool(probs[-1] < params.min_p * probs[0])
    if not enough and vocab > _FIRST_LOOK:
        values, ids = scaled.sort(descending=True)
        probs = (values - total).exp()
    return probs, ids


def _sample_row(logits: torch.Tensor, row: SampleRow) -> int:
    if row.params.temperature == 0.0:
        return int(logits.argmax())
    ids, probs = candidates(logits, row.params)
    cumulative = probs.double().cumsum(-1)
    target = uniform(row.seed, row.position) * float(cumulative[-1])
    index = int(torch.searchsorted(cumulative, target, right=True))
    return int(ids[min(index, len(ids) - 1)])
