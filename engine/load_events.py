"""How a load ended, in events: what the model is, or what happened, why, and what to do next."""

from __future__ import annotations

import time

import torch

from engine.block_map import block_map
from engine.config import WEIGHT_FORMATS, MemoryEstimate
from engine.devices import device_names, device_uuid
from engine.events import Capabilities, LoadFailed, ModelLoaded
from engine.kv_formats import KV_FORMATS
from engine.loading.checkpoint import CheckpointError
from engine.model_loader import LoadedModel, LoadStopped, OutOfMemory
from engine.session import EngineError

# What a load is expected to fail with; anything else is a mistake of ours.
LOAD_ERRORS = (
    *(LoadStopped, OutOfMemory, CheckpointError, EngineError),
    *(MemoryError, RuntimeError, OSError),
)


def model_loaded(loaded: LoadedModel) -> ModelLoaded:
    """The model that is ready now."""
    facts = loaded.facts
    return ModelLoaded(
        model=loaded.info,
        config=loaded.config,
        capabilities=Capabilities(WEIGHT_FORMATS, KV_FORMATS, device_names()),
        memory=loaded.estimate,
        load_s=loaded.load_s,
        warmup_s=facts.warmup_s,
        weight_bytes=facts.weight_bytes,
        kv_bytes_reserved=facts.kv_bytes_reserved,
        kv_groups=facts.kv_groups,
        kernels=facts.kernels,
        device_name=facts.device,
        threads=facts.threads,
        notices=loaded.notices,
        device_uuid=device_uuid(loaded.device),
        blocks=block_map(loaded.blocks, (), time.perf_counter_ns()),
        roofs=loaded.roofs,
    )


def load_failed(error: Exception) -> LoadFailed:
    """One of LOAD_ERRORS as the person meets it."""
    if isinstance(error, LoadStopped):
        return LoadFailed(
            "cancelled", "Loading was cancelled.", "You stopped it.", "Load a model to chat."
        )
    if isinstance(error, OutOfMemory):
        return _does_not_fit(error.estimate)
    if isinstance(error, CheckpointError):
        return LoadFailed(error.kind, error.what, error.why, error.next_step)
    if isinstance(error, EngineError):
        return LoadFailed("unsupported", error.what, error.why, error.next_step)
    return _load_broke(error)


def _does_not_fit(estimate: MemoryEstimate) -> LoadFailed:
    contexts = [f"{c:,} tokens" for c in estimate.fitting_contexts[:1]]
    formats = [f.upper() for f in estimate.fitting_weight_formats[-1:]]
    choices = [f"a context of {c}" for c in contexts] + [f"{f} weights" for f in formats]
    return LoadFailed(
        "memory",
        f"The model with this context needs {_gb(estimate.required_bytes)}.",
        f"{_gb(estimate.available_bytes)} are available: weights "
        f"{_gb(estimate.weight_bytes)}, KV cache {_gb(estimate.kv_bytes)}, "
        f"workspace {_gb(estimate.workspace_bytes)}.",
        f"This would fit: {' or '.join(choices)}."
        if choices
        else "Close other programs or choose a smaller model.",
        estimate,
    )


def _load_broke(error: Exception) -> LoadFailed:
    kind = "memory" if isinstance(error, MemoryError | torch.OutOfMemoryError) else "internal"
    return LoadFailed(
        "memory" if kind == "memory" else "internal",
        "The model could not be loaded.",
        first_sentence(error),
        "Choose a shorter context or smaller weights."
        if kind == "memory"
        else "Check the file, or choose another model.",
    )


def first_sentence(error: Exception) -> str:
    """The first line of an exception's text as a sentence."""
    text = str(error).strip().splitlines()
    line = text[0] if text else type(error).__name__
    return line if line.endswith((".", "!", "?")) else f"{line}."


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.2f} GB"
