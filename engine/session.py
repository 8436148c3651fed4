"""The door of the engine: the `Session` protocol that the window and the command line hold."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from engine.config import EngineConfig, GenerationRequest, MemoryEstimate, Message, ModelInfo
from engine.events import Event, LoadEvent
from engine.planner.plan import Planning
from engine.prediction import ModelSurvey


class EngineError(Exception):
    """An expected failure told as what happened, why, and what to do next, a sentence each."""

    def __init__(self, what: str, why: str, next_step: str) -> None:
        super().__init__(f"{what} {why} {next_step}".strip())
        self.what = what
        self.why = why
        self.next_step = next_step


class Session(Protocol):
    """One model at a time, several requests in flight.

    Used from one thread, except `survey`, `planning`, `cancel` and `stop_loading`, which any thread
    may call.
    """

    def inspect(self, path: str) -> ModelInfo:
        """Read the headers of a checkpoint. Raises EngineError."""
        ...

    def estimate_memory(self, config: EngineConfig) -> MemoryEstimate:
        """What loading `config` would take. Raises EngineError."""
        ...

    def survey(self, config: EngineConfig) -> ModelSurvey:
        """What a model is, takes and would reach, from its headers. Thread-safe; EngineError."""
        ...

    def planning(self, model: str, device: str, threads: int | None) -> Planning:
        """What a plan needs of a model, by path or built-in name, and of the device. Thread-safe.

        Raises EngineError, and ValueError for a name that is neither a file nor built in.
        """
        ...

    def load(self, config: EngineConfig) -> Iterator[LoadEvent]:
        """Load a model, the present one dropped first; ends with ModelLoaded or LoadFailed."""
        ...

    def stop_loading(self) -> None:
        """Make a running load end with LoadFailed(kind="cancelled"). Thread-safe."""
        ...

    def unload(self) -> None:
        """Drop the model and its memory; requests in flight end as cancelled without an event."""
        ...

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Prompt tokens these messages take through the chat template. Raises EngineError."""
        ...

    def submit(self, request: GenerationRequest) -> None:
        """Accept a request: this is t_send. Problems come as GenerationFailed from `step`."""
        ...

    def step(self) -> list[Event]:
        """Run one scheduler step and return what happened; empty when there is no work."""
        ...

    def has_work(self) -> bool:
        """Whether `step` has anything to do or to report."""
        ...

    def generate(self, request: GenerationRequest) -> Iterator[Event]:
        """Submit and step until done. Raises RuntimeError while other requests are in flight."""
        ...

    def cancel(self, request_id: str) -> None:
        """Stop a request, submitted or not yet; takes effect within a layer. Thread-safe."""
        ...

    def close(self) -> None:
        """Unload and release everything. The session cannot be used afterwards."""
        ...


def create_session(spare_core: bool = False) -> Session:
    """The engine on this machine. Imports torch, so call it from the worker thread.

    `spare_core`: leave one of more than four cores to a window, unless the config says how many.
    """
    with _no_collection_of_imports():
        from engine.local_session import LocalSession

    return LocalSession(spare_core=spare_core)


@contextmanager
def _no_collection_of_imports() -> Iterator[None]:
    """Keep the garbage collector away from what an import leaves behind, now and later.

    torch makes some 280,000 objects that live as long as the program. Each full collection
    walks them all and stops every thread for some 100 ms: a window would stand still.
    """
    if "torch" in sys.modules:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
