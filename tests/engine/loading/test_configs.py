"""config.json and generation_config.json to the engine's own words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.config import SamplingParams
from engine.loading.checkpoint import CheckpointError, ModelConfig, Rope, RopeScaling
from engine.loading.files import read_json
from engine.loading.generation_defaults import DEFAULT_SAMPLING, default_sampling, token_ids
from engine.models.registry import read_hf_config
from tests.engine.loading.tiny_files import CONFIG

PATH = Path("config.json")


def parse(**changes: Any) -> ModelConfig:
    """The ModelConfig of the tiny config with fields changed or, at None, removed."""
    merged = {k: v for k, v in (CONFIG | changes).items() if v is not None}
    return read_hf_config(merged, PATH)[1]


def scaling_of(config: ModelConfig) -> RopeScaling | None:
    """The RoPE scaling of the first layer."""
    rope = config.layers[0].rope
    assert rope is not None
    return rope.scaling


def test_defaults_follow_hugging_face() -> None:
    """What a config leaves out has the value transformers gives it."""
    config = parse(num_key_value_heads=None, rope_theta=None, rms_norm_eps=None)
    assert (config.num_kv_heads, config.head_dim, config.rms_norm_eps) == (4, 16, 1e-6)
    assert (config.layers[0].rope, config.attention_bias) == (Rope(10_000.0), False)


def test_explicit_head_dim_and_biases_are_taken() -> None:
    """A head_dim of its own and each kind of bias reach the model."""
    config = parse(head_dim=24, attention_bias=True, mlp_bias=True)
    assert config.head_dim == 24
    assert config.attention_bias
    assert config.attention_output_bias
    assert config.mlp_bias


@pytest.mark.parametrize("spelling", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_rope_scaling_in_every_spelling(spelling: str, key: str) -> None:
    """Old and new names of the RoPE object mean the same."""
    config = parse(**{spelling: {key: "linear", "factor": 2.0}})
    assert scaling_of(config) == RopeScaling(type="linear", factor=2.0)


def test_rope_parameters_carry_theta() -> None:
    """The new spelling moved rope_theta inside."""
    config = parse(rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    assert config.layers[0].rope == Rope(5e5)


def test_llama3_scaling_has_all_its_fields() -> None:
    """Llama 3.1's own values."""
    rope = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    assert scaling_of(parse(rope_scaling=rope)) == RopeScaling(
        type="llama3", factor=8.0, original_context_length=8192
    )


def test_yarn_scaling_has_all_its_fields() -> None:
    """Everything YaRN configs may set, and the context they fall back to."""
    rope = {"type": "yarn", "factor": 4, "beta_fast": 16, "mscale": 1.0, "truncate": False}
    scaling = scaling_of(parse(rope_scaling=rope))
    assert scaling == RopeScaling(
        type="yarn",
        factor=4.0,
        original_context_length=128,
        beta_fast=16.0,
        mscale=1.0,
        truncate=False,
    )


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"model_type": "mistral"}, [4096] * 7),
        ({"model_type": "mistral", "sliding_window": 9}, [9] * 7),
        ({"model_type": "qwen2", "sliding_window": 9, "max_window_layers": 2}, [None] * 7),
        (
            {"model_type": "qwen2", "sliding_window": 9, "max_window_layers": 2}
            | {"use_sliding_window": True},
            [None] * 2 + [9] * 5,
        ),
        ({"model_type": "gemma2", "sliding_window": 9}, [9, None, 9, None, 9, None, 9]),
        ({"model_type": "gemma3_text", "sliding_window": 9}, [9] * 5 + [None, 9]),
        (
            {"model_type": "gemma3_text", "sliding_window": 9, "sliding_window_pattern": 2},
            [9, None, 9, None, 9, None, 9],
        ),
        (
            {"model_type": "gemma2", "sliding_window": 9}
            | {"layer_types": ["full_attention"] * 6 + ["sliding_attention"]},
            [None] * 6 + [9],
        ),
    ],
)
def test_windows_of_configs_without_layer_types(
    changes: dict[str, Any], windows: list[int | None]
) -> None:
    """Older configs name a rule, newer ones each layer."""
    config = parse(num_hidden_layers=7, **changes)
    assert [layer.window for layer in config.layers] == windows


