"""Perplexity of a text under a loaded model, and its divergence from a reference run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import torch

from engine.config import EngineConfig
from engine.devices import default_threads
from engine.load_events import LOAD_ERRORS, load_failed
from engine.loading.checkpoint import open_checkpoint
from engine.loading.model_config import ModelConfig
from engine.metrics import LoadedFacts
from engine.model_loader import LoadedModel, load_model
from engine.quality.report import ForcingPath, Quality, QualityProgress, QualitySettings
from engine.quality.scores import DivergenceSum, LikelihoodSum, ReferenceStore, reference_store
from engine.quality.teacher_forcing import Forcing, decode_rows, prefill_rows
from engine.quality.windows import Window, strided_windows
from engine.session import EngineError
from engine.tokenizer import Tokenizer
from kernels.recording import CancelCell

_DEFAULT_WINDOW = 1024
_MIN_CONTEXT = 16  # what EngineConfig accepts
_DECODE_WINDOWS = 8  # side by side; a row's result does not depend on how many there are
_REPORT_SECONDS = 0.5

Report = Callable[[QualityProgress], None]


def measure_quality(
    config: EngineConfig, settings: QualitySettings, text: str, report: Report
) -> Quality:
    """Load, score and compare; the reference run first, dropped before the measured one loads.

    The reference is `settings.reference_model`, or the same model, with
    `settings.reference_weights`, through the path of prompts, its KV cache in the format that
    follows from them. The text is encoded as the tokenizer does by itself: with one
    BOS at its very beginning if the model has it so, none at later windows. Raises EngineError,
    and ValueError for a window or stride that cannot be.
    """
    started = time.perf_counter()
    plan = _plan(config, settings, text)
    reference: _Run | None = None
    divergence = DivergenceSum()
    keep = settings.reference_weights is not None
    with reference_store(len(plan.ids), plan.vocab_size) if keep else nullcontext() as store:
        if settings.reference_weights is not None and store is not None:
            exact = replace(
                config,
                model_path=settings.reference_model or config.model_path,
                weight_format=settings.reference_weights,
                kv_format="auto",
            )
            reference = _score(plan, exact, "prefill", "reference", report, store.put)
        compare = _comparison(store, divergence)
        run = _score(plan, config, settings.path, "measured", report, compare)
    return Quality(
        model=run.facts.model,
        weights=run.facts.weight_format,
        weight_bytes=run.facts.weight_bytes,
        kv=run.facts.kv_format,
        device=run.facts.device,
        kernels=run.facts.kernels,
        threads=run.facts.threads,
        path=settings.path,
        tokens=len(plan.ids),
        scored_tokens=run.nll.count,
        window=plan.window,
        stride=plan.stride,
        starts_with_bos=plan.starts_with_bos,
        nll=run.nll.mean,
        perplexity=run.nll.perplexity,
        reference_model=reference.facts.model if reference else None,
        reference_weights=settings.reference_weights,
        reference_perplexity=reference.nll.perplexity if reference else None,
        kl_divergence=divergence.mean if reference else None,
        top1_agreement=divergence.agreement if reference else None,
        elapsed_s=time.perf_counter() - started,
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """The text as ids, and how it is cut."""

    ids: list[int]
    starts_with_bos: bool
    vocab_size: int
    window: int
    stride: int
    windows: list[Window]


@dataclass(frozen=True, slots=True)
class _Run:
    """One model's score and what was loaded for it."""

    nll: LikelihoodSum
    facts: LoadedFacts


def _plan(config: EngineConfig, settings: QualitySettings, text: str) -> _Plan:
    model, tokenizer, ids = _encode(config.model_path, text)
    if settings.reference_model is not None:
        reference, _, reference_ids = _encode(settings.reference_model, text)
        if (reference.vocab_size, reference_ids) != (model.vocab_size, ids):
            raise EngineError(
                "The reference model cannot be compared with this one.",
                "It reads the text as other tokens.",
                "Name the model that this one was quantized from.",
            )
    if len(ids) < 2:
        raise EngineError(
            "The text is too short to be scored.",
            f"It has {len(ids)} token{'s' if len(ids) != 1 else ''}, the first of which nothing "
            "predicts.",
            "Name a longer --text.",
        )
    window = settings.window or min(_DEFAULT_WINDOW, model.context_length, len(ids))
    stride = settings.stride or max(1, window // 2)
    windows = strided_windows(len(ids), window, stride)
    return _Plan(ids, tokenizer.add_bos, model.vocab_size, window, stride, windows)


def _encode(model_path: str, text: str) -> tuple[ModelConfig, Tokenizer, list[int]]:
    """What a model's headers say of it, and the text as its tokens."""
    checkpoint = open_checkpoint(model_path)
    try:
        tokenizer = checkpoint.tokenizer()
        return checkpoint.config, tokenizer, tokenizer.encode(text, add_special_tokens=True)
    finally:
        checkpoint.close()


def _score(
    plan: _Plan,
    config: EngineConfig,
    path: ForcingPath,
    name: str,
    report: Report,
    each: Callable[[list[int], torch.Tensor], None],
) -> _Run:
    """Load one model and score the text; `each` is given the positions and log-probabilities."""
    side_by_side = _DECODE_WINDOWS if path == "decode" else 1
    context = max(plan.window, _MIN_CONTEXT)
    config = replace(
        config,
        context_length=context,
        kv_pool_tokens=side_by_side * (context + config.block_size),
        max_num_seqs=side_by_side,
        prefix_caching=False,
    )
    nll = LikelihoodSum(plan.ids)
    total = sum(window.num_scored for window in plan.windows)
    started, reported = time.perf_counter(), 0.0
    with _loaded(config) as loaded:
        model = Forcing(loaded.runner, loaded.scheduler, plan.vocab_size)
        if path == "decode":
            rows = decode_rows(model, plan.ids, plan.windows, side_by_side)
        else:
            rows = prefill_rows(model, plan.ids, plan.windows)
        for scored in rows:
            log_probs = scored.logits.log_softmax(-1)
            nll.add(scored.positions, log_probs)
            each(scored.positions, log_probs)
            elapsed = time.perf_counter() - started
            if elapsed - reported >= _REPORT_SECONDS or nll.count == total:
                reported = elapsed
                report(QualityProgress(name, nll.count, total, elapsed))
        return _Run(nll, loaded.facts)


def _comparison(
    store: ReferenceStore | None, divergence: DivergenceSum
) -> Callable[[list[int], torch.Tensor], None]:
    """What is done with the measured run's log-probabilities."""

    def compare(positions: list[int], log_probs: torch.Tensor) -> None:
        if store is not None:
            divergence.add(store.get(positions, log_probs.device), log_probs)

    return compare


@contextmanager
def _loaded(config: EngineConfig) -> Iterator[LoadedModel]:
    """The model in memory; a load's failure becomes an EngineError."""
    checkpoint = open_checkpoint(config.model_path)
    try:
        *_, model = load_model(checkpoint, config, default_threads(False), CancelCell())
    except LOAD_ERRORS as error:
        failure = load_failed(error)
        raise EngineError(failure.what, failure.why, failure.next) from error
    finally:
        checkpoint.close()
    assert isinstance(model, LoadedModel), "a load ends with its model"
    yield model
