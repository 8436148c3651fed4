"""Greedy continuations of the starter model by transformers, in float32.

The weights are the GGUF's dequantized values, converted by `write_safetensors` and checked,
tensor by tensor, against transformers' own GGUF reader.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import torch
from make_common import library_versions, rounded, top2_margins, write_rows
from transformers import AutoModelForCausalLM, LlamaForCausalLM, PreTrainedTokenizerFast
from write_safetensors import write_checkpoint

NUM_TOKENS = 48

RAW_PROMPTS = {
    "capital": "The capital of France is",
    "science": "Water boils at a lower temperature on a mountain because",
    "code": 'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n',
    "chinese": "北京是中国的首都，",
    "arabic": "القاهرة هي عاصمة مصر و",
    "french": "Il était une fois, dans un petit village de Provence,",
    "emoji": "My favourite foods: 🍕 pizza, 🍣 sushi, 🥑",
    "digits": "1, 2, 4, 8, 16, 32, 64, 128,",
}
CHATS: dict[str, list[dict[str, str]]] = {
    "chat_kv_cache": [
        {"role": "user", "content": "Explain the KV cache in two sentences."},
    ],
    "chat_system": [
        {"role": "system", "content": "You answer like a pirate."},
        {"role": "user", "content": "What is the Moon made of?"},
    ],
    "chat_turns": [
        {"role": "user", "content": "Name three primary colours."},
        {"role": "assistant", "content": "Red, yellow and blue."},
        {"role": "user", "content": "Which two of them make green?"},
    ],
    "chat_code": [
        {"role": "user", "content": "Write a Python function that reverses a string."},
    ],
    "chat_french": [
        {"role": "user", "content": "Écris une phrase sur l'été à Paris. 🌞"},
    ],
    "chat_chinese": [
        {"role": "user", "content": "请用一句话介绍长城。👩‍🚀"},
    ],
}


def write_smollm2(gguf_path: Path, out: Path) -> None:
    """Write `smollm2.json`; raises AssertionError when a cross-check fails."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_checkpoint(gguf_path, Path(scratch), "fp32")
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        _check_against_gguf_reader(model, gguf_path)
        rows = [_continue(model, tokenizer, case) for case in _cases(tokenizer)]
    header = {
        "versions": library_versions(),
        "model_file": gguf_path.name,
        "model_sha256": hashlib.sha256(gguf_path.read_bytes()).hexdigest(),
        "dtype": "float32",
        "eos_token_ids": [tokenizer.eos_token_id],
        "num_tokens": NUM_TOKENS,
    }
    write_rows(out / "smollm2.json", header, "prompts", rows)
    compared = [_positions_above(row["margins"], 1e-2) for row in rows]
    print(f"  margins stay above 1e-2 for {sum(compared) / len(compared):.1f} tokens on average")


def _cases(tokenizer: PreTrainedTokenizerFast) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = []
    for name, text in RAW_PROMPTS.items():
        cases.append({"name": name, "kind": "raw", "messages": None, "text": text})
    for name, messages in CHATS.items():
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        cases.append({"name": name, "kind": "chat", "messages": messages, "text": text})
    for case in cases:
        case["prompt_ids"] = tokenizer(case["text"], add_special_tokens=False).input_ids
    return cases


def _continue(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, case: dict[str, Any]
) -> dict[str, Any]:
    """The case with its greedy tokens; the end token is recorded but does not stop."""
    prompt = torch.tensor([case["prompt_ids"]])
    result = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=NUM_TOKENS,
        do_sample=False,
        eos_token_id=None,
        return_dict_in_generate=True,
        output_logits=True,
    )
    token_ids = result.sequences[0, prompt.shape[1] :]
    logits = torch.cat(result.logits)
    _check_against_full_forward(model, result.sequences, logits)
    eos = tokenizer.eos_token_id
    ids = token_ids.tolist()
    return case | {
        "token_ids": ids,
        "eos_index": ids.index(eos) if eos in ids else None,
        "margins": rounded(top2_margins(logits)),
        "top_logprobs": rounded(logits.log_softmax(-1).amax(-1)),
        "generated_text": tokenizer.decode(ids, skip_special_tokens=False),
    }


def _check_against_full_forward(
    model: LlamaForCausalLM, sequences: torch.Tensor, cached_logits: torch.Tensor
) -> None:
    """The cache must not have changed the logits: one pass over everything gives the same."""
    with torch.inference_mode():
        full = model(sequences[:, :-1], use_cache=False).logits[0, -NUM_TOKENS:]
    torch.testing.assert_close(cached_logits, full, rtol=1e-4, atol=1e-3)


def _check_against_gguf_reader(model: LlamaForCausalLM, gguf_path: Path) -> None:
    """Two independent conversions of the same file must agree bit for bit."""
    other = AutoModelForCausalLM.from_pretrained(
        gguf_path.parent, gguf_file=gguf_path.name, dtype=torch.float32
    )
    expected = other.state_dict()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, expected[name]), f"{name} differs from transformers' GGUF reader"
    print(f"  {len(expected)} tensors equal transformers' own GGUF conversion")


def _positions_above(margins: list[float], bound: float) -> int:
    small = [index for index, margin in enumerate(margins) if margin <= bound]
    return small[0] if small else len(margins)
