"""Safetensors folders: single, sharded, tied, and every way in which one can be broken."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from engine.loading.checkpoint import CheckpointError, open_checkpoint
from engine.loading.safetensors_header import read_safetensors_header
from tests.engine.loading import tiny_files

LFS_POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4665ab6cc7bdc6ce5db31a3ce2d3c2ae3d8e25a1\nsize 269060552\n"
)


def assert_all_tensors(path: Path) -> None:
    """The checkpoint at `path` has the tiny model's weights, value by value."""
    checkpoint = open_checkpoint(str(path))
    expected = tiny_files.hf_tensors()
    assert set(checkpoint.tensors) == set(expected)
    for name, values in expected.items():
        assert torch.equal(checkpoint.dense(name), values)
        assert checkpoint.quantized(name) is None


def test_single_file_reads_value_by_value(tmp_path: Path) -> None:
    """A folder and the file in it open as the same model, named after the folder."""
    folder = tiny_files.write_folder(tmp_path / "Tiny Llama é")
    assert_all_tensors(folder)
    assert_all_tensors(folder / "model.safetensors")
    checkpoint = open_checkpoint(str(folder))
    assert checkpoint.name == "Tiny Llama é"
    assert checkpoint.source == "safetensors"
    assert checkpoint.file_bytes == (folder / "model.safetensors").stat().st_size


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays_as_stored(tmp_path: Path, dtype: torch.dtype) -> None:
    """Nothing is converted on the way in."""
    folder = tiny_files.write_folder(tmp_path)
    tensors = {name: values.to(dtype) for name, values in tiny_files.hf_tensors().items()}
    save_file(tensors, folder / "model.safetensors")
    checkpoint = open_checkpoint(str(folder))
    name = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(checkpoint.dense(name), tensors[name])


def test_tensor_outlives_its_file(tmp_path: Path) -> None:
    """Closing the checkpoint and removing the file take nothing away from what was read."""
    folder = tiny_files.write_folder(tmp_path)
    checkpoint = open_checkpoint(str(folder))
    values = checkpoint.dense("model.norm.weight")
    checkpoint.close()
    (folder / "model.safetensors").unlink()
    assert torch.equal(values, tiny_files.hf_tensors()["model.norm.weight"])


def test_writing_to_a_tensor_leaves_the_file_alone(tmp_path: Path) -> None:
    """Tensors lie in a private map of the file."""
    folder = tiny_files.write_folder(tmp_path)
    before = (folder / "model.safetensors").read_bytes()
    open_checkpoint(str(folder)).dense("model.norm.weight").zero_()
    assert (folder / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("body", "head"),
    [
        ("language_model.model.", "language_model.lm_head."),
        ("model.language_model.", "lm_head."),
    ],
)
def test_text_model_of_one_that_also_sees(tmp_path: Path, body: str, head: str) -> None:
    """Its config is a part of the whole's, its tensors have a prefix; the tower is left out."""
    config = {"model_type": "mistral3", "vision_config": {"hidden_size": 8}}
    text = tiny_files.CONFIG | {"tie_word_embeddings": False}
    tmp_path.joinpath("config.json").write_text(json.dumps(config | {"text_config": text}))
    plain = tiny_files.hf_tensors() | {"lm_head.weight": torch.ones(40, 64)}
    wrapped = {
        name.replace("model.", body, 1).replace("lm_head.", head, 1): values
        for name, values in plain.items()
    }
    other = ("vision_tower.patch.weight", "multi_modal_projector.linear.weight")
    save_file(wrapped | {name: torch.ones(2) for name in other}, tmp_path / "model.safetensors")
    checkpoint = open_checkpoint(str(tmp_path))
    assert checkpoint.config.architecture == "llama"
    assert all(torch.equal(checkpoint.dense(name), values) for name, values in plain.items())
    assert checkpoint.notices == (
        "2 tensors of the checkpoint are for images or sound and are left out: the model is used "
        "for text only.",
    )


def test_shards_read_like_one_file(tmp_path: Path) -> None:
    """The index says where each tensor lies; opening one shard opens the model."""
    tiny_files.write_shards(tmp_path)
    assert_all_tensors(tmp_path)
    assert_all_tensors(tmp_path / "model-00002-of-00002.safetensors")
    assert_all_tensors(tmp_path / "model.safetensors.index.json")


def test_stray_single_file_beside_shards_is_ignored(tmp_path: Path) -> None:
    """A model.safetensors left over from another download is not mixed in."""
    tiny_files.write_shards(tmp_path)
    wrong = {name: torch.zeros_like(values) for name, values in tiny_files.hf_tensors().items()}
    save_file(wrong, tmp_path / "model.safetensors")
    assert_all_tensors(tmp_path)


