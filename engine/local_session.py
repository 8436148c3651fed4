"""The engine on this machine: requests in, events out, one scheduler step at a time.

Implements `engine.session.Session`. Everything that happens to a request passes through here:
template and tokenizer at submit, schedule, run, sample, detokenize, finish.
"""

from __future__ import annotations

import gc
import logging
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass
from datetime import UTC, datetime

import torch

from engine import memory
from engine.block_map import block_map
from engine.config import (
    EngineConfig,
    GenerationRequest,
    MemoryEstimate,
    Message,
    ModelInfo,
    kv_bytes,
)
from engine.context_policy import kept_when_sliding
from engine.detokenizer import Detokenizer
from engine.devices import default_threads
from engine.events import (
    Event,
    FinishReason,
    GenerationFailed,
    GenerationFinished,
    LoadEvent,
    LoadProgress,
    PrefillDone,
    PrefillProgress,
    TokenEvent,
)
from engine.load_events import LOAD_ERRORS, first_sentence, load_failed, model_loaded
from engine.loading.checkpoint import open_checkpoint
from engine.metrics import request_metrics
from engine.model_loader import (
    LoadedModel,
    LoadStopped,
    OutOfMemory,
    estimate_memory,
    load_model,
    model_info,
)
from engine.models.decoder import StepAborted
from engine.planner.facts import read_planning
from engine.planner.plan import Planning
from engine.prediction import ModelSurvey
from engine.prompt import make_prompt, slide_cut
from engine.scheduler import ScheduledStep
from engine.sequence import Sequence
from engine.session import EngineError
from engine.step_stats import step_stats
from engine.survey import survey_model
from kernels.recording import CancelCell

log = logging.getLogger("engine.decode")

_NS_PER_MS = 1e6
# Faster than a person follows a map, and seldom enough that taking it costs nothing.
_BLOCK_MAP_INTERVAL_NS = 250_000_000


@dataclass(slots=True, eq=False)
class _Answer:
    """What the session keeps for a request in flight besides its sequence."""

    sequence: Sequence
    detokenizer: Detokenizer
    num_unread: int  # tokens of the prompt that were left out from the start
    # The answer is out, but its last token still has to be computed to fill its cache block.
    draining: bool = False


