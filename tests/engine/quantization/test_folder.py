"""Folders appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engine.loading.safetensors_files import index_weight_map, weight_files
from engine.quantization.folder import FolderWriter
from engine.session import EngineError


def test_shards_are_named_and_indexed(tmp_path: Path) -> None:
    """Read by our own loader's rules; every tensor once, nothing else beside."""
    tensors = {f"t{i}": torch.full((10,), float(i)) for i in range(5)}
    with FolderWriter(tmp_path / "out", max_shard_bytes=100) as writer:
        for name, tensor in tensors.items():
            writer.add(name, tensor)
        assert not (tmp_path / "out").exists()
        writer.finish()
    files = weight_files(tmp_path / "out")
    assert [file.name for file in files] == [
        f"model-{index:05}-of-00003.safetensors" for index in (1, 2, 3)
    ]
    read = {name: tensor for file in files for name, tensor in load_file(file).items()}
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)
    assert set(index_weight_map(tmp_path / "out" / "model.safetensors.index.json")) == set(tensors)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert writer.num_bytes == 200


def test_one_shard_needs_no_index(tmp_path: Path) -> None:
    """It has the name that everyone looks for; an empty folder may be there already."""
    (tmp_path / "out").mkdir()
    with FolderWriter(tmp_path / "out") as writer:
        writer.add("t", torch.zeros(3, 2).t())
        writer.finish()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model.safetensors"]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    """Neither under the name nor beside it."""

    class Failed(Exception):
        """Anything."""

    def write() -> None:
        with FolderWriter(tmp_path / "out", max_shard_bytes=1) as writer:
            writer.add("a", torch.zeros(4))
            writer.add("b", torch.zeros(4))
            raise Failed

    with pytest.raises(Failed):
        write()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_over(tmp_path: Path) -> None:
    """A folder with anything in it, a file, and a place that is not there."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "model.safetensors").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "full", tmp_path / "file"):
        with pytest.raises(EngineError, match="exists already"):
            FolderWriter(out)
    with pytest.raises(EngineError, match="There is no folder"):
        FolderWriter(tmp_path / "nowhere" / "out")
    assert (tmp_path / "full" / "model.safetensors").read_text() == "mine"
