"""What a listing gives: a model's path, what to call it, and where it was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Source = Literal["starter", "huggingface", "lm-studio", "ollama", "folder", "recent"]


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One model as its place in the file system tells it; no header has been read yet.

    `path` is what EngineConfig.model_path takes. `place` is the folder or store it was found in,
    `detail` what that place knows besides the name, e.g. the repository. `problem` is a sentence
    saying why it cannot be opened, empty when nothing speaks against it.
    """

    path: str
    name: str
    source: Source
    place: str
    detail: str = ""
    problem: str = ""
