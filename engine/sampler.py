"""Logits to token ids. Rows may be several positions of one sequence; text is unknown here.

Order of the steps as in Hugging Face: penalties, temperature, top-k, top-p, min-p. The random
number of a row depends on (seed, position) alone, so a request samples the same tokens whatever
else runs beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from engine.config import SamplingParams

# With no top-k, look this far down the ranking first: a full sort of a large vocabulary costs
# more than the rest of the step, and top-p or min-p rarely keep more.
_FIRST_LOOK = 256
_MASK = (1 << 64) - 1


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


class Ranking(NamedTuple):
    """TopK on the host, of several rows or of one: so few numbers cost torch's calls more.

    `log_sum` is None where it was not computed.
    """

    values: np.ndarray
    ids: np.ndarray
    log_sum: np.ndarray | None

    def row(self, index: int) -> Ranking:
        """One of several."""
        log_sum = None if self.log_sum is None else self.log_sum[index]
        return Ranking(self.values[index], self.ids[index], log_sum)


def ranked_logits(params: SamplingParams) -> int:
    """How many of the best logits sampling looks at where a step ranks them itself."""
    if params.temperature == 0.0 or has_penalties(params):
        return 1
    if params.top_k:
        return min(params.top_k, _FIRST_LOOK)
    return _FIRST_LOOK if params.top_p < 1.0 or params.min_p > 0.0 else 1


def sample(
    logits: torch.Tensor, rows: Sequence[SampleRow], ranked: Ranking | None = None
) -> list[int]:
    """Draw a token id for each row of FP32 logits [>= rows, vocab]; the logits may be changed.

    `ranked` are their best, by which rows without penalties are spared a look at the others.
    """
    ids = []
    for index, row in enumerate(rows):
        best = None
        if has_penalties(row.params):
            apply_penalties(logits[index], row)
        elif ranked is not None:
            best = ranked.row(index)
        ids.append(_draw(logits[index], row, best))
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
    logits: torch.Tensor, params: SamplingParams, best: Ranking | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Ids and probabilities (float64), most likely first, of what temperature and filters leave.

    logits FP32 [vocab] after penalties; temperature must be above 0. `best` is used where it
    reaches far enough.
    """
    if params.top_k:
        count = min(params.top_k, logits.shape[-1])
        if best is None or len(best.values) < count:
            best = _rank(logits, count)
        ids, probs = best.ids[:count], _softmax(best.values[:count], params.temperature)
    elif params.top_p == 1.0 and params.min_p == 0.0:
        # Nothing is cut off, so the order does not matter.
        probs = _softmax(logits.cpu().numpy(), params.temperature)
        ids = np.arange(len(probs))
    else:
        ids, probs = _likely(logits, params, best)
    keep = np.ones(len(probs), dtype=bool)
    if params.top_p < 1.0:
        keep &= probs.cumsum() - probs < params.top_p
    if params.min_p > 0.0:
        keep &= probs >= params.min_p * probs[0]
    probs = np.where(keep, probs, 0.0)
    return ids, probs / probs.sum()


def uniform(seed: int, position: int) -> float:
    """The random number in [0, 1) of a position: SplitMix64 (Steele et al. 2014) of both."""
    mixed = _mix(_mix(seed) + position)
    return (mixed >> 11) * 2.0**-53


def _mix(value: int) -> int:
    """SplitMix64's output for a state: 64 bits of which each depends on all of `value`."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _softmax(values: np.ndarray, temperature: float) -> np.ndarray:
    # The maximum is taken off first: a tiny temperature then yields 0, never nan.
    weights: np.ndarray = np.exp((values - values.max()).astype(np.float64) / temperature)
    weights /= weights.sum()
    return weights


def _rank(logits: torch.Tensor, count: int) -> Ranking:
    values, ids = logits.topk(count)
    return Ranking(values.cpu().numpy(), ids.cpu().numpy(), None)


def _likely(
    logits: torch.Tensor, params: SamplingParams, best: Ranking | None
) -> tuple[np.ndarray, np.ndarray]:
    """Ids and softmax probabilities in descending order, as far down as the filters can look."""
    vocab = logits.shape[-1]
    if best is None:
        best = _rank(logits, min(_FIRST_LOOK, vocab))
    log_sum = best.log_sum
    if log_sum is None:
        log_sum = ((logits - logits.max()) / params.temperature).logsumexp(-1).cpu().numpy()
    probs = _probabilities(best, params.temperature, log_sum)
    enough = probs.sum() >= params.top_p or probs[-1] < params.min_p * probs[0]
    if not enough and vocab > len(best.values):
        best = _rank(logits, vocab)
        probs = _probabilities(best, params.temperature, log_sum)
    return best.ids, probs


def _probabilities(best: Ranking, temperature: float, log_sum: np.ndarray) -> np.ndarray:
    logits = (best.values - best.values[0]).astype(np.float64)
    probs: np.ndarray = np.exp(logits / temperature - log_sum)
    return probs


def _draw(logits: torch.Tensor, row: SampleRow, best: Ranking | None) -> int:
    if row.params.temperature == 0.0:
        return int(logits.argmax() if best is None else best.ids[0])
    ids, probs = candidates(logits, row.params, best)
    cumulative = probs.cumsum()
    target = uniform(row.seed, row.position) * cumulative[-1]
    index = int(np.searchsorted(cumulative, target, side="right"))
    return int(ids[min(index, len(ids) - 1)])
