"""Tiny random checkpoints of every family but Llama, with transformers' logits, one folder a case.

Each comes as transformers saves it and, where llama.cpp's converter knows the family, as GGUF. The
weights are drawn as in make_tiny; what a family has of its own is set so that it shows: windows
shorter than the texts, soft-caps near the scores, multipliers far from 1.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from make_common import library_versions
from make_tiny import BOS, EOS, PAD, VOCAB, write_tokenizer
from transformers import AutoModelForCausalLM, PreTrainedModel

CONVERTER_VARIABLE = "LLAMA_CPP"  # a folder with convert_hf_to_gguf.py
LENGTH = 60
DECODED = 8


@dataclass(frozen=True)
class Family:
    """The config class and its fields; whether llama.cpp converts the case."""

    config_class: str
    fields: dict[str, Any] = field(default_factory=dict)
    gguf: bool = True


SMALL = {
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "head_dim": 16,
}
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
GEMMA = SMALL | {"hidden_activation": "gelu_pytorch_tanh", "sliding_window": 20}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "original_max_position_embeddings": 32,
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0, 1.1, 1.2, 1.4, 1.7, 2.1],
    "long_factor": [1.0, 1.3, 1.9, 2.8, 4.0, 7.0],
}
FAMILIES = {
    "mistral": Family("MistralConfig", SMALL | {"sliding_window": 20}, gguf=False),
    "qwen2": Family("Qwen2Config", SMALL),
    "qwen2_window": Family(
        "Qwen2Config",
        SMALL | {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1},
        gguf=False,
    ),
    "qwen3": Family("Qwen3Config", SMALL | {"head_dim": 20}),
    "gemma2": Family(
        "Gemma2Config",
        GEMMA
        | {
            "attn_logit_softcapping": 3.0,
            "final_logit_softcapping": 5.0,
            "query_pre_attn_scalar": 16,
        },
    ),
    "gemma2_scale": Family("Gemma2Config", GEMMA | {"query_pre_attn_scalar": 100}, gguf=False),
    "gemma3": Family(
        "Gemma3TextConfig",
        GEMMA
        | {
            "num_hidden_layers": 7,
            "hidden_size": 32,
            "query_pre_attn_scalar": 16,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
    "phi3": Family("Phi3Config", SMALL | {"hidden_size": 64}),
    "phi3_longrope": Family(
        "Phi3Config",
        SMALL | {"hidden_size": 64, "rope_parameters": LONGROPE, "sliding_window": None},
    ),
    "olmo2": Family("Olmo2Config", SMALL | {"hidden_size": 64}),
    "smollm3": Family("SmolLM3Config", SMALL | {"hidden_size": 64, "num_hidden_layers": 4}),
    "granite": Family(
        "GraniteConfig",
        SMALL
        | {
            "hidden_size": 64,
            "embedding_multiplier": 6.0,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.125,
            "logits_scaling": 4.0,
        },
    ),
    "mixtral": Family("MixtralConfig", SMALL | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3_moe": Family(
        "Qwen3MoeConfig",
        SMALL
        | {
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "norm_topk_prob": True,
        },
    ),
    "qwen3_moe_dense": Family(
        "Qwen3MoeConfig",
        SMALL
        | {
            "num_hidden_layers": 3,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "norm_topk_prob": False,
            "decoder_sparse_step": 2,
        },
        gguf=False,
    ),
    # The class keeps an original context of 4,096 unless this field says otherwise.
    "phi3_longrope_long": Family(
        "Phi3Config",
        SMALL
        | {
            "hidden_size": 64,
            "rope_parameters": LONGROPE,
            "original_max_position_embeddings": 32,
            "sliding_window": None,
        },
    ),
}
# Head sizes that follow from the others in these classes.
_NO_HEAD_DIM = ("Phi3Config", "Olmo2Config", "GraniteConfig", "SmolLM3Config", "Qwen2Config")


def write_families(out: Path) -> None:
    """Write every case's folder; replaces what `out` holds."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for number, (name, family) in enumerate(FAMILIES.items()):
        folder = out / name
        model = _random_model(family, seed=3000 + number)
        model.save_pretrained(folder)
        reloaded = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        _write_golden(reloaded, folder, seed=4000 + number)
        if family.gguf:
            _write_gguf(folder)