class LocalSession:
    """Owns the loaded model and the requests in flight; see `engine.session.Session`.

    `clock` gives nanoseconds and can be replaced in tests. `spare_core`: see create_session.
    """

    def __init__(
        self, clock: Callable[[], int] = time.perf_counter_ns, *, spare_core: bool = False
    ) -> None:
        self._clock = clock
        self._threads = default_threads(spare_core)
        self._loaded: LoadedModel | None = None
        self._answers: dict[str, _Answer] = {}
        self._pending: list[Event] = []
        self._step_id = 0
        self._blocks_told_ns = 0
        # Written from other threads; adding to and reading from a set is atomic under the GIL.
        self._cancelled: set[str] = set()
        # Ends a load, or the step that one of these requests is in; native code polls it too.
        self._cancel = CancelCell()

    # -- models ---------------------------------------------------------------------------

    def inspect(self, path: str) -> ModelInfo:
        """See Session."""
        checkpoint = open_checkpoint(path)
        try:
            return model_info(checkpoint)
        finally:
            checkpoint.close()

    def estimate_memory(self, config: EngineConfig) -> MemoryEstimate:
        """See Session."""
        checkpoint = open_checkpoint(config.model_path)
        try:
            freed = self._loaded.freed_by_unload if self._loaded else 0
            return estimate_memory(checkpoint, config, freed)
        finally:
            checkpoint.close()

    def survey(self, config: EngineConfig) -> ModelSurvey:
        """See Session."""
        checkpoint = open_checkpoint(config.model_path)
        try:
            # Read once: the session's own thread may drop the model meanwhile.
            return survey_model(checkpoint, config, self._threads, self._loaded)
        finally:
            checkpoint.close()

    def planning(self, model: str, device: str, threads: int | None) -> Planning:
        """See Session."""
        return read_planning(model, device, threads or self._threads, self._loaded)

    def load(self, config: EngineConfig) -> Iterator[LoadEvent]:
        """See Session."""
        self._cancel.clear()
        self.unload()
        try:
            yield from self._load(config)
        except LOAD_ERRORS as error:
            if not isinstance(error, EngineError | LoadStopped | OutOfMemory):
                log.info("loading failed", exc_info=True)
            yield load_failed(error)

    def _load(self, config: EngineConfig) -> Iterator[LoadEvent]:
        checkpoint = open_checkpoint(config.model_path)
        try:
            for item in load_model(checkpoint, config, self._threads, self._cancel):
                if isinstance(item, LoadProgress):
                    yield item
                else:
                    self._loaded = item
                    yield model_loaded(item)
        finally:
            checkpoint.close()

    def stop_loading(self) -> None:
        """See Session."""
        self._cancel.set()

    def unload(self) -> None:
        """See Session."""
        self._answers.clear()
        self._pending.clear()
        if self._loaded is None:
            return
        device = self._loaded.device
        self._loaded = None
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()

    def close(self) -> None:
        """See Session."""
        self.unload()

    # -- requests -------------------------------------------------------------------------

    def count_tokens(self, messages: Items[Message]) -> int:
        """See Session."""
        loaded = self._require_model()
        return len(loaded.template.encode(tuple(messages), loaded.tokenizer))

    def submit(self, request: GenerationRequest) -> None:
        """See Session."""
        t_send_ns = self._clock()
        if request.request_id in self._answers:
            raise ValueError(f"a request {request.request_id!r} is already in flight")
        try:
            answer = self._accept(request, t_send_ns)
        except EngineError as error:
            self._pending.append(
                GenerationFailed(
                    request.request_id, self._clock(), error.what, error.why, error.next_step
                )
            )
            return
        self._answers[request.request_id] = answer
        self._require_model().scheduler.add(answer.sequence)

    def has_work(self) -> bool:
        """See Session."""
        return bool(self._pending or self._answers)

    def cancel(self, request_id: str) -> None:
        """See Session."""
        self._cancelled.add(request_id)
        if request_id in self._answers:
            self._cancel.set()

    def generate(self, request: GenerationRequest) -> Iterator[Event]:
        """See Session."""
        if self.has_work():
            raise RuntimeError("other requests are in flight: submit and step instead")
        self.submit(request)
        while self.has_work():
            yield from self.step()

    def step(self) -> list[Event]:
        """See Session."""
        events, self._pending = self._pending, []
        if self._loaded is None or not self._answers:
            return events
        num_answers = len(self._answers)
        self._run_step(self._loaded, events)
        self._tell_blocks(self._loaded, len(self._answers) < num_answers, events)
        return events

    def _run_step(self, loaded: LoadedModel, events: list[Event]) -> None:
        self._cancel.clear()  # first: what is set from here on is seen in this step
        self._end_cancelled(events)
        start_ns = self._clock()
        step = loaded.scheduler.schedule()
        for sequence in step.exhausted:
            self._finish(self._answers[sequence.request_id], "context_full", events)
        if not step.sequences:
            return
        for sequence in step.sequences:
            if sequence.t_first_scheduled_ns is None:
                sequence.t_first_scheduled_ns = start_ns
        cost = loaded.costs.step(step)
        try:
            result = loaded.runner.run(step)
        except StepAborted:
            self._end_cancelled(events)
            return
        except (RuntimeError, MemoryError) as error:
            log.info("a step failed", exc_info=True)
            self._fail(step, error, events)
            return
        known_ns = self._clock()
        loaded.scheduler.commit(step)
        self._report_prefill(step, known_ns, events)
        detokenize_ns = 0
        for sequence, token_id in result.sampled:
            detokenize_ns += self._take_token(sequence, token_id, known_ns, events)
        span_ns = (start_ns, self._clock())
        events.append(step_stats(loaded, step, self._step_id, span_ns, cost, detokenize_ns))
        self._step_id += 1

    def _tell_blocks(self, loaded: LoadedModel, ended: bool, events: list[Event]) -> None:
        """The map of the block pool, now and then and whenever a request has `ended`."""
        now_ns = self._clock()
        if ended or now_ns - self._blocks_told_ns >= _BLOCK_MAP_INTERVAL_NS:
            self._blocks_told_ns = now_ns
            events.append(block_map(loaded.blocks, loaded.scheduler.sequences, now_ns))

    # -- a request's stations ---------------------------------------------------------------

    def _accept(self, request: GenerationRequest, t_send_ns: int) -> _Answer:
        loaded = self._require_model()
        prompt = make_prompt(request, loaded, t_send_ns)
        if prompt.cut:
            self._pending.append(prompt.cut)
        context, slides = loaded.facts.context_length, request.on_context_full == "slide"
        seed = request.sampling.seed
        sequence = Sequence(
            request=request,
            prompt_ids=prompt.ids,
            max_tokens=request.max_tokens or (sys.maxsize if slides else context),
            seed=secrets.randbits(63) if seed is None else seed,
            t_send_ns=t_send_ns,
            started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )
        detokenizer = Detokenizer(loaded.tokenizer, request.sampling.stop)
        return _Answer(sequence, detokenizer, prompt.cut.dropped_tokens if prompt.cut else 0)

    def _report_prefill(self, step: ScheduledStep, t_ns: int, events: list[Event]) -> None:
        for chunk in step.prefill:
            sequence = chunk.sequence
            if sequence.t_prefill_done_ns is not None:
                continue  # computed again after a preemption: the answer is under way already
            used, allocated = self._kv_bytes(sequence)
            events.append(
                PrefillProgress(
                    sequence.request_id,
                    self._step_id,
                    t_ns,
                    sequence.t_send_ns,
                    sequence.num_computed_tokens,
                    sequence.num_prompt_tokens,
                    sequence.num_cached_tokens,
                    used,
                    allocated,
                )
            )
            if sequence.num_uncomputed_tokens == 0:
                sequence.t_prefill_done_ns = t_ns
                first_ns = sequence.t_first_scheduled_ns or t_ns
                events.append(
                    PrefillDone(
                        sequence.request_id,
                        self._step_id,
                        t_ns,
                        sequence.t_send_ns,
                        sequence.num_prompt_tokens,
                        sequence.num_cached_tokens,
                        (first_ns - sequence.t_send_ns) / _NS_PER_MS,
                        (t_ns - first_ns) / _NS_PER_MS,
                        used,
                        allocated,
                    )
                )

    def _take_token(self, sequence: Sequence, token_id: int, t_ns: int, events: list[Event]) -> int:
        """Append a sampled token or end the answer; returns nanoseconds spent on its text."""
        answer, loaded = self._answers[sequence.request_id], self._require_model()
        request = sequence.request
        if answer.draining:
            self._drop(answer)
            return 0
        if token_id in loaded.tokenizer.eos_token_ids and not request.ignore_eos:
            self._finish(answer, "stop", events)
            return 0
        sequence.token_ids.append(token_id)
        itl_ms = (t_ns - sequence.t_tokens_ns[-1]) / _NS_PER_MS if sequence.t_tokens_ns else None
        sequence.t_tokens_ns.append(t_ns)
        start_ns = self._clock()
        text = answer.detokenizer.add(token_id)
        detokenize_ns = self._clock() - start_ns
        used, allocated = self._kv_bytes(sequence)
        events.append(
            TokenEvent(
                sequence.request_id,
                self._step_id,
                sequence.num_completion_tokens - 1,
                token_id,
                text,
                t_ns,
                sequence.t_send_ns,
                itl_ms,
                len(sequence.token_ids),
                used,
                allocated,
            )
        )
        reason = self._reason_to_end(answer)
        if reason == "context_full" and request.on_context_full == "slide":
            self._slide(answer, events)
        elif reason is not None:
            self._finish(answer, reason, events)
        elif not request.use_cache:
            loaded.scheduler.restart(sequence)
        return detokenize_ns

    def _reason_to_end(self, answer: _Answer) -> FinishReason | None:
        sequence = answer.sequence
        if answer.detokenizer.stopped:
            return "stop"
        if sequence.num_completion_tokens >= sequence.max_tokens:
            return "length"
        if len(sequence.token_ids) >= self._require_model().facts.context_length:
            return "context_full"
        return None

    def _slide(self, answer: _Answer, events: list[Event]) -> None:
        """Go on with the first and the latest tokens, as with a prompt of these."""
        loaded, sequence = self._require_model(), answer.sequence
        first, last = kept_when_sliding(loaded.facts.context_length)
        sequence.drop_between(first, last)
        loaded.scheduler.restart(sequence)
        dropped = answer.num_unread + len(sequence.dropped_ids)
        events.append(slide_cut(sequence.request, loaded, dropped, self._clock()))

    def _finish(self, answer: _Answer, reason: FinishReason, events: list[Event]) -> None:
        loaded, sequence = self._require_model(), answer.sequence
        metrics = request_metrics(
            sequence, loaded.facts, reason, memory.peak_memory_bytes(loaded.device)
        )
        events.append(
            GenerationFinished(
                request_id=sequence.request_id,
                t_ns=self._clock(),
                finish_reason=reason,
                text_tail=answer.detokenizer.finish(),
                prompt_ids=tuple(sequence.prompt_ids),
                token_ids=tuple(sequence.completion_ids),
                metrics=metrics,
                block_tables=sequence.shown_tables,
            )
        )
        # The last sampled token is not in the cache. Where it would complete a block, one more
        # step computes it, so that the next turn finds every full block of this one.
        fills_block = len(sequence.token_ids) % loaded.config.block_size == 0
        keeps = sequence.request.use_cache and reason in ("stop", "length")
        if keeps and sequence.is_decoding and fills_block:
            answer.draining = True
        else:
            self._drop(answer)

    def _drop(self, answer: _Answer) -> None:
        self._require_model().scheduler.remove(answer.sequence)
        del self._answers[answer.sequence.request_id]
        self._cancelled.discard(answer.sequence.request_id)

    def _end_cancelled(self, events: list[Event]) -> None:
        for request_id in self._cancelled & self._answers.keys():
            answer = self._answers[request_id]
            if answer.draining:
                self._drop(answer)
            else:
                self._finish(answer, "cancelled", events)

    def _fail(self, step: ScheduledStep, error: Exception, events: list[Event]) -> None:
        for sequence in step.sequences:
            answer = self._answers[sequence.request_id]
            if not answer.draining:
                events.append(
                    GenerationFailed(
                        sequence.request_id,
                        self._clock(),
                        "The answer could not be computed.",
                        first_sentence(error),
                        "Try again; if it fails again, load with a shorter context.",
                    )
                )
            self._drop(answer)
        # Copies that were due may be undone, so that blocks do not hold what they are named for.
        self._require_model().blocks.forget_prefixes()

    # -- small helpers ----------------------------------------------------------------------

    def _kv_bytes(self, sequence: Sequence) -> tuple[int, int]:
        """Bytes of the cache that hold tokens of the sequence, and bytes of its blocks."""
        facts = self._require_model().facts
        used = kv_bytes(facts.kv_groups, sequence.num_computed_tokens)
        return used, facts.kv_bytes_allocated(sequence.held_blocks)

    def _require_model(self) -> LoadedModel:
        if self._loaded is None:
            raise EngineError(
                "No model is loaded.", "An answer needs one.", "Choose a model from the menu."
            )
        return self._loaded
