"""The starter model: transformers' own tokens, exact values, text through its template."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from engine.config import EngineConfig, GenerationRequest, Message
from engine.events import Event, GenerationFinished, ModelLoaded
from engine.loading.checkpoint import Checkpoint, open_checkpoint
from engine.loading.weight_source import kept_format, read_weight
from engine.local_session import LocalSession
from engine.starter import starter_model_path
from kernels.weights import GroupedWeight, dequantize
from tests.engine.rig import GOLDEN
from tests.golden.write_safetensors import unpermute_rope_rows, write_checkpoint

pytestmark = pytest.mark.starter

MARGIN = 1e-2
REFERENCE: dict[str, Any] = json.loads((GOLDEN / "smollm2.json").read_text(encoding="utf-8"))
PROMPTS: list[dict[str, Any]] = REFERENCE["prompts"]
NUM_TOKENS: int = REFERENCE["num_tokens"]


def starter() -> str:
    """Path of the starter's file."""
    path = starter_model_path()
    assert path is not None, "the starter model is not installed: run make test"
    return path


def load(path: str, weight_format: str) -> LocalSession:
    """A session on two threads with room for every golden prompt at once."""
    session = LocalSession()
    config = EngineConfig(
        path,
        weight_format=weight_format,
        context_length=1024,
        kv_pool_tokens=2048,
        max_num_seqs=16,
        threads=2,
    )
    *_, last = session.load(config)
    assert isinstance(last, ModelLoaded), last
    return session


@pytest.fixture(scope="module")
def checkpoint() -> Iterator[Checkpoint]:
    """The starter's file, open."""
    opened = open_checkpoint(starter())
    yield opened
    opened.close()


def clear_positions(prompt: dict[str, Any]) -> int:
    """Positions before the first margin so small that summation order may decide."""
    margins = prompt["margins"]
    return next((i for i, m in enumerate(margins) if m <= MARGIN), len(margins))


def test_the_reference_proves_enough() -> None:
    """At least eight prompts of 48 tokens, 40 of them comparable on average."""
    assert len(PROMPTS) >= 8
    assert NUM_TOKENS == 48
    assert np.mean([clear_positions(p) for p in PROMPTS]) >= 40


def test_gguf_greedy_tokens_are_those_of_transformers() -> None:
    """FP32, one prompt after the other, from text (the raw ones) and from messages."""
    session = load(starter(), "fp32")
    for prompt in PROMPTS:
        source: dict[str, Any] = (
            {"messages": tuple(Message(**m) for m in prompt["messages"])}
            if prompt["messages"]
            else {"prompt": prompt["text"]}
        )
        request = GenerationRequest(
            prompt["name"], **source, max_tokens=NUM_TOKENS, ignore_eos=True
        )
        [end] = [e for e in session.generate(request) if isinstance(e, GenerationFinished)]
        assert list(end.prompt_ids) == prompt["prompt_ids"]
        clear = clear_positions(prompt)
        assert list(end.token_ids[:clear]) == prompt["token_ids"][:clear]
    session.close()


def test_safetensors_greedy_tokens_are_those_of_transformers(tmp_path: Path) -> None:
    """A folder written from the GGUF, all prompts in one batch."""
    write_checkpoint(Path(starter()), tmp_path, "fp32", 3)
    session = load(str(tmp_path), "fp32")
    for prompt in PROMPTS:
        session.submit(
            GenerationRequest(
                prompt["name"],
                prompt_ids=tuple(prompt["prompt_ids"]),
                max_tokens=NUM_TOKENS,
                ignore_eos=True,
            )
        )
    events: list[Event] = []
    while session.has_work():
        events += session.step()
    ends = {e.request_id: e for e in events if isinstance(e, GenerationFinished)}
    for prompt in PROMPTS:
        clear = clear_positions(prompt)
        assert list(ends[prompt["name"]].token_ids[:clear]) == prompt["token_ids"][:clear]
    session.close()


@pytest.mark.parametrize("weight_format", ["as-stored", "int4"])
def test_stored_values_survive_bit_for_bit(checkpoint: Checkpoint, weight_format: str) -> None:
    """Every tensor equals what the gguf library dequantizes, Q and K rows in RoPE's order."""
    config = checkpoint.config
    hugging_face = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_layers)
    names = {
        hugging_face.get_name(name.removesuffix(".weight")): name for name in checkpoint.tensors
    }
    compared = 0
    for tensor in gguf.GGUFReader(starter()).tensors:
        name = names[tensor.name.removesuffix(".weight")]
        expected = gguf.dequantize(tensor.data, tensor.tensor_type)
        if "attn_q" in tensor.name or "attn_k" in tensor.name:
            heads = config.num_heads if "attn_q" in tensor.name else config.num_kv_heads
            expected = unpermute_rope_rows(expected, heads)
        if expected.ndim == 1:
            got = checkpoint.dense(name)
        else:
            weight, _ = read_weight(checkpoint, name, kept_format(name, weight_format))
            assert isinstance(weight, GroupedWeight)
            got = dequantize(weight)
        assert torch.equal(got, torch.from_numpy(np.array(expected))), name
        compared += 1
    assert compared == len(checkpoint.tensors) == 272


def test_bits_per_weight_are_what_the_menu_says() -> None:
    """The starter's choices: 5 bits and a little for the 8-bit head as stored, 8, 16, 32."""
    info = LocalSession().inspect(starter())
    assert info.stored_format == "Q4_1, head Q8_0"
    assert info.parameters == 134_515_008
    bits = {f.name: f.bits_per_weight for f in info.weight_formats}
    assert bits["fp32"] == 32.0
    assert bits["bf16"] == bits["fp16"] == pytest.approx(16.0, abs=0.01)
    assert bits["int8"] == pytest.approx(8.1, abs=0.1)
    assert bits["int4"] == bits["as-stored"] == pytest.approx(5.74, abs=0.05)
