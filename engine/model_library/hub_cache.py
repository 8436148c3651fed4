"""Models in the Hugging Face cache: models--ORG--NAME/snapshots/REVISION, refs/main.

The layout is that of huggingface_hub's guide "Manage your cache".
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from engine.model_library.entries import ModelEntry
from engine.model_library.folders import Place, models_in, walk

REPOSITORY_PREFIX = "models--"


def hub_cache_folder() -> Path:
    """Where huggingface_hub keeps repositories, by its own environment variables."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return _expanded(os.environ[variable])
    home = os.environ.get("HF_HOME")
    if home:
        return _expanded(home) / "hub"
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return _expanded(cache) / "huggingface" / "hub"


def cached_models(cache: Path) -> Iterator[ModelEntry]:
    """The models of every repository in a cache folder."""
    for repository in sorted(cache.glob(f"{REPOSITORY_PREFIX}*")):
        if repository.is_dir():
            yield from repository_models(repository, Place("huggingface", cache))


def repository_models(repository: Path, where: Place) -> Iterator[ModelEntry]:
    """The models of one repository, each once, in the newest revision that holds it.

    A revision holds only what was downloaded of it, so an older one may have what the newest
    lacks. A repository with nothing but the beginnings of files is told as unfinished.
    """
    name = repository.name.removeprefix(REPOSITORY_PREFIX).replace("--", "/")
    place = replace(where, detail=name)
    found: dict[Path, ModelEntry] = {}
    for snapshot in _snapshots(repository):
        for entry in _snapshot_models(snapshot, place):
            inner = Path(entry.path).relative_to(snapshot)
            if inner not in found or (found[inner].problem and not entry.problem):
                found[inner] = entry
    yield from found.values()
    if not found and any(repository.glob("blobs/*.incomplete")):
        yield place.entry(repository, _short(name), "Its download was not finished.")


def _snapshot_models(snapshot: Path, place: Place) -> Iterator[ModelEntry]:
    for folder, _, files in walk(snapshot):
        for entry in models_in(folder, files, place):
            # The folder of a revision is called by its hash.
            whole = Path(entry.path) == snapshot
            yield replace(entry, name=_short(place.detail)) if whole else entry


def _short(repository: str) -> str:
    return repository.rpartition("/")[2]


def _snapshots(repository: Path) -> list[Path]:
    """The revisions that are there: main first, then the newest."""
    try:
        main = (repository / "refs" / "main").read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        main = ""
    snapshots = [each for each in repository.glob("snapshots/*") if each.is_dir()]
    return sorted(snapshots, key=lambda each: (each.name != main, -each.stat().st_mtime))


def _expanded(path: str) -> Path:
    return Path(os.path.expandvars(path)).expanduser()
