"""What the KV cache saves: the same prompt generated with it and without, last line JSON.

`python -m tests.benchmarks.cache_off` takes the starter model and 1,000 tokens; the run without
the cache grows with the square of their number. Greedy, end tokens ignored.
"""

from __future__ import annotations

import argparse
import json
import sys

import numpy as np

from engine.config import EngineConfig, GenerationRequest
from engine.events import GenerationFailed, TokenEvent
from engine.load_blocking import load_or_raise
from engine.session import EngineError, Session, create_session
from engine.starter import starter_model_path

PROMPT_TOKENS = 32
TARGET = 5.0


def latencies(session: Session, num_tokens: int, *, use_cache: bool) -> np.ndarray:
    """Inter-token latencies in ms, shape [num_tokens - 1]."""
    request = GenerationRequest(
        "on" if use_cache else "off",
        prompt_ids=tuple(range(1000, 1000 + PROMPT_TOKENS)),
        max_tokens=num_tokens,
        ignore_eos=True,
        use_cache=use_cache,
    )
    found = []
    for event in session.generate(request):
        if isinstance(event, GenerationFailed):
            raise EngineError(event.what, event.why, event.next)
        if isinstance(event, TokenEvent) and event.itl_ms is not None:
            found.append(event.itl_ms)
    return np.array(found)


def main() -> int:
    """Measure and print; 1 when the speed-up misses its target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=starter_model_path())
    parser.add_argument("--generate", type=int, default=1000, metavar="N")
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    session = create_session()
    config = EngineConfig(args.model, threads=args.threads, context_length=args.generate + 64)
    load_or_raise(session, config)
    latencies(session, 32, use_cache=True)  # warms up
    on = latencies(session, args.generate, use_cache=True)
    off = latencies(session, args.generate, use_cache=False)
    session.close()
    speed_up = off.sum() / on.sum()
    tenth = max(1, len(off) // 10)
    print(f"with the cache    {on.sum() / 1e3:8.2f} s, {np.median(on):.2f} ms a token")
    first, last = np.median(off[:tenth]), np.median(off[-tenth:])
    print(f"without the cache {off.sum() / 1e3:8.2f} s, {first:.1f} ms rising to {last:.1f} ms")
    print(f"speed-up          {speed_up:8.1f}x, target {TARGET:g}x")
    result = {
        "tokens": args.generate,
        "cached_s": round(on.sum() / 1e3, 3),
        "uncached_s": round(off.sum() / 1e3, 3),
        "speed_up": round(speed_up, 2),
        "uncached_first_ms": round(first, 2),
        "uncached_last_ms": round(last, 2),
    }
    print(json.dumps(result))
    return int(speed_up < TARGET)


if __name__ == "__main__":
    sys.exit(main())