def test_index_whose_shards_are_all_gone_is_stale(tmp_path: Path) -> None:
    """A merged model keeps its old index at times; the single file is the model then."""
    tiny_files.write_folder(tmp_path)
    tiny_files.write_index(tmp_path, {"model.norm.weight": "model-00001-of-00009.safetensors"})
    assert_all_tensors(tmp_path)


def test_missing_shard_is_named(tmp_path: Path) -> None:
    """One shard less is an error with its name, whatever else lies there."""
    tiny_files.write_shards(tmp_path)
    save_file(tiny_files.hf_tensors(), tmp_path / "model.safetensors")
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model-00002-of-00002\.safetensors was not found"):
        open_checkpoint(str(tmp_path))


def test_index_that_names_an_absent_tensor_is_refused(tmp_path: Path) -> None:
    """Index and shards of two versions do not pass for a model."""
    weight_map = tiny_files.write_shards(tmp_path)
    tiny_files.write_index(
        tmp_path, {**weight_map, "model.extra": "model-00001-of-00002.safetensors"}
    )
    with pytest.raises(CheckpointError, match=r"model\.extra lies in .*does not hold it"):
        open_checkpoint(str(tmp_path))


def test_tensor_in_two_shards_comes_from_the_one_the_index_names(tmp_path: Path) -> None:
    """A duplicate does not win by chance."""
    weight_map = tiny_files.write_shards(tmp_path)
    other = {
        name: values
        for name, values in tiny_files.hf_tensors().items()
        if weight_map[name] == "model-00002-of-00002.safetensors"
    }
    duplicate = next(name for name in weight_map if name not in other)
    shape = tiny_files.HF_SHAPES[duplicate]
    save_file(
        {**other, duplicate: torch.zeros(shape)}, tmp_path / "model-00002-of-00002.safetensors"
    )
    assert_all_tensors(tmp_path)


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/etc/x.safetensors", "x.bin", "a\0.safetensors"]
)
def test_index_cannot_lead_out_of_its_folder(tmp_path: Path, name: str) -> None:
    """An index is no way to other files."""
    tiny_files.write_config(tmp_path)
    tiny_files.write_index(tmp_path, {"model.norm.weight": name})
    with pytest.raises(CheckpointError, match="no file of its folder"):
        open_checkpoint(str(tmp_path))


def test_shards_without_an_index_are_not_guessed_together(tmp_path: Path) -> None:
    """Globbing would merge what does not belong together."""
    tiny_files.write_shards(tmp_path)
    (tmp_path / "model.safetensors.index.json").unlink()
    with pytest.raises(CheckpointError, match=r"no model\.safetensors\.index\.json"):
        open_checkpoint(str(tmp_path))


def test_tied_config_wins_over_a_head_in_the_file(tmp_path: Path) -> None:
    """tie_word_embeddings=true with an lm_head in the file: the embedding is the head."""
    folder = tiny_files.write_folder(tmp_path)
    head = torch.zeros(tiny_files.VOCAB, tiny_files.HIDDEN)
    save_file({**tiny_files.hf_tensors(), "lm_head.weight": head}, folder / "model.safetensors")
    checkpoint = open_checkpoint(str(folder))
    assert checkpoint.config.tie_word_embeddings
    assert "lm_head.weight" not in checkpoint.tensors


def test_untied_config_without_a_head_is_refused(tmp_path: Path) -> None:
    """tie_word_embeddings=false without lm_head would run on a random head."""
    folder = tiny_files.write_folder(tmp_path, {"tie_word_embeddings": False})
    with pytest.raises(CheckpointError, match=r"lm_head\.weight is missing.*tie_word_embeddings"):
        open_checkpoint(str(folder))


def test_wrong_shape_is_named(tmp_path: Path) -> None:
    """A config of another size is told by the first tensor that does not fit."""
    folder = tiny_files.write_folder(tmp_path, {"intermediate_size": 128})
    with pytest.raises(CheckpointError, match=r"gate_proj\.weight is \[96, 64\], not \[128, 64\]"):
        open_checkpoint(str(folder))


def test_integer_weights_are_refused(tmp_path: Path) -> None:
    """Packed weights are not taken for values."""
    folder = tiny_files.write_folder(tmp_path)
    tensors = {name: values.to(torch.int8) for name, values in tiny_files.hf_tensors().items()}
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="stored as I8"):
        open_checkpoint(str(folder))


def test_truncated_shard_is_named(tmp_path: Path) -> None:
    """A download that stopped is told from the header, before anything is read."""
    tiny_files.write_shards(tmp_path)
    shard = tmp_path / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match=r"model-00002-of-00002\.safetensors.*truncated"):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_lfs_pointer_is_called_one(tmp_path: Path, name: str) -> None:
    """The commonest broken download gets its own sentence and the command that mends it."""
    folder = tiny_files.write_folder(tmp_path)
    (folder / name).write_bytes(LFS_POINTER)
    with pytest.raises(CheckpointError, match="Git LFS pointer") as caught:
        open_checkpoint(str(folder))
    assert "git lfs pull" in caught.value.next_step


