"""Tensor names of GGUF files in Hugging Face's spelling; experts that lie in one tensor, apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from engine.loading.files import bad_file
from engine.loading.gguf_header import GgufTensor
from engine.loading.model_config import MAX_EXPERTS

_TOP_LEVEL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.*.gate_proj",
    "ffn_up_exps": "mlp.experts.*.up_proj",
    "ffn_down_exps": "mlp.experts.*.down_proj",
}
_LAYER_TENSOR = re.compile(r"blk\.(\d{1,6})\.(\w+)\.(weight|bias)")


def canonical_name(gguf_name: str, family_names: Mapping[str, str]) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`; unknown ones as is.

    `family_names` has the layer's tensors that a family calls otherwise. A tensor that holds all
    experts has a `*` for the expert.
    """
    match = _LAYER_TENSOR.fullmatch(gguf_name)
    if match is not None:
        name = family_names.get(match[2]) or _LAYER_NAMES.get(match[2])
        if name is not None:
            return f"model.layers.{int(match[1])}.{name}.{match[3]}"
    return _TOP_LEVEL_NAMES.get(gguf_name, gguf_name)


def expert_slices(name: str, tensor: GgufTensor, path: Path) -> Iterator[tuple[str, GgufTensor]]:
    """The tensor itself, or, of a tensor [experts, out, in], each expert's matrix by name.

    Raises CheckpointError when such a tensor has another number of dimensions.
    """
    if "*" not in name:
        yield name, tensor
        return
    if len(tensor.shape) != 3 or tensor.shape[0] > MAX_EXPERTS:
        raise bad_file(path, f"The tensor {tensor.name} is no stack of experts' matrices.")
    num_experts, num_bytes = tensor.shape[0], tensor.num_bytes // tensor.shape[0]
    for expert in range(num_experts):
        start = tensor.start + expert * num_bytes
        matrix = GgufTensor(tensor.name, tensor.type, tensor.shape[1:], start, num_bytes)
        yield name.replace("*", str(expert)), matrix
