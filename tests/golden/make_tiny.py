"""Tiny random Llama checkpoints with transformers' logits for them, one folder a case.

Weights are drawn with a standard deviation of 0.2 (transformers' 0.02 lets a tied model repeat
one token, which proves nothing); norms and biases are random too, as a fresh model's ones and
zeros would hide their absence.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from make_common import library_versions, top2_margins
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.convert_slow_tokenizer import bytes_to_unicode

VOCAB = 272  # more rows than the tokenizer's 260 tokens, as padded checkpoints have
BOS, EOS, PAD, END_OF_TURN = 256, 257, 258, 259
SPECIAL_TOKENS = {BOS: "<|bos|>", EOS: "<|eos|>", PAD: "<|pad|>", END_OF_TURN: "<|end|>"}
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['role'] + ': ' + message['content'] }}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
GREEDY_TOKENS = 16
ORIGINAL_CONTEXT = 64


@dataclass(frozen=True)
class Case:
    """One checkpoint: overrides of the base config, and how it is written.

    `legacy_rope` writes `rope_theta` and `rope_scaling` as checkpoints before transformers 5
    have them, with the type under the key it names; otherwise `rope_parameters`.
    """

    overrides: dict[str, Any] = field(default_factory=dict)
    rope: dict[str, Any] = field(default_factory=dict)
    lengths: tuple[int, ...] = (40, 70)
    legacy_rope: str | None = None
    max_shard_size: str = "5GB"


SMALL = {
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_hidden_layers": 2,
}
WIDE_HEADS = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 2,
    "tie_word_embeddings": True,
}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": ORIGINAL_CONTEXT,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": ORIGINAL_CONTEXT,
}
LONG = (50, 110)  # the second runs past the original context

CASES = {
    "mha": Case(SMALL),
    "gqa": Case(SMALL | {"num_key_value_heads": 2}, legacy_rope="rope_type"),
    "mqa": Case(SMALL | {"num_key_value_heads": 1}),
    "tied": Case(SMALL | {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "biases": Case(SMALL | {"attention_bias": True, "mlp_bias": True}),
    "head_dim": Case(SMALL | {"num_key_value_heads": 2, "head_dim": 20}),
    "sharded": Case(SMALL | {"num_key_value_heads": 2}, max_shard_size="100KB"),
    "rope_linear": Case(
        WIDE_HEADS, {"rope_type": "linear", "factor": 3.0}, LONG, legacy_rope="type"
    ),
    "rope_llama3": Case(WIDE_HEADS, LLAMA3 | {"rope_theta": 500.0}, LONG, legacy_rope="rope_type"),
    "rope_yarn": Case(WIDE_HEADS, YARN, LONG),
    "rope_yarn_legacy": Case(WIDE_HEADS, YARN, LONG, legacy_rope="type"),
    "rope_yarn_mscale": Case(WIDE_HEADS, YARN | {"mscale": 1.0, "mscale_all_dim": 0.4}, LONG),
    "rope_yarn_factor": Case(
        WIDE_HEADS, YARN | {"attention_factor": 1.3, "beta_fast": 8.0, "beta_slow": 0.5}, LONG
    ),
    "rope_yarn_no_truncate": Case(WIDE_HEADS, YARN | {"truncate": False, "beta_fast": 4.0}, LONG),
}


def write_tiny(out: Path) -> None:
    """Write every case's folder and the tokenizer they share; replaces what `out` holds."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    write_tokenizer(out)
    for number, (name, case) in enumerate(CASES.items()):
        folder = out / name
        model = random_model(case, seed=1000 + number)
        model.save_pretrained(folder, max_shard_size=case.max_shard_size)
        if case.legacy_rope:
            _rewrite_legacy_rope(folder / "config.json", case.legacy_rope)
        reloaded = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        if case.rope:
            _check_scaling_matters(reloaded)
        _write_golden(reloaded, case, folder, seed=2000 + number)


