"""A checkpoint folder being written: safetensors shards beside the model's other files.

Everything goes into a folder beside the target that is renamed at the end, so that nothing half
written is ever found under the target's name.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

import torch
from safetensors.torch import save_file

from engine.session import EngineError

MAX_SHARD_BYTES = 4 * 10**9
_INDEX = "model.safetensors.index.json"


def require_free(out: Path) -> None:
    """Raise EngineError when there is something at `out` already, or nowhere to put it."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise EngineError(
            f"{out} exists already.",
            "It is not an empty folder, and nothing is ever written over.",
            "Name another folder, or remove this one first.",
        )
    if not out.absolute().parent.is_dir():
        raise EngineError(
            f"{out.name} cannot be written.",
            f"There is no folder {out.absolute().parent}.",
            "Make it first, or name another folder.",
        )


class FolderWriter:
    """Takes tensors in any order and writes them out shard by shard. Used as a context.

    `path` is where other files go meanwhile. Leaving the context without `finish` removes all.
    """

    def __init__(self, out: Path, max_shard_bytes: int = MAX_SHARD_BYTES) -> None:
        """Raises EngineError as `require_free` does."""
        require_free(out)
        self._out = out.absolute()
        self._max_shard_bytes = max_shard_bytes
        self._pending: dict[str, torch.Tensor] = {}
        self._pending_bytes = 0
        self._shards: list[list[str]] = []
        self.num_bytes = 0

    def __enter__(self) -> FolderWriter:
        name = f".{self._out.name}-"
        self.path = Path(tempfile.mkdtemp(prefix=name, dir=self._out.parent))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Keep a tensor; a full shard is written at once."""
        size = tensor.nbytes
        if self._pending and self._pending_bytes + size > self._max_shard_bytes:
            self._write_shard()
        self._pending[name] = tensor.contiguous()
        self._pending_bytes += size
        self.num_bytes += size

    def finish(self) -> None:
        """Write the last shard and the index, and give the folder its name."""
        if self._pending:
            self._write_shard()
        count = len(self._shards)
        weight_map: dict[str, str] = {}
        for index, names in enumerate(self._shards):
            file_name = "model.safetensors"
            if count > 1:
                file_name = f"model-{index + 1:05}-of-{count:05}.safetensors"
            os.replace(self.path / _part(index), self.path / file_name)
            weight_map |= dict.fromkeys(names, file_name)
        if count > 1:
            index_json = {"metadata": {"total_size": self.num_bytes}, "weight_map": weight_map}
            (self.path / _INDEX).write_text(json.dumps(index_json, indent=2), encoding="utf-8")
        mask = _umask()  # both libraries make what only the owner can read
        for file in self.path.iterdir():
            file.chmod(0o666 & ~mask)
        self.path.chmod(0o777 & ~mask)
        if self._out.exists():
            self._out.rmdir()  # empty: `require_free` has looked
        os.replace(self.path, self._out)

    def _write_shard(self) -> None:
        index = len(self._shards)
        save_file(self._pending, self.path / _part(index), metadata={"format": "pt"})
        self._shards.append(list(self._pending))
        self._pending, self._pending_bytes = {}, 0


def _part(index: int) -> str:
    return f"part-{index}.safetensors"


def _umask() -> int:
    """The process's mask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