def _random_model(family: Family, seed: int) -> PreTrainedModel:
    torch.manual_seed(seed)
    fields = dict(family.fields)
    if family.config_class in _NO_HEAD_DIM:
        fields.pop("head_dim", None)
    config = getattr(transformers, family.config_class)(
        **{"rope_parameters": dict(ROPE)} | fields,
        vocab_size=VOCAB,
        max_position_embeddings=128,
        initializer_range=0.2,
        rms_norm_eps=1e-3,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
        dtype="float32",
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    # Gemma adds 1 to the weights of its norms.
    mean = 0.0 if family.config_class.startswith("Gemma") else 1.0
    for name, parameter in model.named_parameters():
        if name.endswith(".bias"):
            torch.nn.init.normal_(parameter, std=0.2)
        elif "norm" in name:
            torch.nn.init.normal_(parameter, mean=mean, std=0.2)
    return model


def _write_golden(model: PreTrainedModel, folder: Path, seed: int) -> None:
    """Logits of a text in one pass, and of eight more tokens, each through the model's cache."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, BOS, (1, LENGTH + DECODED), generator=generator)
    ids[0, 0] = BOS
    with torch.inference_mode():
        whole = model(ids, use_cache=False).logits[0]
        step = model(ids[:, :LENGTH], use_cache=True)
        steps = []
        for position in range(LENGTH, LENGTH + DECODED):
            token = ids[:, position : position + 1]
            step = model(token, past_key_values=step.past_key_values, use_cache=True)
            steps.append(step.logits[0, -1])
    decoded = torch.stack(steps)
    apart = (decoded - whole[LENGTH:]).abs().max().item()
    print(
        f"  {folder.name}: decode and prefill differ by {apart:.1e}, |logits| up to "
        f"{whole.abs().max().item():.1f}"
    )
    np.savez_compressed(
        folder / "golden.npz",
        versions=np.array(json.dumps(library_versions())),
        input_ids=ids[0].numpy(),
        prefill_logits=whole[:LENGTH].numpy(),
        decode_logits=decoded.numpy(),
    )


def _write_gguf(folder: Path) -> None:
    """The same weights as FP32 by llama.cpp's converter, with the tokenizer of all tiny models."""
    converter = Path(os.environ[CONVERTER_VARIABLE]) / "convert_hf_to_gguf.py"
    with_tokenizer = folder.with_name(folder.name + "-convert")
    shutil.copytree(folder, with_tokenizer)
    write_tokenizer(with_tokenizer)
    script = (
        "import sys, runpy\n"
        "from pathlib import Path\n"
        "sys.path.insert(0, str(Path(sys.argv[1]).parent))\n"
        "sys.path.insert(1, str(Path(sys.argv[1]).parent / 'gguf-py'))\n"
        "from conversion.base import TextModel\n"
        # The converter knows tokenizers by a hash; ours splits text as GPT-2's does.
        "TextModel.get_vocab_base_pre = lambda self, tokenizer: 'gpt-2'\n"
        # Phi-3, Gemma 2 and Mixtral insist on a SentencePiece file, which only text needs.
        "TextModel._set_vocab_sentencepiece = TextModel._set_vocab_gpt2\n"
        "import conversion.phi\n"
        "conversion.phi.Phi3MiniModel.set_vocab = TextModel._set_vocab_gpt2\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    command = [sys.executable, "-c", script, str(converter), str(with_tokenizer)]
    command += ["--outtype", "f32", "--outfile", str(folder / "model.gguf")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    shutil.rmtree(with_tokenizer)
    if done.returncode:
        raise SystemExit(f"{folder.name}: the converter failed\n{done.stderr[-3000:]}")
