"""Broken bytes in every place: a checkpoint opens or is refused, quickly, and nothing else."""

from __future__ import annotations

import contextlib
import json
import struct
import time
from pathlib import Path
from typing import Any

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.loading.checkpoint import open_checkpoint
from engine.loading.files import CheckpointError
from engine.loading.model_config import expected_tensors
from engine.models.registry import ARCHITECTURES, read_hf_config
from engine.session import EngineError
from tests.engine.loading import tiny_files

MAX_SECONDS = 2.0
FUZZ = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
# What a careless reader multiplies, allocates or seeks to.
EVIL_NUMBERS = st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1])


def open_or_refuse(path: Path) -> None:
    """Open, read every tensor both ways and build the tokenizer; only EngineError may come."""
    started = time.perf_counter()
    refusal: EngineError | None = None
    try:
        checkpoint = open_checkpoint(str(path))
        for name in checkpoint.tensors:
            checkpoint.dense(name)
            checkpoint.quantized(name)
        checkpoint.close()
        checkpoint.tokenizer().encode("some 12 text", add_special_tokens=True)
    except EngineError as error:
        refusal = error
    assert refusal is None or (refusal.what and refusal.why and refusal.next_step)
    assert time.perf_counter() - started < MAX_SECONDS


@st.composite
def mutations(draw: st.DrawFn, data: bytes, header_bytes: int) -> bytes:
    """`data` cut, with bytes changed, or with numbers written over its header."""
    result = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["byte", "number32", "number64", "cut", "insert", "swap"]))
        at = draw(st.integers(0, min(header_bytes, len(result)) - 1))
        if kind == "byte":
            result[at] = draw(st.integers(0, 255))
        elif kind == "number32":
            result[at : at + 4] = struct.pack("<I", draw(EVIL_NUMBERS) & 0xFFFFFFFF)
        elif kind == "number64":
            result[at : at + 8] = struct.pack("<Q", draw(EVIL_NUMBERS))
        elif kind == "cut":
            del result[draw(st.integers(at, len(result))) :]
        elif kind == "insert":
            result[at:at] = draw(st.binary(min_size=1, max_size=40))
        else:
            other = draw(st.integers(0, min(header_bytes, len(result)) - 1))
            result[at], result[other] = result[other], result[at]
        if not result:
            break
    return bytes(result)


@pytest.fixture(scope="module")
def gguf_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A valid Q4_1 file."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    return tiny_files.write_gguf(path, gguf.GGMLQuantizationType.Q4_1).read_bytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valid folder whose files the tests break one at a time."""
    folder = tiny_files.write_folder(tmp_path_factory.mktemp("folder"))
    golden = Path(__file__).parents[2] / "golden" / "tiny" / "tokenizer.json"
    (folder / "tokenizer.json").write_bytes(golden.read_bytes())
    return folder


@FUZZ
@given(data=st.data())
def test_mutated_gguf(tmp_path: Path, gguf_bytes: bytes, data: st.DataObject) -> None:
    """Any change to a GGUF's header or length."""
    path = tmp_path / "broken.gguf"
    path.write_bytes(data.draw(mutations(gguf_bytes, 3000)))
    open_or_refuse(path)


@FUZZ
@given(length=st.integers(0, 3000))
def test_gguf_cut_anywhere(tmp_path: Path, gguf_bytes: bytes, length: int) -> None:
    """A GGUF that ends within its header."""
    path = tmp_path / "cut.gguf"
    path.write_bytes(gguf_bytes[:length])
    open_or_refuse(path)


@FUZZ
@given(junk=st.binary(max_size=300))
def test_gguf_of_random_bytes(tmp_path: Path, junk: bytes) -> None:
    """Random bytes after a valid magic number and version."""
    path = tmp_path / "junk.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<I", 3) + junk)
    open_or_refuse(path)


