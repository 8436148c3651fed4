"""The engine against Hugging Face transformers, on golden files made once."""

import numpy as np
import pytest
import torch

from tests.engine.rig import GOLDEN, TINY_CASES, Rig

MARGIN = 1e-2  # below it another order of summation may choose the other token


def load_golden(case: str) -> dict[str, np.ndarray]:
    """Arrays of a tiny case."""
    with np.load(GOLDEN / "tiny" / case / "golden.npz") as data:
        return dict(data)


@pytest.mark.parametrize("case", TINY_CASES)
@pytest.mark.parametrize("chunk", [1000, 7])
def test_teacher_forced_logits(case: str, chunk: int) -> None:
    """Every position's logits within 1e-3, the prompt whole and in chunks, in shuffled blocks."""
    golden, rig = load_golden(case), Rig(GOLDEN / "tiny" / case)
    for index in range(2):
        ids = golden[f"input_ids_{index}"].tolist()
        logits = rig.teacher_forced(ids, chunk)
        expected = torch.from_numpy(golden[f"logits_{index}"])
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("case", TINY_CASES)
def test_greedy_tokens(case: str) -> None:
    """Cached decode gives transformers' tokens while the margin is clear."""
    golden, rig = load_golden(case), Rig(GOLDEN / "tiny" / case)
    compared = 0
    for index in range(2):
        expected = golden[f"greedy_ids_{index}"].tolist()
        got = rig.generate(golden[f"input_ids_{index}"].tolist(), len(expected))
        margins = golden[f"greedy_margins_{index}"]
        clear = next((i for i, m in enumerate(margins) if m <= MARGIN), len(margins))
        assert got[:clear] == expected[:clear]
        compared += clear
    assert compared >= 8, "the case proves too little"
