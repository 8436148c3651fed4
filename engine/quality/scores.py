"""Sums over scored tokens: negative log-likelihood, KL divergence, agreement of the best token."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from engine.session import EngineError


@dataclass(slots=True)
class LikelihoodSum:
    """The negative log-likelihood, in nats, of the tokens of a text."""

    ids: list[int]
    total: float = 0.0
    count: int = 0

    def add(self, positions: list[int], log_probs: torch.Tensor) -> None:
        """Score the tokens at `positions` under log-probabilities FP32 [n, vocab]."""
        targets = torch.tensor([self.ids[p] for p in positions], device=log_probs.device)
        chosen = log_probs.gather(1, targets[:, None])
        self.total -= float(chosen.double().sum())
        self.count += len(positions)

    @property
    def mean(self) -> float:
        """Nats a token."""
        return self.total / self.count

    @property
    def perplexity(self) -> float:
        """exp of the mean; infinite where that overflows."""
        try:
            return math.exp(self.mean)
        except OverflowError:
            return math.inf


@dataclass(slots=True)
class DivergenceSum:
    """KL divergence (reference || this), in nats, and how often both put the same token first."""

    total: float = 0.0
    agreements: int = 0
    count: int = 0

    def add(self, reference: torch.Tensor, log_probs: torch.Tensor) -> None:
        """Compare log-probabilities FP32 [n, vocab] of both."""
        terms = reference.exp() * (reference - log_probs)
        self.total += float(terms.sum(dtype=torch.float64))
        self.agreements += int((reference.argmax(-1) == log_probs.argmax(-1)).sum())
        self.count += reference.shape[0]

    @property
    def mean(self) -> float:
        """Nats a token."""
        return self.total / self.count

    @property
    def agreement(self) -> float:
        """Share of tokens at which both put the same one first, 0 to 1."""
        return self.agreements / self.count


class ReferenceStore:
    """Log-probabilities of a reference run, FP32 on disk: two models need not fit in memory.

    A row a position of the text. Rows that were not written take no space.
    """

    def __init__(self, path: Path, num_tokens: int, vocab_size: int) -> None:
        self._rows = np.memmap(path, np.float32, "w+", shape=(num_tokens, vocab_size))

    def put(self, positions: list[int], log_probs: torch.Tensor) -> None:
        """Keep rows."""
        self._rows[positions] = log_probs.cpu().numpy()

    def get(self, positions: list[int], device: torch.device) -> torch.Tensor:
        """The rows [n, vocab] at `positions`."""
        return torch.from_numpy(self._rows[positions]).to(device)


@contextmanager
def reference_store(num_tokens: int, vocab_size: int) -> Iterator[ReferenceStore]:
    """A store in a temporary folder that goes with it. Raises EngineError without disk space."""
    with tempfile.TemporaryDirectory(prefix="phasescope-", ignore_cleanup_errors=True) as folder:
        needed, free = 4 * num_tokens * vocab_size, shutil.disk_usage(folder).free
        if needed > free:
            raise EngineError(
                f"The reference's probabilities need {needed / 1e9:.1f} GB of disk.",
                f"{tempfile.gettempdir()} has {free / 1e9:.1f} GB left.",
                "Name a shorter --text, or set TMPDIR to a disk with more space.",
            )
        yield ReferenceStore(Path(folder) / "log-probs", num_tokens, vocab_size)
