"""What a map of the block pool costs the engine, by the pool's size, in ms.

Run: python tests/benchmarks/block_map.py
The pool is as busy as it gets: a chat that fills half of it, another one that shares a quarter,
the rest cached.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from engine.block_manager import BlockManager, PoolSpec
from engine.block_map import block_map
from engine.config import GenerationRequest
from engine.sequence import Sequence

BLOCK_SIZE = 16
REPEATS = 200


def main() -> None:
    """Print the median over pools of three sizes."""
    for num_blocks in (256, 1_000, 10_000, 100_000):
        blocks, running = busy_pool(num_blocks)
        times = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            block_map(blocks, running, 0)
            times.append((time.perf_counter() - start) * 1e3)
        print(f"{num_blocks:8,} blocks  {np.median(times):6.3f} ms")


def busy_pool(num_blocks: int) -> tuple[BlockManager, list[Sequence]]:
    """Two running sequences with a common prefix, and what a third one left behind."""
    blocks = BlockManager([PoolSpec(num_blocks)], BLOCK_SIZE, prefix_caching=True)
    half = num_blocks // 2 * BLOCK_SIZE
    admit(blocks, "gone", [1] * (num_blocks * BLOCK_SIZE - BLOCK_SIZE), release=True)
    first = admit(blocks, "first", [2] * (half - 6))
    second = admit(blocks, "second", [2] * (half // 2) + [3] * 20)
    return blocks, [first, second]


def admit(blocks: BlockManager, name: str, tokens: list[int], *, release: bool = False) -> Sequence:
    """A sequence whose tokens are all computed."""
    request = GenerationRequest(name, prompt_ids=tuple(tokens))
    sequence = Sequence(request, tokens, 1, 0, 0, "")
    assert blocks.admit(sequence, len(tokens))
    sequence.num_computed_tokens = len(tokens)
    blocks.commit(sequence)
    if release:
        blocks.release(sequence)
    return sequence


if __name__ == "__main__":
    main()
