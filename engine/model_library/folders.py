"""Models in plain folders: GGUF files and safetensors folders, as LM Studio keeps them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.model_library.entries import ModelEntry, Source

# publisher/model/quantization/file.gguf is the deepest layout known; more guards against "/".
MAX_DEPTH = 6
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})\.gguf", re.I)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a listing is, for the entries it makes: see ModelEntry."""

    source: Source
    root: Path
    detail: str = ""

    def entry(self, path: Path, name: str, problem: str = "") -> ModelEntry:
        """A model found here."""
        return ModelEntry(str(path), name, self.source, str(self.root), self.detail, problem)


def walk(root: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Like os.walk in order of names: nothing hidden, no folder twice, MAX_DEPTH levels.

    Linked folders are followed: people link their models from other disks.
    """
    base_depth = len(root.parts)
    seen: set[str] = set()
    for folder, subfolders, files in os.walk(root, followlinks=True):
        here = Path(folder)
        real = os.path.realpath(folder)
        if real in seen or len(here.parts) - base_depth > MAX_DEPTH:
            subfolders.clear()
            continue
        seen.add(real)
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        yield here, subfolders, sorted(name for name in files if not name.startswith("."))


def models_in(folder: Path, files: Sequence[str], place: Place) -> Iterator[ModelEntry]:
    """The models that lie directly in `folder`, which holds `files`.

    Projectors of image models (mmproj) are no models. A model split over several GGUF files is
    one entry, at its first part. Weights count as a safetensors model beside a config.json only:
    other programs keep other things in such files.
    """
    gguf = [n for n in files if n.lower().endswith(".gguf") and "mmproj" not in n.lower()]
    for name in gguf:
        if not _PART.fullmatch(name):
            yield place.entry(folder / name, Path(name).stem, _gone([folder / name]))
    yield from _split_models(folder, gguf, place)
    weights = [folder / name for name in files if name.endswith(".safetensors")]
    if "config.json" in files and weights:
        yield place.entry(folder, folder.name, _gone(weights))


def _gone(paths: Sequence[Path]) -> str:
    """What is wrong with links that lead nowhere; empty when all files are there."""
    for path in paths:
        if not path.exists():
            return f"{path.name} leads to a file that is not there: its download was not finished."
    return ""


def _split_models(folder: Path, gguf: Sequence[str], place: Place) -> Iterator[ModelEntry]:
    parts: dict[tuple[str, int], list[str]] = {}
    for name in gguf:
        part = _PART.fullmatch(name)
        if part:
            parts.setdefault((part["stem"], int(part["total"])), []).append(name)
    for (stem, total), names in parts.items():
        there = sum((folder / name).exists() for name in names)
        problem = "" if there >= total else f"Only {there:,} of its {total:,} parts are there."
        yield place.entry(folder / names[0], stem, problem)
