"""All models on this machine: every place that is known, read only, nothing copied or written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from engine.model_library.entries import ModelEntry, Source
from engine.model_library.folders import Place, models_in, walk
from engine.model_library.hub_cache import (
    REPOSITORY_PREFIX,
    cached_models,
    hub_cache_folder,
    repository_models,
)
from engine.model_library.ollama import is_ollama_store, ollama_models, ollama_store
from engine.starter import STARTER_NAME, starter_model_path

LM_STUDIO_FOLDERS = ("~/.lmstudio/models", "~/.cache/lm-studio/models")


def list_models(
    added: Sequence[str] = (),
    remembered: Sequence[str] = (),
    wanted: Callable[[], bool] = lambda: True,
) -> Iterator[ModelEntry]:
    """Every model once: the starter, `added` folders, the known places, `remembered` paths.

    A remembered path that is nowhere else comes last, with a problem when it is gone. The listing
    ends early once `wanted` says no. Takes as long as the file system does: not for a GUI thread.
    """
    seen: set[str] = set()
    for entry in _all_entries(added, wanted):
        key = os.path.realpath(entry.path)
        if key not in seen:
            seen.add(key)
            yield entry
        if not wanted():
            return
    for path in remembered:
        key = os.path.realpath(path)
        if key not in seen:
            seen.add(key)
            yield remembered_model(path)


def remembered_model(path: str) -> ModelEntry:
    """A model that was opened before, wherever it lies; its path is kept when it is gone."""
    location = Path(path)
    problem = "" if location.exists() else f"It is not there any more: {path}."
    name = location.stem if location.suffix.lower() == ".gguf" else location.name
    return ModelEntry(path, name, "recent", str(location.parent), "", problem)


def folder_models(
    root: Path, source: Source, wanted: Callable[[], bool] = lambda: True
) -> Iterator[ModelEntry]:
    """The models below a folder; a Hugging Face cache or Ollama's store in it is read as one."""
    place = Place(source, root)
    for folder, subfolders, files in walk(root):
        if not wanted():
            return
        if is_ollama_store(folder):
            yield from ollama_models(folder, place)
            subfolders.clear()
            continue
        for name in [each for each in subfolders if each.startswith(REPOSITORY_PREFIX)]:
            yield from repository_models(folder / name, place)
            subfolders.remove(name)
        inner = folder.relative_to(root)
        detail = inner.as_posix() if inner.parts else ""
        yield from models_in(folder, files, replace(place, detail=detail))


def _added_folder(folder: Path, wanted: Callable[[], bool]) -> Iterator[ModelEntry]:
    """Its models, or itself with the reason why there are none, so that it can be removed."""
    entry: ModelEntry | None = None
    for entry in folder_models(folder, "folder", wanted):
        yield entry
    if entry is None:
        problem = "There are no models in it." if folder.is_dir() else "It is not there any more."
        yield Place("folder", folder).entry(folder, str(folder), problem)


def _all_entries(added: Sequence[str], wanted: Callable[[], bool]) -> Iterator[ModelEntry]:
    starter = starter_model_path()
    if starter:
        yield ModelEntry(starter, STARTER_NAME, "starter", str(Path(starter).parent))
    for each in added:
        yield from _added_folder(Path(each), wanted)
    yield from cached_models(hub_cache_folder())
    for each in LM_STUDIO_FOLDERS:
        yield from folder_models(Path(each).expanduser(), "lm-studio", wanted)
    yield from ollama_models(ollama_store())
