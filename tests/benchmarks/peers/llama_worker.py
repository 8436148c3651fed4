"""llama.cpp's side of `bench_peers`: runs in an environment with llama-cpp-python.

Straight on llama.cpp's C interface, so that nothing of the wrapper is timed: the prompt in batches
of 512, then greedy steps of one token, end tokens ignored, one warm-up of both first. Attention is
llama.cpp's own choice (flash attention where it has it) unless told otherwise.
`--make TYPE FROM` writes the file to measure instead. Last line on stdout: JSON.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import logging
import random
import statistics
import time
from dataclasses import dataclass

import llama_cpp
import numpy as np

PROMPT_SEED = 0  # the seed of engine.bench: both sides get the same prompt
BATCH = 512
FLASH_ATTENTION = {
    "auto": llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "off": llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED,
    "on": llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED,
}


@dataclass(frozen=True)
class Run:
    """Seconds to the first token, and of all steps after it."""

    prefill_s: float
    decode_s: float


class Model:
    """A loaded file and one context on it."""

    def __init__(self, path: str, threads: int, context: int, flash_attention: str) -> None:
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(
            path.encode(), llama_cpp.llama_model_default_params()
        )
        if not self._model:
            raise SystemExit(f"llama.cpp could not load {path}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = context
        params.n_batch = params.n_ubatch = BATCH
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = FLASH_ATTENTION[flash_attention]
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if not self._context:
            raise SystemExit(f"llama.cpp could not make a context of {context} tokens")
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(
            llama_cpp.llama_model_get_vocab(self._model)
        )

    def measure(self, prompt: list[int], num_tokens: int) -> Run:
        """One request, on an empty cache."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), False)
        ids = (ctypes.c_int32 * len(prompt))(*prompt)
        step = (ctypes.c_int32 * 1)()
        start = time.perf_counter()
        for first in range(0, len(prompt), BATCH):
            count = min(BATCH, len(prompt) - first)
            self._decode((ctypes.c_int32 * count).from_buffer(ids, 4 * first), count)
        step[0] = self._best()
        prefilled = time.perf_counter()
        for _ in range(num_tokens - 1):
            self._decode(step, 1)
            step[0] = self._best()
        return Run(prefilled - start, time.perf_counter() - prefilled)

    def _decode(self, ids: ctypes.Array[ctypes.c_int32], count: int) -> None:
        status = llama_cpp.llama_decode(self._context, llama_cpp.llama_batch_get_one(ids, count))
        if status != 0:
            raise SystemExit(f"llama_decode: {status}")

    def _best(self) -> int:
        """The likeliest next token, from llama.cpp's own buffer; waits for the step."""
        logits = llama_cpp.llama_get_logits_ith(self._context, -1)
        return int(np.ctypeslib.as_array(logits, shape=(self.vocab_size,)).argmax())


def make(source: str, target: str, file_type: str) -> None:
    """Quantize with llama.cpp's own function, from quantized weights too."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{file_type.upper()}")
    params.allow_requantize = True
    done = llama_cpp.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params))
    if done != 0:
        raise SystemExit(f"llama.cpp could not write {target}: {done}")


def speeds(runs: list[Run], prompt_tokens: int, num_tokens: int) -> dict[str, float | None]:
    """Medians over the runs, in tokens a second; decode needs two tokens."""
    prefill = statistics.median(prompt_tokens / run.prefill_s for run in runs)
    if num_tokens == 1:
        return {"prefill_tok_s": prefill, "decode_tok_s": None}
    decode = statistics.median((num_tokens - 1) / run.decode_s for run in runs)
    return {"prefill_tok_s": prefill, "decode_tok_s": decode}


def main() -> None:
    """Make a file, or load one, warm up, measure, print."""
    args = _arguments()
    logging.getLogger("llama-cpp-python").setLevel(logging.ERROR)
    if args.make:
        make(args.make[1], args.model, args.make[0])
        return
    context = args.prompt_tokens + args.generate
    model = Model(args.model, args.threads, context, args.flash_attention)
    rng = random.Random(PROMPT_SEED)
    prompt = [rng.randrange(model.vocab_size) for _ in range(args.prompt_tokens)]
    model.measure(prompt, args.generate)
    runs = [model.measure(prompt, args.generate) for _ in range(args.repeat)]
    result: dict[str, object] = {**speeds(runs, args.prompt_tokens, args.generate)}
    result["version"] = llama_cpp.__version__
    result["system"] = llama_cpp.llama_print_system_info().decode()
    print(json.dumps(result))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time llama.cpp.")
    parser.add_argument("--model", required=True)
    parser.add_argument("--make", nargs=2, metavar=("TYPE", "FROM"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt-tokens", type=int, default=BATCH)
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--flash-attention", choices=sorted(FLASH_ATTENTION), default="auto")
    return parser.parse_args()


if __name__ == "__main__":
    main()