@FUZZ
@given(data=st.data())
def test_mutated_safetensors(folder: Path, data: st.DataObject) -> None:
    """Any change to a safetensors header or length."""
    original = tiny_file_bytes(folder)
    path = folder / "model.safetensors"
    try:
        path.write_bytes(data.draw(mutations(original, 1500)))
        open_or_refuse(folder)
    finally:
        path.write_bytes(original)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "factor", "content", "a"]), inner, max_size=3)
    ),
    max_leaves=6,
)
JSON_FILES = {
    "config.json": [*tiny_files.CONFIG, "rope_scaling", "head_dim", "quantization_config"],
    "generation_config.json": ["eos_token_id", "temperature", "top_k", "top_p", "do_sample"],
    "tokenizer_config.json": ["bos_token", "eos_token", "add_bos_token", "chat_template"],
    "model.safetensors.index.json": ["weight_map", "metadata"],
    "tokenizer.json": ["model", "decoder", "added_tokens", "version", "post_processor"],
}


@FUZZ
@given(data=st.data())
def test_json_with_any_values(folder: Path, data: st.DataObject) -> None:
    """Any value in any field of the files beside the weights."""
    name = data.draw(st.sampled_from(sorted(JSON_FILES)))
    path = folder / name
    original = path.read_bytes() if path.exists() else None
    values: dict[str, Any] = dict(tiny_files.CONFIG) if name == "config.json" else {}
    fields = st.dictionaries(st.sampled_from(JSON_FILES[name]), JSON_VALUES, min_size=1, max_size=3)
    try:
        path.write_text(json.dumps(values | data.draw(fields)), encoding="utf-8")
        open_or_refuse(folder)
    finally:
        path.unlink() if original is None else path.write_bytes(original)


FAMILY_FIELDS = (
    *("sliding_window", "use_sliding_window", "max_window_layers", "layer_types"),
    *("sliding_window_pattern", "rope_local_base_freq", "rope_parameters", "partial_rotary_factor"),
    *("query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"),
    *("hidden_activation", "no_rope_layers", "no_rope_layer_interval", "num_experts"),
    *("num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "decoder_sparse_step"),
    *("mlp_only_layers", "norm_topk_prob", "embedding_multiplier", "residual_multiplier"),
    *("attention_multiplier", "logits_scaling", "original_max_position_embeddings", "text_config"),
)
SMALL_AND_LARGE = st.sampled_from([1e-300, 1e-30, 1e-6, 0, 1, 2, 1e6, 1e300, -1, 2**31])


@settings(FUZZ, max_examples=600)
@given(data=st.data())
def test_config_of_every_family_with_any_values(data: st.DataObject) -> None:
    """Fields that only some families have, at any value: a model's description or a sentence."""
    family = data.draw(st.sampled_from(ARCHITECTURES))
    values: dict[str, Any] = dict(tiny_files.CONFIG) | {"model_type": family.hf_names[0]}
    any_value = JSON_VALUES | SMALL_AND_LARGE | st.lists(SMALL_AND_LARGE, max_size=3)
    fields = st.dictionaries(st.sampled_from(FAMILY_FIELDS), any_value, max_size=4)
    with contextlib.suppress(CheckpointError):
        config = read_hf_config(values | data.draw(fields), Path("config.json"))[1]
        assert len(expected_tensors(config)) < 2**20


@FUZZ
@given(data=st.data())
def test_tokenizer_with_one_part_replaced(folder: Path, data: st.DataObject) -> None:
    """Any value in any place of a tokenizer.json, however deep."""
    path = folder / "tokenizer.json"
    original = path.read_bytes()
    tokenizer = json.loads(original)
    place: Any = tokenizer
    while True:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        key = data.draw(st.sampled_from(keys))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            break
        place = inner
    place[key] = data.draw(JSON_VALUES)
    try:
        path.write_text(json.dumps(tokenizer), encoding="utf-8")
        open_or_refuse(folder)
    finally:
        path.write_bytes(original)


def tiny_file_bytes(folder: Path) -> bytes:
    """The valid weights of the folder."""
    return (folder / "model.safetensors").read_bytes()
