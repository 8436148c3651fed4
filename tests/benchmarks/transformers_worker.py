"""The other side of `bench_transformers`: runs in an environment with transformers.

Greedy `generate` with its defaults (cached, SDPA attention), end tokens ignored; a streamer
stamps the clock when `generate` hands a token over. Last line on stdout: JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.generation.streamers import BaseStreamer

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp16": torch.float16}
PROMPT_SEED = 0  # the seed of engine.bench: both sides get the same prompt


class ClockStreamer(BaseStreamer):
    """Notes when each put happens; the first put is the prompt itself."""

    def __init__(self) -> None:
        self.stamps: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        """Called by `generate` with the prompt, then with each token."""
        self.stamps.append(time.perf_counter())

    def end(self) -> None:
        """Nothing is held back."""


def measure(model: Any, prompt: torch.Tensor, num_tokens: int) -> dict[str, Any]:
    """One request: seconds to the first token, and between tokens."""
    streamer = ClockStreamer()
    start = time.perf_counter()
    output = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=num_tokens,
        do_sample=False,
        eos_token_id=None,
        streamer=streamer,
    )
    tokens = streamer.stamps[1:]
    assert output.shape[1] == prompt.shape[1] + num_tokens == prompt.shape[1] + len(tokens)
    gaps = [after - before for before, after in pairwise(tokens)]
    return {"ttft_s": tokens[0] - start, "itl_s": gaps}


def main() -> None:
    """Load, warm up once, measure once, print."""
    parser = argparse.ArgumentParser(description="Time transformers' generate.")
    parser.add_argument("--model", required=True)
    parser.add_argument("--weights", choices=sorted(DTYPES), required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--prompt-tokens", type=int, required=True)
    parser.add_argument("--generate", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=DTYPES[args.weights]).eval()
    rng = random.Random(PROMPT_SEED)
    vocab_size = model.config.vocab_size
    prompt = torch.tensor([[rng.randrange(vocab_size) for _ in range(args.prompt_tokens)]])
    measure(model, prompt, args.generate)
    result = measure(model, prompt, args.generate)
    result["versions"] = {name: version(name) for name in ("torch", "transformers")}
    result["attention"] = model.config._attn_implementation
    print(json.dumps(result))


if __name__ == "__main__":
    main()
