"""How long a second turn waits after a first one of 2,000 tokens, as a share of the first wait.

Run: python -m tests.benchmarks.second_turn [--model PATH] [--rounds 5]
Target: at most 0.15 of the first turn's TTFT. The second turn is the first one, its answer and
another question of 20 tokens; every round begins with a text of its own, so that the cache knows
nothing of it. Prints the median of the rounds and each of them.
"""

from __future__ import annotations

import argparse
import random
import statistics
from pathlib import Path

from engine.config import EngineConfig, GenerationRequest
from engine.events import GenerationFinished, LoadFailed
from engine.local_session import LocalSession
from engine.starter import starter_model_path
from tests.benchmarks.measuring import wait_until_quiet

PROMPT_TOKENS, QUESTION_TOKENS, ANSWER_TOKENS = 2_000, 20, 32
TARGET = 0.15


def turn(session: LocalSession, ids: tuple[int, ...]) -> GenerationFinished:
    """One greedy answer."""
    request = GenerationRequest("r", prompt_ids=ids, max_tokens=ANSWER_TOKENS, ignore_eos=True)
    *_, end = [e for e in session.generate(request) if isinstance(e, GenerationFinished)]
    return end


def measure(session: LocalSession, seed: int, vocab: int) -> tuple[float, float, int]:
    """TTFT in ms of the first and of the second turn, and the tokens that one found."""
    chance = random.Random(seed)
    ids = tuple(chance.randrange(5, vocab) for _ in range(PROMPT_TOKENS + QUESTION_TOKENS))
    first = turn(session, ids[:PROMPT_TOKENS])
    history = first.prompt_ids + first.token_ids
    second = turn(session, (*history, *ids[PROMPT_TOKENS:]))
    assert first.metrics.ttft_ms is not None
    assert second.metrics.ttft_ms is not None
    return first.metrics.ttft_ms, second.metrics.ttft_ms, second.metrics.cached_tokens


def main() -> None:
    """Load, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="the starter model when not given")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    session = LocalSession()
    path = args.model or starter_model_path()
    if path is None:
        raise SystemExit("The starter model is not installed; name one with --model.")
    config = EngineConfig(str(path), context_length=4096)
    *_, loaded = session.load(config)
    if isinstance(loaded, LoadFailed):
        raise SystemExit(f"{loaded.what} {loaded.why}")
    print(f"machine busy {wait_until_quiet():.0f} %")
    vocab = session.inspect(config.model_path).vocab_size
    ratios = []
    for number in range(args.rounds):
        first, second, found = measure(session, number, vocab)
        ratios.append(second / first)
        print(f"first {first:8.1f} ms   second {second:7.1f} ms   {found:,} cached")
    print(f"ratio {statistics.median(ratios):.3f}, target {TARGET}")
    session.close()


if __name__ == "__main__":
    main()
