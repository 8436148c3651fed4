"""Models in Ollama's store: manifests/REGISTRY/NAMESPACE/MODEL/TAG, each naming blobs by digest."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.model_library.entries import ModelEntry
from engine.model_library.folders import Place

MODEL_LAYER = "application/vnd.ollama.image.model"
MAX_MANIFEST_BYTES = 1 << 20
_DEFAULT_REGISTRY = "registry.ollama.ai"
_DEFAULT_NAMESPACE = "library"
# Nothing else may become part of a path.
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def ollama_store() -> Path:
    """Where Ollama keeps models, by its own environment variable."""
    return Path(os.environ.get("OLLAMA_MODELS") or "~/.ollama/models").expanduser()


def is_ollama_store(folder: Path) -> bool:
    """Whether a folder is laid out as a store."""
    return (folder / "manifests").is_dir() and (folder / "blobs").is_dir()


def ollama_models(store: Path, place: Place | None = None) -> Iterator[ModelEntry]:
    """The models of a store under the names Ollama calls them by, e.g. "llama3.2:1b".

    A manifest that cannot be read, or whose blob is not there, is an entry with its problem.
    """
    place = place or Place("ollama", store)
    manifests = store / "manifests"
    for manifest in sorted(manifests.glob("*/*/*/*")):
        if manifest.is_file() and not manifest.name.startswith("."):
            yield _entry(store, manifest, _model_name(manifest.relative_to(manifests)), place)


def _entry(store: Path, manifest: Path, name: str, place: Place) -> ModelEntry:
    digest = _model_digest(manifest)
    if digest is None:
        problem = "Its manifest names no model that could be opened."
        return place.entry(manifest, name, problem)
    blob = store / "blobs" / digest.replace(":", "-")
    problem = "" if blob.exists() else "Its file is not in the store: pull it again with Ollama."
    return place.entry(blob, name, problem)


def _model_digest(manifest: Path) -> str | None:
    try:
        if manifest.stat().st_size > MAX_MANIFEST_BYTES:
            return None
        content: Any = json.loads(manifest.read_text("utf-8"))
        layers = content["layers"]
        digests = [layer["digest"] for layer in layers if layer.get("mediaType") == MODEL_LAYER]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    valid = [each for each in digests if isinstance(each, str) and _DIGEST.fullmatch(each)]
    return valid[0] if valid else None


def _model_name(place: Path) -> str:
    registry, namespace, model, tag = place.parts
    parts = [] if registry == _DEFAULT_REGISTRY else [registry]
    parts += [] if namespace == _DEFAULT_NAMESPACE else [namespace]
    return f"{'/'.join([*parts, model])}:{tag}"
