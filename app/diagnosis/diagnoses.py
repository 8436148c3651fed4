"""Puts a diagnosis under each chat's newest answer, applies what it suggests, and checks it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
from PySide6.QtCore import QObject

from app.chat.model import ChatModel
from app.chat.store import AnswerNote, ErrorAction
from app.conversations import Conversations
from app.diagnosis import texts
from app.diagnosis.plans import ModelPlans
from app.engine_link.controller import EngineController
from app.model_loading import ModelLoading
from app.telemetry.request_trace import RequestTrace
from app.telemetry.telemetry_model import TelemetryModel
from engine.config import EngineConfig
from engine.diagnosis.cures import (
    Diagnosis,
    Expectation,
    Outcome,
    Suggestion,
    diagnose,
    expect,
    outcome,
)
from engine.diagnosis.facts import AnswerFacts, Phase, PhaseSteps, phase_steps
from engine.diagnosis.machine import MachineState, machine_state
from engine.events import Event, GenerationFinished, ModelLoaded, StepStats
from engine.paths import quality_file
from engine.quality.kept import kept_qualities
from engine.sensors import SensorSample

ACTION = "try"
RACE_ACTION = "race"
# What a race can change; the others only show in a chat that goes on.
_RACED_FIELDS = ("weight_format", "kv_format", "threads", "device")


@dataclass(frozen=True, slots=True)
class _Ended:
    """An answer that is to be judged: of which model, and what is known of it."""

    model: ChatModel
    message_id: str
    loaded: ModelLoaded
    wanted: EngineConfig
    facts: AnswerFacts


@dataclass(frozen=True, slots=True)
class _Told:
    """What stands under an answer."""

    model: ChatModel
    message_id: str
    facts: AnswerFacts
    diagnosis: Diagnosis


class AnswerDiagnoses(QObject):
    """Knows what the engine did while an answer ran. `close` ends a thread.

    The first answer of a load is judged once sizes and speeds have been read; nothing is read
    while it runs, for that would take the interpreter from it.
    """

    def __init__(
        self,
        controller: EngineController,
        conversations: Conversations,
        loading: ModelLoading,
        telemetry: TelemetryModel,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._controller, self._conversations = controller, conversations
        self._loading, self._telemetry = loading, telemetry
        self._plans = ModelPlans(controller, self)
        self._steps: list[StepStats] = []
        self._samples: list[SensorSample] = []
        self._finished: list[tuple[ChatModel, str, GenerationFinished]] = []
        self._ended: list[_Ended] = []
        self._told: dict[str, _Told] = {}  # by chat
        self._expectation: Expectation | None = None
        self._expected: EngineConfig | None = None  # with what it is to be measured
        self._judged: ModelLoaded | None = None  # the load that has had its first answer
        self._plans.ready.connect(self._judge)
        conversations.answered.connect(self._on_answered)
        # After the conversations and the telemetry: both have taken in the same events by then.
        controller.events_received.connect(self._on_events)
        controller.load_started.connect(self._on_load_started)
        controller.model_unloaded.connect(self._withdraw)

    def handle_sample(self, sample: SensorSample) -> None:
        """Take in a reading of the sensors."""
        if not self._controller.active_requests:
            self._samples.clear()
        self._samples.append(sample)

    def apply(self, action: str) -> None:
        """Do what a button says: load the model with the suggested change."""
        _, message_id, number = action.split(":")
        told = next((t for t in self._told.values() if t.message_id == message_id), None)
        if told is None or self._loading.wanted is None:
            return
        suggestion = told.diagnosis.suggestions[int(number)]
        self._expectation = expect(told.facts, told.diagnosis.finding, suggestion)
        self._expected = suggestion.applied(self._loading.wanted)
        if self._expectation is not None:
            headline = texts.headline(told.diagnosis.finding)
            text = texts.applied_text(self._expectation)
            self._say(told, AnswerNote(_tone(told.diagnosis), headline, text))
        self._loading.change({suggestion.field: suggestion.value})

    def of(self, model: ChatModel) -> Diagnosis | None:
        """What was said of the chat's newest answer; None while nothing was."""
        told = self._told.get(model.chat.id)
        return told.diagnosis if told else None

    def suggested(self, message_id: str, number: int) -> tuple[Suggestion, Phase] | None:
        """A suggestion that stands under an answer, and the phase its gain is for."""
        told = next((t for t in self._told.values() if t.message_id == message_id), None)
        if told is None:
            return None
        return told.diagnosis.suggestions[number], told.diagnosis.finding.phase

    def close(self) -> None:
        """End the thread."""
        self._plans.close()

    # --- what happens ---------------------------------------------------------------------

    def _on_answered(self, model: ChatModel, message_id: str, event: GenerationFinished) -> None:
        self._finished.append((model, message_id, event))

    def _on_events(self, events: Sequence[Event]) -> None:
        self._steps += (event for event in events if isinstance(event, StepStats))
        finished, self._finished = self._finished, []
        for model, message_id, event in finished:
            self._note_end(model, message_id, event)
        if not self._controller.active_requests:
            self._steps.clear()
            del self._samples[:-1]  # the next answer's first reading begins there
        self._judge()

    def _on_load_started(self, config: EngineConfig) -> None:
        if config != self._expected:
            self._expectation = None  # the change did not succeed, or another one was made
        self._plans.forget()
        self._withdraw()

    def _withdraw(self) -> None:
        """What was suggested was meant for the model that is gone now."""
        self._ended.clear()
        for told in self._told.values():
            note = _note(told)
            if note is not None and note.actions:
                self._say(told, replace(note, actions=()))

    # --- judging --------------------------------------------------------------------------

    def _note_end(self, model: ChatModel, message_id: str, event: GenerationFinished) -> None:
        loaded, wanted = self._controller.model, self._loading.wanted
        trace = self._telemetry.request(event.request_id)
        if loaded is None or wanted is None or trace is None or not len(trace.tokens):
            return
        prefill, decode = self._steps_of(trace)
        facts = AnswerFacts(
            metrics=event.metrics,
            wanted=wanted,
            prefill=prefill,
            decode=decode,
            itl_ms=tuple(trace.tokens["itl_ms"][1:].tolist()),
            devices=loaded.capabilities.devices,
            device_pct=self._device_pct(trace),
            on_gpu=trace.on_gpu,
            is_first=loaded is not self._judged,
            load_s=loaded.load_s,
            machines=self._machines(trace),
        )
        self._judged = loaded
        self._ended.append(_Ended(model, message_id, loaded, wanted, facts))

    def _steps_of(self, trace: RequestTrace) -> tuple[PhaseSteps, PhaseSteps]:
        """Those up to the first token, and those from there to the last."""
        ids = trace.tokens["step_id"]
        first, last = int(ids[0]), int(ids[-1])
        during = [
            step
            for step in self._steps
            if trace.seconds(step.t_ns) > trace.prefill_start_s and step.step_id <= last
        ]
        return (
            phase_steps(step for step in during if step.step_id <= first),
            phase_steps(step for step in during if step.step_id > first),
        )

    def _machines(self, trace: RequestTrace) -> dict[Phase, MachineState]:
        """What the sensors said up to the first token, and from there on.

        A reading tells of the time since the one before: it belongs where the middle of that lies.
        """
        first_s = trace.ttft_s or 0.0
        times = [
            (trace.seconds((before.t_ns + sample.t_ns) // 2), sample)
            for before, sample in pairwise(self._samples)
        ]
        return {
            "start": machine_state(s for t, s in times if trace.prefill_start_s < t <= first_s),
            "stream": machine_state(s for t, s in times if t > first_s),
        }

    def _device_pct(self, trace: RequestTrace) -> float | None:
        """Mean utilization from the first token on."""
        x, y = self._telemetry.device_steps(trace)
        times = np.clip(x, trace.ttft_s or 0.0, None)
        spans = times[1::2] - times[::2]
        return float(np.average(y[::2], weights=spans)) if spans.sum() > 0 else None

    def _judge(self) -> None:
        """Say what there is to say of answers that have ended, once sizes and speeds are read."""
        if self._ended and not self._plans.is_ready:
            self._plans.ask(self._ended[-1].wanted)
            return
        ended, self._ended = self._ended, []
        for each in ended:
            qualities = kept_qualities(quality_file(), each.loaded.model.path)
            facts = replace(
                each.facts,
                planning=self._plans.present,
                unbound=self._plans.unbound,
                qualities=qualities,
            )
            diagnosis = diagnose(facts)
            if diagnosis is not None:
                self._tell(_Told(each.model, each.message_id, facts, diagnosis))

    def _tell(self, told: _Told) -> None:
        before = self._told.get(told.model.chat.id)
        if before is not None:
            self._say(before, None)
        self._told[told.model.chat.id] = told
        self._say(told, _written(told, self._take_outcome(told.facts)))

    def _take_outcome(self, facts: AnswerFacts) -> Outcome | None:
        if self._expectation is None:
            return None
        measured = outcome(self._expectation, facts.metrics)
        if measured is not None:
            self._expectation = None
        return measured

    def _say(self, told: _Told, note: AnswerNote | None) -> None:
        if _is_there(told):
            told.model.set_note(told.message_id, note)


def _written(told: _Told, measured: Outcome | None) -> AnswerNote:
    facts, diagnosis = told.facts, told.diagnosis
    suggestions = diagnosis.suggestions
    parts = [texts.outcome_text(measured)] if measured else []
    parts.append(texts.sentence(facts, diagnosis.finding))
    parts += (texts.advice(each, facts) for each in suggestions)
    actions = []
    for number, each in enumerate(suggestions):
        place = f"{told.message_id}:{number}"
        actions.append(ErrorAction(f"{ACTION}:{place}", texts.button(each, facts)))
        if each.field in _RACED_FIELDS:
            actions.append(ErrorAction(f"{RACE_ACTION}:{place}", texts.race_button(each)))
    return AnswerNote(
        _tone(diagnosis),
        texts.headline(diagnosis.finding),
        " ".join(parts),
        texts.details(facts, diagnosis),
        tuple(actions),
    )


def _tone(diagnosis: Diagnosis) -> Literal["prefill", "decode"]:
    return "prefill" if diagnosis.finding.phase == "start" else "decode"


def _note(told: _Told) -> AnswerNote | None:
    return next((m.note for m in told.model.chat.messages if m.id == told.message_id), None)


def _is_there(told: _Told) -> bool:
    """The answer may have been made anew, or its chat deleted."""
    return any(message.id == told.message_id for message in told.model.chat.messages)