def test_folder_without_config_is_told(tmp_path: Path) -> None:
    """Weights alone do not say what the model is."""
    save_file(tiny_files.hf_tensors(), tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        open_checkpoint(str(tmp_path))


def test_missing_path_says_where_it_looked(tmp_path: Path) -> None:
    """Not found is its own kind, with the path in the sentence."""
    with pytest.raises(CheckpointError, match="There is no file or folder") as caught:
        open_checkpoint(str(tmp_path / "nowhere"))
    assert caught.value.kind == "not_found"


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 5000])
def test_impossible_paths_are_errors(path: str) -> None:
    """What is no path at all is told like a path that leads nowhere."""
    with pytest.raises(CheckpointError):
        open_checkpoint(path)


def test_pickled_weights_are_never_opened(tmp_path: Path) -> None:
    """A folder with only .bin files, and a .pt file, are refused with the reason."""
    tiny_files.write_config(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    for path in (tmp_path, tmp_path / "pytorch_model.bin"):
        with pytest.raises(CheckpointError, match="opening a pickle can run any code"):
            open_checkpoint(str(path))


def test_hugging_face_cache_is_named_after_the_repository(tmp_path: Path) -> None:
    """In the cache the folder's own name is a commit."""
    folder = tmp_path / "models--Org--My-Model" / "snapshots" / "0a1b2c"
    assert open_checkpoint(str(tiny_files.write_folder(folder))).name == "My-Model"


def one_tensor(**changes: Any) -> dict[str, Any]:
    """A header of one tensor of eight bytes, with fields changed."""
    return {"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (one_tensor(dtype="F99"), "unknown dtype"),
        (one_tensor(dtype=[]), "unknown dtype"),
        (one_tensor(shape=[-2]), "no valid shape"),
        (one_tensor(shape=[True, 2]), "no valid shape"),
        (one_tensor(shape="2"), "no valid shape"),
        (one_tensor(shape=[2**62, 2**62]), "do not fit"),
        (one_tensor(data_offsets=[0, 2**70]), "no valid data_offsets"),
        (one_tensor(data_offsets=[8, 0]), "do not fit"),
        (one_tensor(data_offsets=[0]), "no valid data_offsets"),
        (one_tensor(data_offsets=[4, 12]), "gap"),
        ({**one_tensor(), "u": one_tensor()["t"]}, "overlaps"),
        (one_tensor(shape=[4], data_offsets=[0, 16]), "truncated"),
        (one_tensor(shape=[1], data_offsets=[0, 4]), "belong to no tensor"),
        ({"t": 1}, "is not an object"),
        ([], "does not hold an object"),
    ],
)
def test_header_that_does_not_add_up_is_refused(tmp_path: Path, header: Any, message: str) -> None:
    """Types, shapes, offsets and sizes must agree before the library sees the file."""
    path = tmp_path / "x.safetensors"
    data = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(data)) + data + bytes(8))
    with pytest.raises(CheckpointError, match=message):
        read_safetensors_header(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"\x08\0\0", "truncated"),
        (struct.pack("<Q", 2**60) + b"{}", "would take"),
        (struct.pack("<Q", 50_000) + b"[" * 50_000, "nested too deeply"),
        (struct.pack("<Q", 16) + b'{"a":{},"a":{}} ', "comes twice"),
        (struct.pack("<Q", 4) + b"\xff\xfe{}", "not valid JSON"),
        (struct.pack("<Q", 9000) + b'{"a":' + b"1" * 8994 + b"}", "not valid JSON"),
        (b"<!DOCTYPE html><html>" + bytes(100), "web page"),
    ],
)
def test_broken_header_bytes_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    """Lengths, nesting and encoding of the header are bounded."""
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=message):
        read_safetensors_header(path)


def test_header_longer_than_any_real_one_is_not_parsed(tmp_path: Path) -> None:
    """A sparse file with a header of gigabytes costs nothing."""
    path = tmp_path / "x.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 2**33))
        file.truncate(2**33 + 8)
    with pytest.raises(CheckpointError, match="too many to be one"):
        read_safetensors_header(path)


@pytest.mark.parametrize("case", ["gqa", "tied", "biases", "sharded", "head_dim"])
def test_golden_folders_open(case: str) -> None:
    """Folders that transformers saved are complete and of the shapes their configs promise."""
    folder = Path(__file__).parents[2] / "golden" / "tiny" / case
    checkpoint = open_checkpoint(str(folder))
    for name, info in checkpoint.tensors.items():
        assert tuple(checkpoint.dense(name).shape) == info.shape
        assert bool(np.isfinite(checkpoint.dense(name).numpy()).all())
