"""Every family of models against transformers, from safetensors and from GGUF."""

from pathlib import Path

import numpy as np
import pytest
import torch

from engine.loading.checkpoint import open_checkpoint
from engine.models.registry import ARCHITECTURES
from kernels.select import torch_kernels
from tests.engine.rig import GOLDEN, Rig

FAMILIES = GOLDEN / "families"
FILES = sorted(
    path.relative_to(FAMILIES).as_posix()
    for pattern in ("*/config.json", "*/model.gguf")
    for path in FAMILIES.glob(pattern)
)
RELATIVE = 1e-4  # of the largest logit


def close(logits: torch.Tensor, expected: np.ndarray) -> None:
    """Within RELATIVE. Gemma 3's converter leaves out rows that no token of the vocabulary has."""
    expected = expected[:, : logits.shape[1]]
    assert logits.shape[1] in (260, 272)
    limit = RELATIVE * float(np.abs(expected).max())
    torch.testing.assert_close(logits, torch.from_numpy(expected), rtol=0, atol=limit)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("chunk", [1000, 7])
@pytest.mark.parametrize("kernels", ["native", "torch"])
def test_logits_are_those_of_transformers(file: str, chunk: int, kernels: str) -> None:
    """A text in one pass or in chunks, then eight tokens by the recorded decode step."""
    path = FAMILIES / file
    with np.load(path.parent / "golden.npz") as data:
        golden = dict(data)
    ids = golden["input_ids"].tolist()
    num_prefill = len(golden["prefill_logits"])
    operations = torch_kernels(torch.float32, torch.float32) if kernels == "torch" else None
    rig = Rig(path if path.suffix == ".gguf" else path.parent, kernels=operations)
    close(rig.teacher_forced(ids[:num_prefill], chunk), golden["prefill_logits"])
    close(rig.decode_forced(ids, num_prefill), golden["decode_logits"])


def test_every_known_family_has_a_golden_case() -> None:
    """Llama's are in tiny/; each other family is here, and as GGUF where GGUF knows it."""
    names = {open_checkpoint(str(path.parent)).config.architecture for path in _configs()}
    assert names | {"llama"} == {family.name for family in ARCHITECTURES}
    as_gguf = {
        open_checkpoint(str(FAMILIES / file)).config.architecture
        for file in FILES
        if file.endswith(".gguf")
    }
    with_gguf = {family.name for family in ARCHITECTURES if family.gguf_name}
    assert as_gguf | {"llama"} == with_gguf | {"mixtral"}


def _configs() -> list[Path]:
    return sorted(FAMILIES.glob("*/config.json"))
