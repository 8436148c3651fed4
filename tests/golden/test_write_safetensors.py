"""The checkpoint writer that golden files, loaders and benchmarks start from."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from tests.golden import write_safetensors as writer

GOLDEN = Path(__file__).parent


@given(heads=st.integers(1, 4), half_dim=st.integers(1, 8), width=st.sampled_from([None, 1, 5]))
def test_unpermute_undoes_the_gguf_row_order(heads: int, half_dim: int, width: int | None) -> None:
    """Rows (and biases) come back from the interleaved order GGUF stores."""
    shape = (heads * 2 * half_dim,) if width is None else (heads * 2 * half_dim, width)
    original = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    halves = original.reshape(heads, 2, half_dim, *shape[1:])
    stored = np.stack([halves[:, 0], halves[:, 1]], axis=2).reshape(shape)
    np.testing.assert_array_equal(writer.unpermute_rope_rows(stored, heads), original)


@pytest.mark.parametrize("num_shards", [1, 3])
def test_every_tensor_lands_in_the_shard_the_index_names(tmp_path: Path, num_shards: int) -> None:
    """Sharded or not, all weights are on disk once, in bfloat16 as torch rounds."""
    weights = {f"w{i}": np.full((i + 1, 4), 1.0 + i / 512, np.float32) for i in range(5)}
    writer.write_weights(weights, tmp_path, "bf16", num_shards)
    files = {file.name: safe_open(file, "pt") for file in tmp_path.glob("*.safetensors")}
    assert len(files) == num_shards
    assert sorted(name for file in files.values() for name in file.keys()) == sorted(weights)  # noqa: SIM118
    if num_shards > 1:
        index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
        for name, file_name in index["weight_map"].items():
            assert files[file_name].get_tensor(name).shape == weights[name].shape
        assert index["metadata"]["total_size"] == sum(w.size for w in weights.values()) * 2


def test_more_shards_than_tensors_is_refused(tmp_path: Path) -> None:
    """An empty shard would be a file no loader expects."""
    with pytest.raises(ValueError, match="1 tensors cannot fill 2 shards"):
        writer.write_weights({"w": np.zeros((1, 1), np.float32)}, tmp_path, "fp32", 2)


@pytest.mark.starter
def test_tokenizer_gives_the_golden_ids() -> None:
    """The tokenizer built from GGUF metadata encodes and decodes as recorded."""
    tokenizer = writer.build_tokenizer(gguf.GGUFReader(writer.find_starter_gguf()))
    golden = json.loads((GOLDEN / "smollm2_tokenizer.json").read_text(encoding="utf-8"))
    for row in golden["strings"]:
        assert tokenizer.encode(row["text"]).ids == row["ids"], row["text"]
        assert tokenizer.decode(row["ids"], skip_special_tokens=False) == row["text"]


def test_golden_files_stay_small() -> None:
    """Each file under 1 MB, all under 20 MB: a clone must not pay for the references."""
    sizes = {
        file.name: file.stat().st_size
        for file in GOLDEN.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert max(sizes.values()) < 1_000_000
    assert sum(sizes.values()) < 20_000_000
