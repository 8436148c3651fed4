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
from kernels.reference import TopK

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


def ranked_logits(params: SamplingParams) -> int:
    """How many of the best logits sampling looks at where a step ranks them itself."""
    if params.temperature == 0.0 or has_penalties(params):
        return 1
    if params.top_k:
        return min(params.top_k, _FIRST_LOOK)
    return _FIRST_LOOK if params.top_p < 1.0 or params.min_p > 0.0 else 1


def sample(
    logits: torch.Tensor, rows: Sequence[SampleRow], ranked: TopK | None = None
) -> list[int]:
    """Draw a token id for each row of FP32 logits [rows, vocab]; the logits may be changed.

    `ranked` are their best, by which rows without penalties are spared a look at the others.
    """
    ids = []
    for index, row in enumerate(rows):
        best = None
        if has_penalties(row.params):
            apply_penalties(logits[index], row)
        elif ranked is not None:
            best = TopK(*(part[index] for part in ranked))
        ids.append(_sample_row(logits[index], row, best))
    return ids


def has_penalties(params: SamplingParams) -> bool:
    """Whether earlier tokens change the logits."""
    penalties = params.presence_penalty or params.frequency_penalty
    return bool(penalties) or params.repetition_penalty != 1.0


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


def candidates(
    logits: torch.Tensor, params: SamplingParams, best: TopK | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and probabilities, most likely first, of what temperature and filters leave.

    logits FP32 [vocab] after penalties; temperature must be above 0. `best`, one row of TopK, is
    used where it reaches far enough.
    """
    vocab = logits.shape[-1]
    if params.top_k:
        count = min(params.top_k, vocab)
        if best is not None and len(best.values) >= count:
            values, ids = best.values[:count], best.ids[:count]
        else:
            values, ids = logits.topk(count)
        # The maximum is taken off first: a tiny temperature then yields -inf, never nan.
        probs = ((values - values[0]) / params.temperature).softmax(-1)
    elif params.top_p == 1.0 and params.min_p == 0.0:
        # Nothing is cut off, so the order does not matter.
        probs = ((logits - logits.max()) / params.temperature).softmax(-1)
        ids = torch.arange(vocab, device=logits.device)
    else:
        probs, ids = _ranked(logits, params, best)
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


def _ranked(
    logits: torch.Tensor, params: SamplingParams, best: TopK | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax probabilities and ids in descending order, as far down as the filters can look."""
    vocab = logits.shape[-1]
    values, ids = logits.topk(min(_FIRST_LOOK, vocab)) if best is None else best[:2]
    largest = values[0]
    if best is None:
        log_sum = ((logits - largest) / params.temperature).logsumexp(-1)
    else:
        log_sum = best.log_sum
    probs = ((values - largest) / params.temperature - log_sum).exp()
    enough = probs.sum() >= params.top_p or bool(probs[-1] < params.min_p * probs[0])
    if not enough and vocab > len(values):
        values, ids = logits.sort(descending=True)
        probs = ((values - largest) / params.temperature - log_sum).exp()
    return probs, ids


def _sample_row(logits: torch.Tensor, row: SampleRow, best: TopK | None) -> int:
    if row.params.temperature == 0.0:
        return int(logits.argmax() if best is None else best.ids[0])
    ids, probs = candidates(logits, row.params, best)
    cumulative = probs.double().cumsum(-1)
    target = uniform(row.seed, row.position) * float(cumulative[-1])
    index = int(torch.searchsorted(cumulative, target, right=True))
    return int(ids[min(index, len(ids) - 1)])
