"""GPTQ and AWQ tensors unpacked word by word in plain Python: slow, and nothing like the packer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

_AWQ_SHIFTS = (0, 16, 4, 20, 8, 24, 12, 28)  # of output n % 8 within its word


def unpack(parts: Mapping[str, torch.Tensor], method: str, bits: int) -> torch.Tensor:
    """FP32 [N, K] of a product's `qweight`, `qzeros` and `scales`."""
    scales = parts["scales"].float().numpy()
    num_groups, num_out = scales.shape
    words, zero_words = (parts[name].numpy().view(np.uint32) for name in ("qweight", "qzeros"))
    per_word, mask = 32 // bits, (1 << bits) - 1
    num_in = words.shape[0] * (1 if method == "awq" else per_word)
    weight = np.zeros((num_out, num_in), np.float32)
    for n in range(num_out):
        shift = _AWQ_SHIFTS[n % 8] if method == "awq" else bits * (n % per_word)
        for k in range(num_in):
            group = k * num_groups // num_in
            zero = (int(zero_words[group, n // per_word]) >> shift) & mask
            if method == "awq":
                code = (int(words[k, n // 8]) >> shift) & mask
            else:
                zero += 1
                code = (int(words[k // per_word, n]) >> (bits * (k % per_word))) & mask
            weight[n, k] = scales[group, n] * np.float32(code - zero)
    return torch.from_numpy(weight)
