"""What it costs to save evicted blocks to host memory and to bring them back, in GB/s.

Run: python tests/benchmarks/host_blocks.py [--device cuda]
                     [--layers 36 --kv-heads 8 --head-dim 128]
Only on a GPU do the copies cross a bus; on a CPU the figures are those of its memory, staged as
for a GPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch

from engine.host_blocks import HostBlocks
from engine.host_slots import BlockCopy
from engine.kv_cache import KVCache, KVCacheGroup, KVCacheSpec

BLOCK_SIZE = 16
REPEATS = 9


def main() -> None:
    """Print the medians over chats of three lengths."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--layers", type=int, default=36)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=128)
    args = parser.parse_args()
    device = torch.device(args.device)
    spec = KVCacheSpec(args.kv_heads, args.head_dim, "bf16")
    group = KVCacheGroup(spec, tuple(range(args.layers)))
    for num_tokens in (128, 512, 2048):
        num_blocks = num_tokens // BLOCK_SIZE
        cache = KVCache(
            (group,), [num_blocks], BLOCK_SIZE, device, max_num_seqs=1, max_num_batched_tokens=512
        )
        host = HostBlocks(cache, [num_blocks])
        for to_host in (True, False):
            ms = median_ms(host, num_blocks, to_host, device)
            rate = cache.reserved_bytes / ms / 1e6
            words = "saved" if to_host else "restored"
            print(f"{num_tokens:6,} tokens {words:9} {ms:8.2f} ms {rate:7.2f} GB/s")


def median_ms(host: HostBlocks, num_blocks: int, to_host: bool, device: torch.device) -> float:
    """Blocks and slots in no order, until the device is done."""
    slots = torch.randperm(num_blocks).tolist()
    copies = [BlockCopy(block + 1, slot, to_host) for block, slot in enumerate(slots)]
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        host.carry_out([copies])
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append((time.perf_counter() - start) * 1e3)
    return float(np.median(times))


if __name__ == "__main__":
    main()
