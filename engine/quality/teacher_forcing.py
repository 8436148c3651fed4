"""Logits of given texts, position by position, through either path of the engine.

Windows are sequences like any other: the scheduler hands out their blocks and the runner computes
them, so that what is measured is what answers are made with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from engine.config import GenerationRequest
from engine.model_runner import ModelRunner
from engine.quality.windows import Window
from engine.scheduler import PrefillChunk, Scheduler
from engine.sequence import Sequence

# Logits made at a time, in elements: a window of a large vocabulary would take gigabytes.
_MAX_LOGITS = 2**24


@dataclass(frozen=True, slots=True)
class Forcing:
    """The parts of a loaded model that compute. The cache must hold the windows in progress."""

    runner: ModelRunner
    scheduler: Scheduler
    vocab_size: int


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """FP32 logits [n, vocab] that predict the tokens at `positions` of the text, n of them.

    The logits may be overwritten once the next rows are asked for.
    """

    positions: list[int]
    logits: torch.Tensor


def prefill_rows(model: Forcing, ids: list[int], windows: list[Window]) -> Iterator[ScoredRows]:
    """Every scored token of the windows through the dense path, chunk by chunk."""
    for window in windows:
        sequence = _sequence(ids[window.begin : window.end - 1])  # the last token predicts none
        model.scheduler.add(sequence)
        while sequence.num_uncomputed_tokens:
            step = model.scheduler.schedule()
            [chunk] = step.prefill
            start = window.begin + sequence.num_computed_tokens
            yield from _chunk_rows(model, chunk, start, window.first_scored)
            model.scheduler.commit(step)
        model.scheduler.remove(sequence)


def decode_rows(
    model: Forcing, ids: list[int], windows: list[Window], max_num_seqs: int
) -> Iterator[ScoredRows]:
    """Every scored token of the windows through the recorded decode step, a token a step.

    Up to `max_num_seqs` windows go side by side, for which the cache must have room.
    """
    waiting = list(reversed(windows))
    running: list[tuple[Window, Sequence]] = []
    while waiting or running:
        while waiting and len(running) < max_num_seqs:
            window = waiting.pop()
            sequence = _sequence([ids[window.begin]])
            model.scheduler.add(sequence)
            running.append((window, sequence))
        step = model.scheduler.schedule()
        assert len(step.sequences) == len(running), "the cache has no room for the windows"
        logits = model.runner.decode_logits([sequence for _, sequence in running])
        positions = [window.begin + len(sequence.token_ids) for window, sequence in running]
        scored = [
            row for row, (window, _) in enumerate(running) if positions[row] >= window.first_scored
        ]
        if scored:
            yield ScoredRows([positions[row] for row in scored], logits[scored])
        model.scheduler.commit(step)
        left = []
        for (window, sequence), position in zip(running, positions, strict=True):
            if position + 1 == window.end:
                model.scheduler.remove(sequence)
            else:
                sequence.token_ids.append(ids[position])
                left.append((window, sequence))
        running = left


def _chunk_rows(
    model: Forcing, chunk: PrefillChunk, start: int, first_scored: int
) -> Iterator[ScoredRows]:
    """Rows of a chunk whose first token is the text's `start`-th; it predicts the next one."""
    hidden = model.runner.hidden_states([chunk])
    skipped = max(0, first_scored - (start + 1))
    at_once = max(1, _MAX_LOGITS // model.vocab_size)
    for first in range(skipped, chunk.num_tokens, at_once):
        rows = range(first, min(first + at_once, chunk.num_tokens))
        logits = model.runner.logits(hidden[rows.start : rows.stop])
        yield ScoredRows([start + 1 + row for row in rows], logits)


def _sequence(token_ids: list[int]) -> Sequence:
    request = GenerationRequest("quality", prompt_ids=tuple(token_ids))
    return Sequence(request, token_ids, max_tokens=1, seed=0, t_send_ns=0, started_at="")
