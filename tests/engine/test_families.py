"""Every family of models against transformers, from safetensors and from GGUF."""

from pathlib import Path

import numpy as np
import pytest
import torch

from engine.layers.mlp import MixtureOfExperts
from engine.loading.checkpoint import open_checkpoint
from engine.loading.weight_source import WeightSource
from engine.memory import weight_bytes
from engine.models.decoder import DecoderModel
from engine.models.registry import ARCHITECTURES
from kernels.select import torch_kernels
from kernels.weights import DenseWeight
from tests.engine.rig import CPU, GOLDEN, Rig

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


@pytest.mark.parametrize("name", ["mistral", "qwen2_window", "gemma2", "gemma3"])
@pytest.mark.parametrize("budget", [5, 16])
def test_blocks_left_behind_by_a_window_are_not_missed(name: str, budget: int) -> None:
    """Two texts in chunks, in pools that hold little more than the windows, one cut short."""
    path = FAMILIES / name
    with np.load(path / "golden.npz") as data:
        golden = dict(data)
    ids = golden["input_ids"].tolist()
    num_prefill = len(golden["prefill_logits"])
    rig = Rig(path, block_size=4, num_blocks=60, max_num_seqs=2, budget=budget)
    windowed = [spec for spec in rig.specs if spec.window is not None]
    assert windowed
    assert max(spec.num_blocks for spec in windowed) < 2 * len(ids) // 4
    other = rig.start(ids[7:50], 3)
    close(rig.decode_forced(ids, num_prefill), golden["decode_logits"])
    rig.scheduler.remove(other)
    again = rig.decode_forced(ids, num_prefill)
    close(again, golden["decode_logits"])
    rig.blocks.check_integrity()


@pytest.mark.parametrize("name", ["gemma2", "phi3", "olmo2", "mixtral", "qwen3_moe_dense"])
@pytest.mark.parametrize("weight_format", ["as-stored", "bf16", "int8", "int4"])
def test_memory_is_estimated_to_the_byte(name: str, weight_format: str) -> None:
    """From headers alone what reading the weights takes; routers stay in FP32."""
    checkpoint = open_checkpoint(str(FAMILIES / name))
    kernels = torch_kernels(torch.float32, torch.float32)
    source = WeightSource(checkpoint, weight_format, kernels, CPU)
    model = DecoderModel(checkpoint.config, kernels, CPU)
    for _ in model.load(source, 64):
        pass
    assert source.weight_bytes == weight_bytes(checkpoint, weight_format)
    mixtures = [layer.mlp for layer in model.layers if isinstance(layer.mlp, MixtureOfExperts)]
    assert bool(mixtures) == (checkpoint.config.experts is not None)
    for mixture in mixtures:
        [(weight, _)] = mixture.router.parts
        assert isinstance(weight, DenseWeight)
        assert weight.data.dtype == torch.float32


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
