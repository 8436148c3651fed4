"""What a repository on the Hugging Face Hub offers: its formats, their files and sizes.

huggingface_hub is imported when it is first needed: that takes a quarter of a second, which
the start of the program does not have. Proxies, HF_ENDPOINT and saved tokens are its own matter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from engine.model_library.hub_cache import hub_cache_folder
from engine.model_library.hub_errors import not_a_name, told_errors

_PART = re.compile(r"-\d{5}-of-(\d{5})\.gguf$", re.I)
_SAFETENSORS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors")
# What beside the weights a folder needs: configuration, tokenizer, template.
_SIDE_FILES = re.compile(r"[^/]+\.(json|jinja|txt)|tokenizer\.model")


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository."""

    name: str
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class HubChoice:
    """Something to download that can then be loaded: one GGUF file, or the safetensors files.

    `problem` says why this program could not open it, empty when it could.
    """

    label: str
    files: tuple[HubFile, ...]
    problem: str = ""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(each.size for each in self.files)


@dataclass(frozen=True, slots=True)
class HubModel:
    """A repository at one revision. `license` is the identifier of its card, may be empty."""

    repository: str
    revision: str  # the commit
    license: str
    gated: bool
    choices: tuple[HubChoice, ...]


@dataclass(frozen=True, slots=True)
class Hub:
    """Which Hub, which cache, whose token. None is what huggingface_hub's own settings say.

    A `token` given here lives as long as this object and is written nowhere.
    """

    endpoint: str | None = None
    token: str | None = field(default=None, repr=False)
    cache: Path = field(default_factory=hub_cache_folder)

    def find(self, text: str) -> HubModel:
        """The model that a name or a page's address means. Raises EngineError."""
        from huggingface_hub import HfApi

        repository = repository_name(text)
        with told_errors(repository):
            api = HfApi(endpoint=self.endpoint, token=self.token)
            info = api.model_info(repository, files_metadata=True)
        files = [HubFile(each.rfilename, each.size or 0) for each in info.siblings or ()]
        tags = [
            tag.removeprefix("license:") for tag in info.tags or () if tag.startswith("license:")
        ]
        return HubModel(
            repository=info.id,
            revision=info.sha or "main",
            license=tags[0] if tags else "",
            gated=bool(info.gated),
            choices=(*_gguf_choices(files), *_safetensors_choices(files)),
        )


def repository_name(text: str) -> str:
    """ "ORG/NAME" from itself or from the address of any of its pages. Raises EngineError."""
    text = text.strip()
    path = urlsplit(text).path if "://" in text else text
    parts = [each for each in path.split("/") if each]
    is_page = "://" in text and len(parts) >= 2
    if not is_page and len(parts) != 2:
        raise not_a_name(text)
    return "/".join(parts[:2])


def _gguf_choices(files: Sequence[HubFile]) -> list[HubChoice]:
    gguf = [f for f in files if f.name.lower().endswith(".gguf") and "mmproj" not in f.name.lower()]
    whole = [HubChoice(f.name, (f,)) for f in gguf if not _PART.search(f.name)]
    split: dict[str, list[HubFile]] = {}
    for each in gguf:
        if _PART.search(each.name):
            split.setdefault(_PART.sub("", each.name), []).append(each)
    for stem, parts in split.items():
        problem = f"It is split into {len(parts):,} files, which this program cannot open yet."
        whole.append(HubChoice(f"{stem}.gguf", tuple(parts), problem))
    return sorted(whole, key=lambda choice: (bool(choice.problem), choice.size))


def _safetensors_choices(files: Sequence[HubFile]) -> list[HubChoice]:
    weights = [f for f in files if _SAFETENSORS.fullmatch(f.name)]
    if not weights or not any(f.name == "config.json" for f in files):
        return []
    beside = [f for f in files if _SIDE_FILES.fullmatch(f.name)]
    return [HubChoice("safetensors", (*beside, *weights))]
