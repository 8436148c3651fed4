"""Which class runs which architecture: a new one is a file here and a line below."""

from __future__ import annotations

from engine.models.llama import LlamaModel
from engine.session import EngineError

ARCHITECTURES: dict[str, type[LlamaModel]] = {"llama": LlamaModel}


def model_class(architecture: str) -> type[LlamaModel]:
    """The class of an architecture. Raises EngineError naming the known ones."""
    if architecture not in ARCHITECTURES:
        raise EngineError(
            f"The architecture {architecture!r} is not supported.",
            f"Known architectures: {', '.join(sorted(ARCHITECTURES))}.",
            "Choose a model of a known architecture.",
        )
    return ARCHITECTURES[architecture]
