"""GGUF files: exact values, exact payload, names and metadata, and the starter model."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from engine.loading.checkpoint import Checkpoint, CheckpointError, QuantizedBlocks, open_checkpoint
from engine.loading.gguf_file import display_name
from engine.loading.gguf_names import canonical_name
from engine.starter import starter_model_path
from tests.engine.loading import tiny_files
from tests.engine.loading.test_configs import scaling_of
from tests.golden.write_safetensors import hugging_face_name, unpermute_rope_rows

Q = gguf.GGMLQuantizationType


def dequantized(blocks: QuantizedBlocks) -> torch.Tensor:
    """codes * scale + minimum in float32, group by group."""
    num_rows, num_columns = blocks.codes.shape
    codes = blocks.codes.float().view(num_rows, -1, blocks.codes.shape[1] // blocks.scale.shape[1])
    values = codes * blocks.scale.float()[..., None]
    if blocks.minimum is not None:
        values = values + blocks.minimum.float()[..., None]
    return values.view(num_rows, num_columns)


def library_values(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """What the gguf library itself reads, Q and K rows in Hugging Face's order."""
    values = {}
    for tensor in gguf.GGUFReader(path).tensors:
        data = np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type))
        part = tensor.name.split(".")[-2]
        heads = {"attn_q": tiny_files.HEADS, "attn_k": tiny_files.KV_HEADS}.get(part)
        name = hugging_face_name(tensor.name)
        values[name] = data if heads is None else unpermute_rope_rows(data, heads)
    return values


@pytest.mark.parametrize("quantization", [None, Q.BF16, Q.Q4_0, Q.Q4_1, Q.Q5_1, Q.Q8_0])
def test_values_are_those_of_the_gguf_library(
    tmp_path: Path, quantization: gguf.GGMLQuantizationType | None
) -> None:
    """Every tensor, whatever its type, has the library's values in Hugging Face's row order."""
    path = tiny_files.write_gguf(tmp_path / "tiny.gguf", quantization)
    checkpoint = open_checkpoint(str(path))
    expected = library_values(path)
    assert set(checkpoint.tensors) == set(expected)
    for name, values in expected.items():
        assert checkpoint.tensors[name].shape == values.shape
        torch.testing.assert_close(
            checkpoint.dense(name).float(), torch.from_numpy(values).float(), rtol=0, atol=0
        )


@pytest.mark.parametrize("quantization", [Q.Q4_0, Q.Q4_1, Q.Q8_0])
def test_quantized_payload_is_without_loss(
    tmp_path: Path, quantization: gguf.GGMLQuantizationType
) -> None:
    """codes, scale and minimum give the file's own values, also for the permuted Q and K."""
    checkpoint = open_checkpoint(str(tiny_files.write_gguf(tmp_path / "tiny.gguf", quantization)))
    matrices = [name for name, info in checkpoint.tensors.items() if len(info.shape) == 2]
    for name in matrices:
        blocks = checkpoint.quantized(name)
        assert blocks is not None
        assert blocks.scale.dtype == torch.float16
        assert torch.equal(dequantized(blocks), checkpoint.dense(name))
    assert checkpoint.quantized("model.norm.weight") is None


def test_q4_0_scale_without_an_exact_minimum_is_not_offered(tmp_path: Path) -> None:
    """A Q4_0 scale whose -8 fold overflows float16 is left to the dense path, values kept."""
    path = tiny_files.write_gguf(tmp_path / "tiny.gguf", Q.Q4_0)
    tensor = next(t for t in gguf.GGUFReader(path).tensors if t.name == "blk.0.ffn_up.weight")
    data = bytearray(path.read_bytes())
    data[tensor.data_offset : tensor.data_offset + 2] = np.float16(60_000).tobytes()
    path.write_bytes(bytes(data))
    checkpoint = open_checkpoint(str(path))
    name = "model.layers.0.mlp.up_proj.weight"
    assert checkpoint.quantized(name) is None
    assert checkpoint.dense(name).abs().max() > 60_000


def test_biases_of_q_and_k_are_reordered_with_their_rows(tmp_path: Path) -> None:
    """A bias of Q belongs to the same output as its row and moves with it."""
    bias = np.arange(tiny_files.HEADS * tiny_files.HEAD_DIM, dtype=np.float32)
    kv = np.arange(tiny_files.KV_HEADS * tiny_files.HEAD_DIM, dtype=np.float32)
    tensors = {"blk.0.attn_q.bias": bias, "blk.0.attn_k.bias": kv, "blk.0.attn_v.bias": kv}
    checkpoint = open_checkpoint(
        str(tiny_files.write_gguf(tmp_path / "tiny.gguf", tensors=tensors))
    )
    assert checkpoint.config.attention_bias
    assert not checkpoint.config.attention_output_bias
    prefix = "model.layers.0.self_attn."
    q_bias = checkpoint.dense(prefix + "q_proj.bias").numpy()
    np.testing.assert_array_equal(q_bias, unpermute_rope_rows(bias, tiny_files.HEADS))
    np.testing.assert_array_equal(checkpoint.dense(prefix + "v_proj.bias").numpy(), kv)