def test_gemma3_of_old_has_a_local_base_and_scales_only_global_layers() -> None:
    """rope_local_base_freq and rope_scaling, as the first checkpoints have them."""
    config = parse(
        model_type="gemma3_text",
        num_hidden_layers=6,
        rope_theta=1e6,
        rope_local_base_freq=5e3,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
    )
    assert [layer.rope for layer in config.layers[:5]] == [Rope(5e3)] * 5
    assert config.layers[5].rope == Rope(1e6, RopeScaling("linear", 8.0))


def test_smollm3_without_a_list_leaves_out_every_fourth() -> None:
    """The interval is a field too."""
    config = parse(model_type="smollm3", num_hidden_layers=8)
    assert [layer.rope is None for layer in config.layers] == [False, False, False, True] * 2
    config = parse(model_type="smollm3", num_hidden_layers=4, no_rope_layer_interval=2)
    assert [layer.rope is None for layer in config.layers] == [False, True] * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": None}, "model_type is missing"),
        ({"model_type": "gpt_bigcode"}, "'gpt_bigcode' is not supported. Known architectures"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": "64"}, "hidden_size is '64'"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"hidden_size": 2**40}, "hidden_size is 1099511627776"),
        ({"hidden_size": 63}, "not a multiple of 4 heads"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_key_value_heads": 3}, "share 3 key"),
        ({"head_dim": 17}, "needs pairs"),
        ({"rms_norm_eps": 5}, "rms_norm_eps"),
        ({"rope_theta": float("nan")}, "rope_theta"),
        ({"hidden_act": "relu"}, "'relu'"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "'dynamic'"),
        ({"rope_scaling": {"type": "linear"}}, "factor is missing"),
        ({"rope_scaling": "linear"}, "not an object"),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor"),
    ],
)
def test_faulty_field_is_named(changes: dict[str, Any], message: str) -> None:
    """Missing, absurd and unknown values are told by name."""
    with pytest.raises(CheckpointError) as caught:
        parse(**changes)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "data", [b"{", b"[1]", b'"x"', b"\xff", b'{"a":' + b"[" * 100_000, b'{"a":1,"a":2}']
)
def test_json_that_is_none_is_an_error(tmp_path: Path, data: bytes) -> None:
    """Half a file, another type, other bytes, endless nesting, a name twice."""
    path = tmp_path / "config.json"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="not valid JSON"):
        read_json(path)


@pytest.mark.parametrize(
    ("config", "sampling"),
    [
        ({}, DEFAULT_SAMPLING),
        ({"bos_token_id": 1}, DEFAULT_SAMPLING),
        ({"do_sample": False, "temperature": 0.6}, SamplingParams()),
        (
            {"do_sample": True, "temperature": 0.6, "top_p": 0.9},
            SamplingParams(temperature=0.6, top_p=0.9, top_k=50),
        ),
        (
            {"temperature": 0.2, "top_k": 0, "min_p": 0.1, "repetition_penalty": 1.1},
            SamplingParams(temperature=0.2, min_p=0.1, repetition_penalty=1.1),
        ),
        (
            {"do_sample": True, "temperature": -1, "top_k": "many", "top_p": float("nan")},
            SamplingParams(temperature=1.0, top_k=50),
        ),
    ],
)
def test_sampling_defaults(config: dict[str, Any], sampling: SamplingParams) -> None:
    """The makers' values where given and in range, the library's or ours otherwise."""
    assert default_sampling(config) == sampling


def test_end_tokens_may_be_one_or_several() -> None:
    """Configs give an int or a list; anything else names no token."""
    assert token_ids(3) == {3}
    assert token_ids([128001, 128009, True, -1, "x"]) == {128001, 128009}
    assert token_ids(None) == frozenset()
