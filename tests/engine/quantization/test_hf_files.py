"""From a GGUF file to the files of a Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from engine.layers.rotary import rope_frequencies
from engine.loading.checkpoint import open_checkpoint
from engine.loading.model_config import Rope, RopeScaling
from engine.loading.tokenizer_folder import TokenizerFolder, tokenizer_from_folder
from engine.models.registry import read_hf_config
from engine.quantization.hf_files import model_config_json
from engine.quantization.job import QuantizeJob
from engine.quantization.plan import GridSpec, Quantized, QuantizePlan
from engine.session import EngineError
from tests.engine.loading.tiny_files import HEAD_DIM, TEMPLATE, write_gguf

YARN = {
    "llama.rope.scaling.type": "yarn",
    "llama.rope.scaling.factor": 4.0,
    "llama.rope.scaling.original_context_length": 32,
}


def llama3_factors(low: float) -> np.ndarray:
    """GGUF's rope_freqs as its converter makes them of Llama 3's parameters."""
    plain, _ = rope_frequencies(HEAD_DIM, Rope(10000.0), 128)
    scaling = RopeScaling("llama3", 8.0, 8192, low, 4.0)
    scaled, _ = rope_frequencies(HEAD_DIM, Rope(10000.0, scaling), 128)
    return (plain / scaled).numpy()


@pytest.mark.parametrize(
    "metadata", [{}, YARN, {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}]
)
def test_the_config_means_the_same_model(metadata: dict[str, Any], tmp_path: Path) -> None:
    """Read again, every field that GGUF and we know is equal."""
    checkpoint = open_checkpoint(str(write_gguf(tmp_path / "m.gguf", metadata=metadata)))
    written = model_config_json(checkpoint)
    assert read_hf_config(written, tmp_path / "config.json")[1] == checkpoint.config


def test_llama3_factors_become_the_published_parameters(tmp_path: Path) -> None:
    """The frequencies are equal; factors of other parameters are refused, not guessed."""
    path = tmp_path / "m.gguf"
    write_gguf(path, tensors={"rope_freqs.weight": llama3_factors(1.0)})
    written = model_config_json(open_checkpoint(str(path)))
    _, again = read_hf_config(written, tmp_path / "config.json")
    found, _ = rope_frequencies(HEAD_DIM, again.layers[0].rope, 128)
    plain, _ = rope_frequencies(HEAD_DIM, Rope(10000.0), 128)
    torch.testing.assert_close(plain / found, torch.from_numpy(llama3_factors(1.0)))
    write_gguf(path, tensors={"rope_freqs.weight": llama3_factors(3.0)})
    with pytest.raises(EngineError, match="RoPE scaling cannot be written"):
        model_config_json(open_checkpoint(str(path)))


def test_a_gguf_file_becomes_a_whole_folder(tmp_path: Path) -> None:
    """Opened like any other: tokenizer, template, end tokens; and it says what it came from."""
    source = write_gguf(tmp_path / "m.gguf", gguf.GGMLQuantizationType.Q8_0)
    plan = QuantizePlan(str(source), tmp_path / "out", "rtn", GridSpec(4, 32), threads=1)
    *_, result = QuantizeJob(plan).run()
    assert isinstance(result, Quantized)
    assert "quantized itself (Q8_0)" in result.notices[0]
    config = json.loads((result.out / "tokenizer_config.json").read_text(encoding="utf-8"))
    generation = json.loads((result.out / "generation_config.json").read_text(encoding="utf-8"))
    assert (config["chat_template"], config["bos_token"]) == (TEMPLATE, "<|begin|>")
    again = tokenizer_from_folder(
        TokenizerFolder(result.out, "<|begin|>", "<|stop|>", config["add_bos_token"], None),
        frozenset(generation["eos_token_id"]),
    )
    expected = open_checkpoint(str(source)).tokenizer()
    for framed in (False, True):
        text = "abc <|im_start|>b"
        assert again.encode(text, framed) == expected.encode(text, framed)
    assert again.traits == expected.traits
