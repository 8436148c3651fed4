"""A replayed decode step against the same operations one by one, and its padding."""

import pytest
import torch

from engine.decode_step import DecodeStep
from engine.layers.attention_metadata import DecodeMetadata
from engine.models.decoder import StepAborted
from kernels.cpu.library import runnable_levels
from kernels.cpu.structs import Format
from kernels.recording import CancelCell
from kernels.reference import EagerRecording
from tests.engine.rig import GOLDEN, Rig

MODEL = GOLDEN / "tiny" / "gqa"
PROMPTS = [list(range(60, 60 + n)) for n in (5, 33, 17)]
native = pytest.mark.skipif(not runnable_levels(), reason="no native kernels are compiled")


def rig_after_prefill(weight_format: str, kv_format: str = "bf16") -> Rig:
    """Three sequences that are about to decode."""
    rig = Rig(MODEL, weight_format, kv_format=kv_format)
    for prompt in PROMPTS:
        rig.start(prompt, 8)
    rig.step()
    return rig


def step_by_step(rig: Rig) -> torch.Tensor:
    """Logits of the next decode step without a recording."""
    sequences, size = rig.scheduler.sequences, rig.cache.block_size
    positions = [len(s.token_ids) - 1 for s in sequences]
    tables = [s.block_tables[0] for s in sequences]
    width = max(map(len, tables))
    metadata = DecodeMetadata(
        torch.tensor(
            [t[p // size] * size + p % size for t, p in zip(tables, positions, strict=True)]
        ),
        torch.tensor([t + [0] * (width - len(t)) for t in tables]),
        torch.tensor(positions) + 1,
    )
    ids = torch.tensor([s.token_ids[-1] for s in sequences])
    hidden = rig.model.forward(ids, torch.tensor(positions), rig.cache, (metadata,), CancelCell())
    return rig.model.logits(hidden).clone()


@native
@pytest.mark.parametrize("weight_format", ["fp32", "bf16", "int8", "int4"])
def test_replay_equals_step_by_step(weight_format: str) -> None:
    """Bit for bit, with a padding row, over several steps of growing context."""
    rig = rig_after_prefill(weight_format)
    recorded = DecodeStep(rig.model, rig.cache, 4, 40, 64, CancelCell())
    assert not isinstance(recorded._recording, EagerRecording)
    while len(rig.scheduler.sequences) == len(PROMPTS):
        step = rig.scheduler.schedule()
        expected = step_by_step(rig)
        with torch.inference_mode():
            logits, best = recorded.run(step.decode)
        count = len(step.decode)
        assert torch.equal(logits[:count], expected)
        values, _ = expected.topk(64)
        assert best.values[:count].tolist() == values.tolist()
        rig.scheduler.commit(step)
        for sequence, token in zip(step.decode, best.ids[:count, 0].tolist(), strict=True):
            sequence.token_ids.append(token)
            if sequence.num_completion_tokens >= sequence.max_tokens:
                rig.scheduler.remove(sequence)


@native
def test_rows_do_not_depend_on_the_batch() -> None:
    """A sequence's logits are the same bits alone and among others, padded or not."""
    rig = rig_after_prefill("int8")
    step = rig.scheduler.schedule()
    wide = DecodeStep(rig.model, rig.cache, 8, 40, 1, CancelCell()).run(step.decode)
    for row, sequence in enumerate(step.decode):
        alone = DecodeStep(rig.model, rig.cache, 1, 40, 1, CancelCell()).run([sequence])
        assert torch.equal(alone[0][0], wide[0][row])


@native
@pytest.mark.parametrize("weight_format", ["fp32", "bf16", "int8"])
def test_a_step_of_many_rows_is_on_the_tape(weight_format: str) -> None:
    """Also where prompts of as many rows would go through torch's GEMM, which no tape holds."""
    rig = Rig(MODEL, weight_format, max_num_seqs=16, num_blocks=64, kv_format="bf16")
    rig.model.kernels.linear._crossover = dict.fromkeys(Format, 9)
    for count in range(12):
        rig.start(list(range(60, 65 + count)), 8)
    rig.step()
    step = rig.scheduler.schedule()
    with torch.inference_mode():
        logits, _ = DecodeStep(rig.model, rig.cache, 16, 64, 1, CancelCell()).run(step.decode)
        for row, sequence in enumerate(step.decode):
            alone, _ = DecodeStep(rig.model, rig.cache, 1, 64, 1, CancelCell()).run([sequence])
            torch.testing.assert_close(logits[row], alone[0], rtol=1e-4, atol=1e-3)


def test_a_cancelled_step_says_so() -> None:
    """Nothing is sampled, and the next run is whole again."""
    rig = rig_after_prefill("fp32")
    step = rig.scheduler.schedule()
    cancel = CancelCell()
    recorded = DecodeStep(rig.model, rig.cache, 4, 40, 1, cancel)
    before = recorded.run(step.decode)
    kept = before[0].clone()
    cancel.set()
    with pytest.raises(StepAborted):
        recorded.run(step.decode)
    cancel.clear()
    after = recorded.run(step.decode)
    assert torch.equal(after[0], kept)


@native
def test_native_and_torch_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same tokens from both kernel sets in FP32."""
    tokens = [Rig(MODEL).generate(prompt, 12) for prompt in PROMPTS]
    monkeypatch.setenv("PHASESCOPE_CPU_LEVEL", "none")
    rig = Rig(MODEL)
    assert rig.model.kernels.name == "torch"
    assert [rig.generate(prompt, 12) for prompt in PROMPTS] == tokens
