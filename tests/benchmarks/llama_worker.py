"""llama.cpp's side of `bench_peers`: runs in an environment with llama-cpp-python.

The prompt in one batch, then greedy steps of one token, end tokens ignored; one warm-up first.
`--make TYPE FROM` writes the file to measure instead. Last line on stdout: JSON.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import time

import llama_cpp
import numpy as np

PROMPT_SEED = 0  # the seed of engine.bench: both sides get the same prompt
BATCH = 512


def measure(model: llama_cpp.Llama, prompt: list[int], num_tokens: int) -> dict[str, float]:
    """Tokens per second of a prompt and of the steps after it."""
    model.reset()
    start = time.perf_counter()
    model.eval(prompt)
    token = _best(model)
    prefilled = time.perf_counter()
    for _ in range(num_tokens - 1):
        model.eval([token])
        token = _best(model)
    end = time.perf_counter()
    return {
        "prefill_tok_s": len(prompt) / (prefilled - start),
        "decode_tok_s": (num_tokens - 1) / (end - prefilled),
    }


def make(source: str, target: str, file_type: str) -> None:
    """Quantize with llama.cpp's own function, from quantized weights too."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{file_type.upper()}")
    params.allow_requantize = True
    done = llama_cpp.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params))
    if done != 0:
        raise SystemExit(f"llama.cpp could not write {target}: {done}")


def main() -> None:
    """Make a file, or load one, warm up, measure once, print."""
    parser = argparse.ArgumentParser(description="Time llama.cpp.")
    parser.add_argument("--model", required=True)
    parser.add_argument("--make", nargs=2, metavar=("TYPE", "FROM"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt-tokens", type=int, default=BATCH)
    parser.add_argument("--generate", type=int, default=128)
    args = parser.parse_args()
    if args.make:
        make(args.make[1], args.model, args.make[0])
        return
    model = llama_cpp.Llama(
        args.model,
        n_ctx=args.prompt_tokens + args.generate,
        n_threads=args.threads,
        n_threads_batch=args.threads,
        n_batch=BATCH,
        n_ubatch=BATCH,
        verbose=False,
    )
    rng = random.Random(PROMPT_SEED)
    prompt = [rng.randrange(model.n_vocab()) for _ in range(args.prompt_tokens)]
    measure(model, prompt, args.generate)
    result: dict[str, object] = {**measure(model, prompt, args.generate)}
    result["version"] = llama_cpp.__version__
    result["system"] = llama_cpp.llama_print_system_info().decode()
    print(json.dumps(result))


def _best(model: llama_cpp.Llama) -> int:
    """The likeliest token after the last evaluation, straight from llama.cpp's buffer."""
    logits = llama_cpp.llama_get_logits(model.ctx)
    return int(np.ctypeslib.as_array(logits, shape=(model.n_vocab(),)).argmax())


if __name__ == "__main__":
    main()