def test_rope_factors_become_a_scaling(tmp_path: Path) -> None:
    """`rope_freqs.weight`, GGUF's form of llama3 scaling, is in the config, not in the weights."""
    factors = np.linspace(1, 8, tiny_files.HEAD_DIM // 2, dtype=np.float32)
    path = tiny_files.write_gguf(tmp_path / "t.gguf", tensors={"rope_freqs.weight": factors})
    checkpoint = open_checkpoint(str(path))
    scaling = scaling_of(checkpoint.config)
    assert scaling is not None
    assert scaling.frequency_factors == tuple(factors.tolist())
    assert "rope_freqs.weight" not in checkpoint.tensors


def test_yarn_factor_of_the_file_multiplies_yarns_own(tmp_path: Path) -> None:
    """rope.scaling.attn_factor 2 at factor 4 means 2 (0.1 ln 4 + 1)."""
    metadata = {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 32,
        "llama.rope.scaling.attn_factor": 2.0,
    }
    path = tiny_files.write_gguf(tmp_path / "t.gguf", metadata=metadata)
    scaling = scaling_of(open_checkpoint(str(path)).config)
    assert scaling is not None
    assert scaling.attention_factor == pytest.approx(2 * (0.1 * np.log(4) + 1))
    assert (scaling.type, scaling.original_context_length) == ("yarn", 32)


def test_untied_head_is_found(tmp_path: Path) -> None:
    """With output.weight in the file the head is its own matrix."""
    head = np.zeros((tiny_files.VOCAB, tiny_files.HIDDEN), np.float32)
    path = tiny_files.write_gguf(tmp_path / "t.gguf", tensors={"output.weight": head})
    checkpoint = open_checkpoint(str(path))
    assert not checkpoint.config.tie_word_embeddings
    assert not checkpoint.dense("lm_head.weight").any()


@pytest.mark.parametrize(
    ("file_name", "name"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct"),
        ("Llama-3.2-1B-Instruct-Q4_K_M.gguf", "Llama-3.2-1B-Instruct"),
        ("tiny-IQ2_XS.gguf", "tiny"),
        ("tinyllama-1.1b-f16.gguf", "tinyllama-1.1b"),
        ("model.BF16.gguf", "model"),
        ("Q4_0.gguf", "Q4_0"),
    ],
)
def test_display_name_is_the_stem_without_its_quantization(file_name: str, name: str) -> None:
    """What the window calls a model comes from the file name."""
    assert display_name(Path(file_name)) == name


def test_names_of_other_tensors_stay() -> None:
    """Only known names are translated, a family's own before those that all share."""
    own = {"ffn_norm": "pre_feedforward_layernorm"}
    assert canonical_name("blk.12.ffn_down.weight", {}) == "model.layers.12.mlp.down_proj.weight"
    assert canonical_name("blk.0.ssm_conv1d.weight", {}) == "blk.0.ssm_conv1d.weight"
    assert canonical_name("blk.1.ffn_norm.weight", own) == (
        "model.layers.1.pre_feedforward_layernorm.weight"
    )


def test_path_with_spaces_and_other_scripts_opens(tmp_path: Path) -> None:
    """Folders are named in every language."""
    folder = tmp_path / "José 模型 d'été"
    folder.mkdir()
    path = tiny_files.write_gguf(folder / "мой tiny.gguf")
    checkpoint = open_checkpoint(str(path))
    assert checkpoint.name == "мой tiny"
    assert checkpoint.dense("model.norm.weight").shape == (tiny_files.HIDDEN,)
    assert open_checkpoint(str(folder)).path == str(path)


def test_truncated_file_is_named_with_both_sizes(tmp_path: Path) -> None:
    """A download that stopped is told from what the header promises."""
    path = tiny_files.write_gguf(tmp_path / "tiny.gguf")
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(CheckpointError, match=r"tiny\.gguf.*truncated"):
        open_checkpoint(str(path))


def test_file_that_shrinks_after_opening_is_an_error(tmp_path: Path) -> None:
    """Reading past the end is a sentence, not a crash of the process."""
    path = tiny_files.write_gguf(tmp_path / "tiny.gguf")
    checkpoint = open_checkpoint(str(path))
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(CheckpointError, match="too short"):
        checkpoint.dense("model.norm.weight")


def header(counts: tuple[int, int] = (1, 0), body: bytes = b"", version: int = 3) -> bytes:
    """A GGUF header with what one likes in it, and some bytes after it."""
    return b"GGUF" + struct.pack("<IQQ", version, *counts) + body + bytes(4096)


def text(value: str, length: int | None = None) -> bytes:
    """A GGUF string, lying about its length if asked."""
    data = value.encode()
    return struct.pack("<Q", len(data) if length is None else length) + data


def entry(dims: tuple[int, ...], kind: int = 0, offset: int = 0, num_dims: int = -1) -> bytes:
    """A tensor entry named t."""
    count = len(dims) if num_dims < 0 else num_dims
    layout = f"<I{len(dims)}QIQ"
    return text("t") + struct.pack(layout, count, *dims, kind, offset)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"GGML" + bytes(100), "not a GGUF file"),
        (b"GGUF", "truncated"),
        (header(version=1), "version 1"),
        (header(version=0x03000000), "big-endian"),
        (header((2**63, 0)), "claims 9,223,372,036,854,775,808 tensors"),
        (header((0, 2**40)), "metadata keys"),
        (header((0, 1), text("k", 2**50)), "bytes for a metadata key"),
        (header((0, 1), text("k") + struct.pack("<IIQ", 9, 8, 2**60)), "entries in k"),
        (header((0, 1), text("k") + struct.pack("<IIQ", 9, 9, 1)), "unknown type 9"),
        (header((0, 1), text("k") + struct.pack("<I", 77)), "unknown type 77"),
        (header((1, 0), entry((1,), num_dims=2**31)), "dimensions"),
        (header((1, 0), entry((2**63, 2**63))), "truncated"),
        (header((1, 0), entry((0, 4))), "shape"),
        (header((1, 0), entry((33,), kind=8)), "Q8_0 cannot have"),
        (header((1, 0), entry((1,), offset=7)), "not aligned"),
        (header((1, 0), entry((1,), kind=999)), "unknown type 999"),
        (header((2, 0), entry((1,)) + entry((1,))), "comes twice"),
    ],
)
def test_absurd_headers_are_refused_at_once(tmp_path: Path, data: bytes, message: str) -> None:
    """No count or length of the file is believed: a sentence, and no time or memory spent."""
    path = tmp_path / "absurd.gguf"
    path.write_bytes(data)
    started = time.perf_counter()
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(str(path))
    assert time.perf_counter() - started < 1.0


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"llama.block_count": 2**31}, r"llama\.block_count"),
        ({"llama.attention.head_count_kv": 3}, "share 3 key"),
        ({"llama.embedding_length": "wide"}, "embedding_length"),
        ({"llama.attention.value_length": 8}, "head sizes differ"),
        ({"llama.rope.dimension_count": 7}, "needs pairs"),
        ({"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 2.0}, "longrope"),
        ({"llama.expert_count": 8}, "expert_used_count is missing"),
        ({"llama.expert_count": 2, "llama.expert_used_count": 3}, "3 of 2 experts"),
        ({"split.count": 3}, "several GGUF files"),
        ({"general.alignment": 33}, "general.alignment"),
        ({"llama.context_length": 0}, "context_length"),
    ],
)
def test_metadata_that_makes_no_sense_is_named(
    tmp_path: Path, metadata: dict[str, Any], message: str
) -> None:
    """The field at fault is in the sentence."""
    path = tiny_files.write_gguf(tmp_path / "t.gguf", metadata=metadata)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(str(path))


