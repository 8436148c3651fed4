"""The door of loading: `open_checkpoint` and the `Checkpoint` that both file formats become."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

from engine.config import SamplingParams
from engine.loading.files import CheckpointError, bad_file
from engine.loading.gguf_file import GgufCheckpoint
from engine.loading.model_config import ModelConfig, Rope, RopeScaling
from engine.loading.safetensors_files import (
    SafetensorsCheckpoint,
    is_pickle,
    is_shard,
    no_pickle_error,
)
from engine.loading.tensors import QuantizedBlocks, TensorFormat, TensorInfo, TensorReader
from engine.tokenizer import Tokenizer

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "ModelConfig",
    "QuantizedBlocks",
    "Rope",
    "RopeScaling",
    "TensorFormat",
    "TensorInfo",
    "open_checkpoint",
]


class Checkpoint(TensorReader, Protocol):
    """A model on disk, its headers read and checked; weights are read one tensor at a time.

    `tensors` holds what the architecture uses, by Hugging Face name, all present and of the right
    shape. `chat_template` is jinja2 source, None when the model brings none.
    """

    @property
    def source(self) -> Literal["gguf", "safetensors"]:
        """The file format."""
        ...

    @property
    def name(self) -> str:
        """What to call the model in the window."""
        ...

    @property
    def path(self) -> str:
        """The file or folder that was opened."""
        ...

    @property
    def file_bytes(self) -> int:
        """Bytes of the files that hold the weights."""
        ...

    @property
    def notices(self) -> tuple[str, ...]:
        """What a person should know about the file, a sentence each."""
        ...

    @property
    def chat_template(self) -> str | None:
        """jinja2 source of the chat template."""
        ...

    @property
    def default_sampling(self) -> SamplingParams:
        """The sampling its makers chose, ours where the files are silent."""
        ...

    def tokenizer(self) -> Tokenizer:
        """Build the model's tokenizer, its end tokens those that any of the files names.

        Takes up to a second for a large vocabulary. Raises EngineError.
        """
        ...

    def close(self) -> None:
        """Release the files. Tensors that were read stay valid."""
        ...


def open_checkpoint(path: str) -> Checkpoint:
    """Open a .gguf file, a .safetensors file, or a folder with either.

    Reads headers only. Raises CheckpointError (an EngineError) saying what, why and what next.
    """
    location = Path(path)
    try:
        location = location.expanduser()
        is_folder, exists = location.is_dir(), location.exists()
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a NUL in it, no home
        raise _cannot_open(location, error) from error
    if not exists or not path:
        raise CheckpointError(
            "not_found",
            f"{location.name or repr(path)} was not found.",
            f"There is no file or folder {location}.",
            "Check the path, or choose another model.",
        )
    try:
        return _open_folder(location) if is_folder else _open_file(location)
    except OSError as error:  # no permission, a disk that is gone
        raise _cannot_open(location, error) from error


def _cannot_open(location: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        "not_found",
        f"{location.name[:80] or 'The model'} cannot be opened.",
        f"{getattr(error, 'strerror', None) or error}.",
        "Check the path and its permissions, or choose another model.",
    )


def _open_folder(folder: Path) -> Checkpoint:
    has_config = (folder / "config.json").exists()
    gguf_files = sorted(folder.glob("*.gguf"))
    has_safetensors = any(folder.glob("*.safetensors"))
    if gguf_files and not (has_config and has_safetensors):
        if len(gguf_files) > 1:
            raise bad_file(
                folder,
                f"It holds {len(gguf_files):,} GGUF files: {gguf_files[0].name}, "
                f"{gguf_files[1].name} ...",
                "Choose one of the files.",
            )
        return GgufCheckpoint(gguf_files[0])
    if not has_config and not has_safetensors and any(map(is_pickle, folder.iterdir())):
        raise no_pickle_error(folder)
    return SafetensorsCheckpoint(folder)


def _open_file(path: Path) -> Checkpoint:
    if is_pickle(path):
        raise no_pickle_error(path)
    if path.suffix.lower() == ".safetensors":
        return SafetensorsCheckpoint(path.parent, None if is_shard(path) else path)
    if path.suffix.lower() == ".gguf" or _begins_as_gguf(path):
        return GgufCheckpoint(path)
    if path.name in ("config.json", "model.safetensors.index.json"):
        return SafetensorsCheckpoint(path.parent)
    raise bad_file(
        path,
        "It is neither a GGUF nor a safetensors file.",
        "Choose a .gguf file, a .safetensors file or a model's folder.",
    )


def _begins_as_gguf(path: Path) -> bool:
    """Files in Ollama's store are GGUF without the suffix."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False
