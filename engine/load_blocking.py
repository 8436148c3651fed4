"""Loading for callers that wait: the command line."""

from __future__ import annotations

from engine.config import EngineConfig
from engine.events import LoadFailed, ModelLoaded
from engine.session import EngineError, Session


def load_or_raise(session: Session, config: EngineConfig) -> ModelLoaded:
    """Load to the end. Raises EngineError with the failure's what, why and next."""
    for event in session.load(config):
        if isinstance(event, ModelLoaded):
            return event
        if isinstance(event, LoadFailed):
            raise EngineError(event.what, event.why, event.next)
    raise RuntimeError("the session ended a load without saying how")