def test_unknown_architecture_lists_the_known_ones(tmp_path: Path) -> None:
    """A person sees what would work."""
    path = tiny_files.write_gguf(tmp_path / "t.gguf", architecture="mamba")
    with pytest.raises(
        CheckpointError, match=r"'mamba' is not supported\. Known architectures: gemma2, .*llama"
    ):
        open_checkpoint(str(path))


def test_tensor_without_a_place_is_refused(tmp_path: Path) -> None:
    """A model with weights that would be left out is not run as if they did not matter."""
    extra = {"blk.0.attn_q_norm.weight": np.ones(tiny_files.HEAD_DIM, np.float32)}
    path = tiny_files.write_gguf(tmp_path / "t.gguf", tensors=extra)
    with pytest.raises(CheckpointError, match="q_norm"):
        open_checkpoint(str(path))


@pytest.fixture(scope="module")
def starter() -> Checkpoint:
    """The starter model, opened once."""
    path = starter_model_path()
    assert path is not None
    return open_checkpoint(path)


@pytest.mark.starter
def test_starter_is_what_it_is_known_to_be(starter: Checkpoint) -> None:
    """Sizes, formats and name of SmolLM2-135M-Instruct."""
    config = starter.config
    assert starter.name == "SmolLM2-135M-Instruct"
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (30, 9, 3)
    assert (config.hidden_size, config.head_dim, config.vocab_size) == (576, 64, 49152)
    assert config.tie_word_embeddings
    formats = [info.format for info in starter.tensors.values()]
    counts = {name: formats.count(name) for name in set(formats)}
    assert counts == {"Q4_1": 210, "F32": 61, "Q8_0": 1}
    assert starter.default_sampling.temperature == 0.7


@pytest.mark.starter
def test_starter_payload_equals_its_dense_values(starter: Checkpoint) -> None:
    """A Q4_1 matrix with permuted rows and the Q8_0 embedding are exact on the real file."""
    for name in ("model.layers.7.self_attn.k_proj.weight", "model.embed_tokens.weight"):
        blocks = starter.quantized(name)
        assert blocks is not None
        assert torch.equal(dequantized(blocks), starter.dense(name))
