"""The files beside the weights: config, tokenizer, chat template, generation defaults.

A safetensors folder brings its own, which are copied. For a GGUF file they are written from what
it says.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from engine.layers.rotary import rope_frequencies
from engine.loading.checkpoint import Checkpoint
from engine.loading.files import read_json
from engine.loading.model_config import ModelConfig, Rope, RopeScaling
from engine.loading.safetensors_files import SafetensorsCheckpoint
from engine.loading.tokenizer_export import tokenizer_json
from engine.session import EngineError
from engine.tokenizer import Tokenizer

_COPIED = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("tokenizer.model", "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json"),
    "generation_config.json",
)
# Families whose config can be told from a GGUF file in Hugging Face's words.
_WRITABLE = {"llama": "LlamaForCausalLM"}
# What Llama 3.1 and later were published with; GGUF keeps only what follows from it.
_LLAMA3_ORIGINAL_CONTEXT = 8192


def model_config_json(checkpoint: Checkpoint) -> dict[str, Any]:
    """The config.json of the model, without any quantization. Raises EngineError."""
    if checkpoint.source == "gguf":
        return _written_config(checkpoint.config, checkpoint.tokenizer())
    config = read_json(_folder(checkpoint) / "config.json")
    if "text_config" in config:
        raise EngineError(
            "A model that also sees or hears cannot be quantized.",
            "Only its text model is read, and a folder without the other parts opens nowhere.",
            "Choose a model of text alone.",
        )
    config.pop("quantization_config", None)
    return config


def stored_name(checkpoint: Checkpoint, name: str) -> str:
    """What the folder calls a tensor: as the source's does, by our name for a GGUF file."""
    if isinstance(checkpoint, SafetensorsCheckpoint):
        return checkpoint.stored_name(name)
    return name


def write_text_files(checkpoint: Checkpoint, folder: Path) -> None:
    """Copy or write everything but config.json and the weights into `folder`."""
    if checkpoint.source == "gguf":
        _write_from_gguf(checkpoint, folder)
        return
    for name in _COPIED:
        if (_folder(checkpoint) / name).exists():
            shutil.copyfile(_folder(checkpoint) / name, folder / name)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """An object as readable JSON."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _folder(checkpoint: Checkpoint) -> Path:
    path = Path(checkpoint.path)
    return path if path.is_dir() else path.parent


def _write_from_gguf(checkpoint: Checkpoint, folder: Path) -> None:
    tokenizer = checkpoint.tokenizer()
    (folder / "tokenizer.json").write_text(tokenizer_json(tokenizer), encoding="utf-8")
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": checkpoint.config.context_length,
        "add_bos_token": tokenizer.add_bos,
    }
    for name, token_id in _named_tokens(tokenizer).items():
        config[f"{name}_token"] = tokenizer.token_text(token_id)
    if checkpoint.chat_template is not None:
        config["chat_template"] = checkpoint.chat_template
    write_json(folder / "tokenizer_config.json", config)
    generation: dict[str, Any] = {"eos_token_id": sorted(tokenizer.eos_token_ids)}
    if tokenizer.bos_token_id is not None:
        generation["bos_token_id"] = tokenizer.bos_token_id
    write_json(folder / "generation_config.json", generation)


def _named_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    named = {"bos": tokenizer.bos_token_id, "eos": tokenizer.eos_token_id}
    return {name: token_id for name, token_id in named.items() if token_id is not None}


def _written_config(config: ModelConfig, tokenizer: Tokenizer) -> dict[str, Any]:
    same_biases = config.attention_bias == config.attention_output_bias
    if config.architecture not in _WRITABLE or not same_biases:
        raise EngineError(
            f"A {config.architecture} model in GGUF cannot be quantized into a folder.",
            f"Its config.json cannot be told from the file; known: {', '.join(_WRITABLE)}, "
            "with biases on all of the attention's products or on none.",
            "Take the model's safetensors version, which brings its config along.",
        )
    rope = config.layers[0].rope
    assert rope is not None, "every layer of these families has positions"
    written: dict[str, Any] = {
        "architectures": [_WRITABLE[config.architecture]],
        "model_type": config.architecture,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": config.hidden_act,
        "rms_norm_eps": config.rms_norm_eps,
        "max_position_embeddings": config.context_length,
        "rope_theta": rope.theta,
        "rope_scaling": _written_scaling(rope, config.head_dim),
        "tie_word_embeddings": config.tie_word_embeddings,
        "attention_bias": config.attention_bias,
        "mlp_bias": config.mlp_bias,
    }
    named = _named_tokens(tokenizer)
    return written | {f"{name}_token_id": token_id for name, token_id in named.items()}


def _written_scaling(rope: Rope, head_dim: int) -> dict[str, Any] | None:
    scaling = rope.scaling
    if scaling is None:
        return None
    if scaling.type == "linear":
        return {"rope_type": "linear", "factor": scaling.factor}
    if scaling.type == "yarn":
        return {
            "rope_type": "yarn",
            "factor": scaling.factor,
            "original_max_position_embeddings": scaling.original_context_length,
            "beta_fast": scaling.beta_fast,
            "beta_slow": scaling.beta_slow,
            "attention_factor": scaling.attention_factor,
        }
    return _llama3_scaling(rope, head_dim)


def _llama3_scaling(rope: Rope, head_dim: int) -> dict[str, Any]:
    """GGUF keeps the factors that follow from Llama 3's parameters: the ones that give them."""
    factors = (rope.scaling and rope.scaling.frequency_factors) or ()
    found = RopeScaling("llama3", max(factors, default=1.0), _LLAMA3_ORIGINAL_CONTEXT, 1.0, 4.0)
    expected, _ = rope_frequencies(head_dim, rope, _LLAMA3_ORIGINAL_CONTEXT)
    found_rope = Rope(rope.theta, found)
    frequencies, _ = rope_frequencies(head_dim, found_rope, _LLAMA3_ORIGINAL_CONTEXT)
    if not bool(((frequencies / expected - 1).abs() < 1e-3).all()):
        raise EngineError(
            "The file's RoPE scaling cannot be written into a config.json.",
            "Its frequency factors are not those of Llama 3's published parameters.",
            "Take the model's safetensors version, which brings its config along.",
        )
    return {
        "rope_type": "llama3",
        "factor": found.factor,
        "low_freq_factor": found.low_freq_factor,
        "high_freq_factor": found.high_freq_factor,
        "original_max_position_embeddings": found.original_context_length,
    }