def random_model(case: Case, seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    rope = {"rope_type": "default", "rope_theta": 10000.0} | case.rope
    config = LlamaConfig(
        vocab_size=VOCAB,
        max_position_embeddings=256,
        initializer_range=0.2,
        rms_norm_eps=1e-3,  # large enough to be missed when ignored
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
        rope_parameters=rope,
        dtype="float32",
        **case.overrides,
    )
    model = LlamaForCausalLM(config).eval()
    for name, parameter in model.named_parameters():
        if name.endswith(".bias"):
            torch.nn.init.normal_(parameter, std=0.2)
        elif "norm" in name:
            torch.nn.init.normal_(parameter, mean=1.0, std=0.2)
    # Two end tokens here, one in config.json: a reader has to take the union.
    model.generation_config = GenerationConfig(
        bos_token_id=BOS, eos_token_id=[EOS, END_OF_TURN], pad_token_id=PAD
    )
    return model


def _rewrite_legacy_rope(config_file: Path, type_key: str) -> None:
    config = json.loads(config_file.read_text(encoding="utf-8"))
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    rope_type = rope.pop("rope_type")
    config["rope_scaling"] = None if rope_type == "default" else {type_key: rope_type} | rope
    config_file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _check_scaling_matters(model: LlamaForCausalLM) -> None:
    """Without its RoPE scaling the same model must say something else."""
    config = LlamaConfig.from_dict(model.config.to_dict())
    config.rope_parameters = {
        "rope_type": "default",
        "rope_theta": config.rope_parameters["rope_theta"],
    }
    plain = LlamaForCausalLM(config).eval()
    plain.load_state_dict(model.state_dict())
    ids = torch.arange(LONG[-1])[None] * 7 % BOS
    with torch.inference_mode():
        difference = (plain(ids).logits - model(ids).logits).abs().max().item()
    assert difference > 0.1, f"the scaling changes logits by {difference} only"


def _write_golden(model: LlamaForCausalLM, case: Case, folder: Path, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    arrays: dict[str, Any] = {"versions": np.array(json.dumps(library_versions()))}
    distinct = []
    for number, length in enumerate(case.lengths):
        ids = torch.randint(0, BOS, (1, length), generator=generator)
        ids[0, 0] = BOS
        with torch.inference_mode():
            logits = model(ids, use_cache=False).logits[0]
        result = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=GREEDY_TOKENS,
            do_sample=False,
            eos_token_id=None,
            return_dict_in_generate=True,
            output_logits=True,
        )
        greedy = result.sequences[0, length:]
        distinct.append(len(set(greedy.tolist())))
        arrays |= {
            f"input_ids_{number}": ids[0].numpy(),
            f"logits_{number}": logits.numpy(),
            f"greedy_ids_{number}": greedy.numpy(),
            f"greedy_margins_{number}": top2_margins(torch.cat(result.logits)).numpy(),
        }
    np.savez_compressed(folder / "golden.npz", **arrays)
    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    golden = (folder / "golden.npz").stat().st_size
    print(f"  {folder.name}: weights {weights:,}, golden {golden:,} bytes, distinct {distinct}")
    assert min(distinct) >= GREEDY_TOKENS // 2, f"{folder.name} repeats itself: choose a new seed"


def write_tokenizer(out: Path) -> None:
    """Byte-level, no merges: token id = byte value, then the special tokens; BOS in front."""
    alphabet = bytes_to_unicode()
    vocab = {alphabet[byte]: byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS.values()]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", BOS)]
    )
    assert all(tokenizer.token_to_id(token) == key for key, token in SPECIAL_TOKENS.items())
    tokenizer.save(str(out / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL_TOKENS[BOS],
        "eos_token": SPECIAL_TOKENS[EOS],
        "pad_token": SPECIAL_TOKENS[PAD],
        "chat_template": CHAT_TEMPLATE,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
