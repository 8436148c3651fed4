"""Quantized checkpoints of other tools: the engine's logits against those of what they unpack."""

import numpy as np
import pytest
import torch

from kernels.select import KernelSet, torch_kernels
from tests.engine.rig import GOLDEN, Rig

CASES = sorted(path.name for path in (GOLDEN / "packed").iterdir())
# Of the largest logit. In FP32 only the order of sums differs.
EXACT = 1e-4
# Kept codes, computed without rounding activations: symmetric ones are exact, asymmetric minima
# are rounded to FP16.
KEPT = 3e-3
# FP8 becomes BF16, three bits of which are lost on the scale.
EXPANDED = 3e-2
# Native INT4 products round activations to 8 bits, which these random models magnify.
ROUNDED = 1e-1


def difference(case: str, weight_format: str, kernels: KernelSet | None = None) -> float:
    """Largest difference of a logit, relative to the largest logit."""
    with np.load(GOLDEN / "packed" / case / "golden.npz") as golden:
        ids, expected = golden["input_ids"].tolist(), torch.from_numpy(golden["logits"])
    rig = Rig(GOLDEN / "packed" / case, weight_format, kernels=kernels)
    got = rig.teacher_forced(ids, 1000)
    return float((got - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("case", CASES)
def test_expanded_weights_are_the_tools(case: str) -> None:
    """In FP32 nothing is lost."""
    assert difference(case, "fp32") < EXACT


@pytest.mark.parametrize("case", CASES)
def test_kept_weights_are_the_tools(case: str) -> None:
    """Codes kept as they are; what cannot be kept becomes BF16."""
    expanded = "fp8" in case or "short_group" in case
    kernels = torch_kernels(torch.float32, torch.float32)
    assert difference(case, "as-stored", kernels) < (EXPANDED if expanded else KEPT)


@pytest.mark.parametrize("case", CASES)
def test_fast_kernels_come_close(case: str) -> None:
    """The same through the kernels of this machine."""
    bound = ROUNDED if "4bit" in case else EXPANDED if "fp8" in case else KEPT
    assert difference(case, "as-stored") < bound


def test_act_order_decodes_as_it_reads() -> None:
    """Recorded steps, which gather their inputs too, choose what the whole sequence chooses."""
    rig = Rig(GOLDEN / "packed" / "gptq_4bit_act_order", "as-stored")
    prompt = list(range(40, 60))
    tokens = rig.generate(prompt, 12)
    logits = rig.teacher_forced(prompt + tokens, 1000)[len(prompt) - 1 : -1]
    best = logits.topk(2).values
    clear = best[:, 0] - best[:, 1] > 1e-2 * best.abs().max()
    assert int(clear.sum()) >= 6
    assert torch.equal(logits.argmax(-1)[clear], torch.tensor(tokens)[clear])
