"""Broken downloads and hostile files: each is refused with the file's name and what is wrong."""

from __future__ import annotations

import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from engine.loading.checkpoint import CheckpointError, open_checkpoint
from tests.engine.loading import tiny_files

SINGLE = "model.safetensors"
FIRST, SECOND = (f"model-0000{i}-of-00002.safetensors" for i in (1, 2))
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
GGUF = "tiny.gguf"
Q_PROJ = "model.layers.0.self_attn.q_proj.weight"
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4665ab6c\nsize 269060552\n"

Break = Callable[[Path], object]


def overwrite(name: str, data: bytes) -> Break:
    """Other bytes in the file's place."""
    return lambda folder: (folder / name).write_bytes(data)


def cut(name: str, num_bytes: int) -> Break:
    """A download that ended early."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-num_bytes])


def cut_to(name: str, num_bytes: int) -> Break:
    """Only the file's beginning."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:num_bytes])


def append(name: str, data: bytes) -> Break:
    """Bytes behind the end."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes() + data)


def replace_tensor(name: str, tensor: torch.Tensor | None) -> Break:
    """One tensor of the single file changed, added, or, with None, left out."""

    def change(folder: Path) -> None:
        tensors = tiny_files.hf_tensors() | ({} if tensor is None else {name: tensor})
        if tensor is None:
            del tensors[name]
        save_file(tensors, folder / SINGLE)

    return change


def edit_json(name: str, **fields: object) -> Break:
    """Fields of a JSON file changed."""

    def change(folder: Path) -> None:
        values = json.loads((folder / name).read_text()) | fields
        (folder / name).write_text(json.dumps(values))

    return change


def edit_header(old: bytes, new: bytes) -> Break:
    """The single file's header changed, its length kept."""
    assert len(old) == len(new)

    def change(folder: Path) -> None:
        data = (folder / SINGLE).read_bytes()
        assert old in data
        (folder / SINGLE).write_bytes(data.replace(old, new, 1))

    return change


def swap_shards(folder: Path) -> None:
    """Each shard under the other's name."""
    (folder / FIRST).rename(folder / "aside")
    (folder / SECOND).rename(folder / FIRST)
    (folder / "aside").rename(folder / SECOND)


def point_index_to(name: str) -> Break:
    """The index says that a tensor lies in the file `name`."""

    def change(folder: Path) -> None:
        weight_map = json.loads((folder / INDEX).read_text())["weight_map"]
        tiny_files.write_index(folder, weight_map | {Q_PROJ: name})

    return change


def zip_in_disguise(folder: Path) -> None:
    """What torch.save writes, renamed."""
    with zipfile.ZipFile(folder / SINGLE, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}))


def gguf_tensor(name: str, data: np.ndarray) -> Break:
    """The GGUF with one more tensor, or another one."""
    return lambda folder: tiny_files.write_gguf(folder / GGUF, tensors={name: data})


