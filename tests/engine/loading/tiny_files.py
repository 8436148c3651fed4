"""Small valid checkpoints to test with and to break: a Llama of one layer in both formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 64, 96, 4, 2, 16, 40

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "eos_token_id": [3, 4],
}
TEMPLATE = "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"

_GGUF_SHAPES = {
    "token_embd.weight": (VOCAB, HIDDEN),
    "blk.0.attn_norm.weight": (HIDDEN,),
    "blk.0.attn_q.weight": (HEADS * HEAD_DIM, HIDDEN),
    "blk.0.attn_k.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
    "blk.0.attn_v.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
    "blk.0.attn_output.weight": (HIDDEN, HEADS * HEAD_DIM),
    "blk.0.ffn_norm.weight": (HIDDEN,),
    "blk.0.ffn_gate.weight": (INNER, HIDDEN),
    "blk.0.ffn_up.weight": (INNER, HIDDEN),
    "blk.0.ffn_down.weight": (HIDDEN, INNER),
    "output_norm.weight": (HIDDEN,),
}
HF_SHAPES = {
    "model.embed_tokens.weight": (VOCAB, HIDDEN),
    "model.layers.0.input_layernorm.weight": (HIDDEN,),
    "model.layers.0.self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
    "model.layers.0.self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
    "model.layers.0.self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
    "model.layers.0.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
    "model.layers.0.post_attention_layernorm.weight": (HIDDEN,),
    "model.layers.0.mlp.gate_proj.weight": (INNER, HIDDEN),
    "model.layers.0.mlp.up_proj.weight": (INNER, HIDDEN),
    "model.layers.0.mlp.down_proj.weight": (HIDDEN, INNER),
    "model.norm.weight": (HIDDEN,),
}


def random_tensor(name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Values that depend on the name alone."""
    seed = sum(name.encode()) * 7919 + len(shape)
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def write_gguf(
    path: Path,
    quantization: gguf.GGMLQuantizationType | None = None,
    metadata: dict[str, Any] | None = None,
    tensors: dict[str, npt.NDArray[np.float32]] | None = None,
    architecture: str = "llama",
) -> Path:
    """A GGUF of the tiny model, its matrices in `quantization`; `metadata`, `tensors` add to it."""
    writer = gguf.GGUFWriter(path, architecture)
    values: dict[str, Any] = {
        f"{architecture}.embedding_length": HIDDEN,
        f"{architecture}.feed_forward_length": INNER,
        f"{architecture}.block_count": 1,
        f"{architecture}.attention.head_count": HEADS,
        f"{architecture}.attention.head_count_kv": KV_HEADS,
        f"{architecture}.context_length": 128,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
    } | (metadata or {})
    for key, value in values.items():
        _add(writer, key, value)
    _add_vocabulary(writer)
    weights = {name: random_tensor(name, shape) for name, shape in _GGUF_SHAPES.items()}
    for name, data in (weights | (tensors or {})).items():
        if quantization is None or data.ndim == 1:
            writer.add_tensor(name, data)
        else:
            packed = gguf.quants.quantize(data, quantization)
            writer.add_tensor(name, packed, raw_dtype=quantization)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_folder(folder: Path, config: dict[str, Any] | None = None) -> Path:
    """A safetensors folder of the tiny model; `config` changes fields, None removes them."""
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder, config)
    save_file(hf_tensors(), folder / "model.safetensors")
    return folder


def write_config(folder: Path, config: dict[str, Any] | None = None) -> None:
    """The tiny model's config.json with fields changed or, at None, removed."""
    merged = {k: v for k, v in (CONFIG | (config or {})).items() if v is not None}
    (folder / "config.json").write_text(json.dumps(merged), encoding="utf-8")


def hf_tensors() -> dict[str, torch.Tensor]:
    """The tiny model's weights by Hugging Face name."""
    return {name: torch.from_numpy(random_tensor(name, shape)) for name, shape in HF_SHAPES.items()}


def write_shards(folder: Path) -> dict[str, str]:
    """The weights in two shards with an index; returns its weight_map."""
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder)
    tensors = hf_tensors()
    names = sorted(tensors)
    shards = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    weight_map = {name: shards[i % 2] for i, name in enumerate(names)}
    for shard in shards:
        part = {name: tensors[name] for name in names if weight_map[name] == shard}
        save_file(part, folder / shard)
    write_index(folder, weight_map)
    return weight_map


def write_index(folder: Path, weight_map: dict[str, str]) -> None:
    """model.safetensors.index.json of a weight_map."""
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, list):
        writer.add_array(key, value)
    else:
        writer.add_string(key, value)


def _add_vocabulary(writer: gguf.GGUFWriter) -> None:
    """Four control tokens, then letters and one merge."""
    control = ["<|begin|>", "<|im_start|>", "<|im_end|>", "<|stop|>"]
    letters = [chr(97 + i) for i in range(26)] + ["ab", "\u0120", "\u010a"]
    tokens = control + letters
    tokens += [f"<unused{i}>" for i in range(VOCAB - len(tokens))]
    types = [gguf.TokenType.CONTROL] * len(control)
    types += [gguf.TokenType.NORMAL] * (VOCAB - len(control))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(3)
    writer.add_chat_template(TEMPLATE)