def gguf_without_tensors(folder: Path) -> None:
    """A vocabulary without a model, as llama.cpp's tests have them."""
    writer = gguf.GGUFWriter(folder / GGUF, "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def make(kind: str, folder: Path) -> Path:
    """A valid checkpoint; what is to be opened."""
    if kind == "gguf":
        folder.mkdir()
        return tiny_files.write_gguf(folder / GGUF)
    if kind == "shards":
        tiny_files.write_shards(folder)
        return folder
    return tiny_files.write_folder(folder)


SAFETENSORS: list[tuple[str, Break, str, str]] = [
    ("truncated", cut(SINGLE, 100), SINGLE, "truncated"),
    ("zero bytes", overwrite(SINGLE, b""), SINGLE, "empty"),
    ("LFS pointer", overwrite(SINGLE, LFS_POINTER), SINGLE, "Git LFS pointer"),
    ("web page", overwrite(SINGLE, b"<!DOCTYPE html><html>404"), SINGLE, "web page"),
    ("zip in disguise", zip_in_disguise, SINGLE, "zip archive"),
    ("pickle in disguise", overwrite(SINGLE, pickle.dumps([1])), SINGLE, "pickle"),
    ("header longer than the file", overwrite(SINGLE, b"\xff" * 16), SINGLE, "header would take"),
    (
        "header is a JSON bomb",
        overwrite(SINGLE, (200_000).to_bytes(8, "little") + b"[" * 200_000),
        SINGLE,
        "nested too deeply",
    ),
    ("overlapping tensors", edit_header(b"[0,", b"[4,"), SINGLE, "do not fit"),
    ("wrong dtype", edit_header(b'"F32"', b'"I32"'), SINGLE, "I32"),
    ("dtype nobody knows", edit_header(b'"F32"', b'"X99"'), SINGLE, "unknown dtype 'X99'"),
    ("trailing bytes", append(SINGLE, b"x" * 9), SINGLE, "9 bytes"),
    ("missing tensor", replace_tensor(Q_PROJ, None), "m", f"{Q_PROJ} is missing"),
    ("extra tensor", replace_tensor("extra.weight", torch.zeros(3)), SINGLE, "extra.weight"),
    ("wrong shape", replace_tensor(Q_PROJ, torch.zeros(3, 64)), SINGLE, r"\[3, 64\], not"),
    ("integer weights", replace_tensor(Q_PROJ, torch.zeros(64, 64).int()), SINGLE, "I32"),
    ("no head", edit_json(CONFIG, tie_word_embeddings=False), "m", "lm_head.weight is missing"),
    ("config is no JSON", overwrite(CONFIG, b'{"model_type": '), CONFIG, "not valid JSON"),
    ("config is a JSON bomb", overwrite(CONFIG, b'{"a":' * 99_999), CONFIG, "nested too deeply"),
    ("endless number", overwrite(CONFIG, b'{"a": ' + b"9" * 9999 + b"}"), CONFIG, "not valid JSON"),
    ("a billion layers", edit_json(CONFIG, num_hidden_layers=10**9), CONFIG, "num_hidden_layers"),
    ("heads do not divide", edit_json(CONFIG, num_key_value_heads=3), CONFIG, "share 3 key"),
    (
        "too many experts",
        edit_json(
            CONFIG,
            model_type="mixtral",
            num_hidden_layers=4096,
            num_local_experts=4096,
            num_experts_per_tok=2,
        ),
        CONFIG,
        "too many",
    ),
    ("no config", lambda f: (f / CONFIG).unlink(), "m", "no config.json"),
    ("no weights", lambda f: (f / SINGLE).unlink(), "m", "holds no weights"),
]
SHARDS: list[tuple[str, Break, str, str]] = [
    ("missing shard", lambda f: (f / SECOND).unlink(), SECOND, "part of the model's weights"),
    ("truncated shard", cut(SECOND, 8), SECOND, "truncated"),
    ("swapped shards", swap_shards, INDEX, "does not hold it"),
    ("shard of another model", lambda f: shutil.copy(f / FIRST, f / SECOND), INDEX, "not hold it"),
    ("index names absent file", point_index_to("model-3.safetensors"), "model-3", "lies there"),
    ("index leads out", point_index_to("../../x.safetensors"), INDEX, "no file of its folder"),
    ("index without a map", overwrite(INDEX, b'{"weight_map": []}'), INDEX, "no weight_map"),
    ("no index", lambda f: (f / INDEX).unlink(), "m", f"no {INDEX}"),
]
GGUFS: list[tuple[str, Break, str, str]] = [
    ("truncated", cut(GGUF, 100), GGUF, "truncated"),
    (
        "header cut",
        lambda f: (f / GGUF).write_bytes((f / GGUF).read_bytes()[:500]),
        GGUF,
        "more than the file can hold",
    ),
    ("zero bytes", overwrite(GGUF, b""), GGUF, "empty"),
    ("LFS pointer", overwrite(GGUF, LFS_POINTER), GGUF, "Git LFS pointer"),
    ("something else", overwrite(GGUF, b"GGML" + bytes(64)), GGUF, "does not begin with GGUF"),
    (
        "endless counts",
        overwrite(GGUF, b"GGUF\x03\0\0\0" + b"\xff" * 16),
        GGUF,
        "more than the file can hold",
    ),
    ("no tensors", gguf_without_tensors, GGUF, "missing"),
    (
        "wrong shape",
        gguf_tensor("blk.0.attn_q.weight", np.zeros((3, 64), np.float32)),
        GGUF,
        r"\[3, 64\], not",
    ),
    ("extra tensor", gguf_tensor("ssm.weight", np.zeros(3, np.float32)), GGUF, "ssm.weight"),
]
CASES = [
    pytest.param(kind, spoil, name, fault, id=f"{kind}: {case}")
    for kind, cases in (("single", SAFETENSORS), ("shards", SHARDS), ("gguf", GGUFS))
    for case, spoil, name, fault in cases
]


@pytest.mark.parametrize(("kind", "spoil", "name", "fault"), CASES)
def test_a_malformed_checkpoint_is_refused_in_words(
    tmp_path: Path, kind: str, spoil: Break, name: str, fault: str
) -> None:
    """What: a sentence with the file's name; why: the fault; and what to do."""
    path = make(kind, tmp_path / "m")
    open_checkpoint(str(path)).close()
    spoil(tmp_path / "m")
    with pytest.raises(CheckpointError, match=fault) as caught:
        open_checkpoint(str(path))
    error = caught.value
    assert name in error.what
    assert all(text.endswith(".") for text in (error.what, error.why, error.next_step))
    assert len(str(error)) < 400
