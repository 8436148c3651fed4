"""Ways to compute the same thing agree: cached, chunked, batched, shared prefix, preempted."""

import json

import pytest
import torch

from engine.models.decoder import StepAborted
from engine.starter import starter_model_path
from kernels.recording import CancelCell
from kernels.select import torch_kernels
from tests.engine.rig import GOLDEN, Rig

MODEL = GOLDEN / "tiny" / "gqa"
PROMPTS = [list(range(40, 40 + n)) for n in (3, 21, 34, 17)]
NUM_TOKENS = 12


@pytest.fixture(scope="module")
def alone() -> list[list[int]]:
    """What each prompt yields by itself, the whole prompt at once."""
    return [Rig(MODEL).generate(prompt, NUM_TOKENS) for prompt in PROMPTS]


def test_cached_decode_equals_full_recompute(alone: list[list[int]]) -> None:
    """Each token again from a fresh prefill of everything before it."""
    rig = Rig(MODEL, prefix_caching=False)
    for prompt, tokens in zip(PROMPTS, alone, strict=True):
        for count, token in enumerate(tokens):
            logits = rig.teacher_forced(prompt + tokens[:count], 1000)[-1]
            assert int(logits.argmax()) == token


@pytest.mark.parametrize("budget", [8, 13])
def test_chunked_and_batched_equals_alone(alone: list[list[int]], budget: int) -> None:
    """All prompts at once under a small budget: mixed steps, several chunks each."""
    rig = Rig(MODEL, budget=budget)
    sequences = [rig.start(prompt, NUM_TOKENS) for prompt in PROMPTS]
    while rig.scheduler.sequences:
        rig.step()
    assert [s.completion_ids for s in sequences] == alone


def test_a_prefix_hit_equals_a_fresh_run(alone: list[list[int]]) -> None:
    """The second run reads the first one's blocks and says the same."""
    rig = Rig(MODEL)
    for prompt, expected in zip(PROMPTS, alone, strict=True):
        rig.generate(prompt, NUM_TOKENS)
        again = rig.start(prompt, NUM_TOKENS)
        while rig.scheduler.sequences:
            rig.step()
        assert again.num_cached_tokens == (len(prompt) - 1) // 16 * 16
        assert again.completion_ids == expected


def test_preemption_does_not_change_the_answer(alone: list[list[int]]) -> None:
    """A pool too small for all: somebody is thrown out and computed again."""
    rig = Rig(MODEL, num_blocks=12, block_size=4)
    order = [0, 1, 3, 2]
    sequences = [rig.start(PROMPTS[i], NUM_TOKENS) for i in order]
    while rig.scheduler.sequences:
        rig.step()
        rig.scheduler.check_integrity()
    assert [s.completion_ids for s in sequences] == [alone[i] for i in order]
    assert sum(s.num_preemptions for s in sequences) > 0
    assert rig.blocks.num_free_blocks == 12


class _SecondPoll(CancelCell):
    """While `armed`, set by the time it is looked at for the second time."""

    armed = False

    def __bool__(self) -> bool:
        before = super().__bool__()
        if self.armed:
            self.set()
        return before


def test_an_aborted_step_can_be_run_again(alone: list[list[int]]) -> None:
    """Leaving a forward pass between layers or operations changes nothing that matters."""
    cancel = _SecondPoll()
    rig = Rig(MODEL, cancel=cancel)
    rig.runner.warm_up()
    sequence = rig.start(PROMPTS[2], NUM_TOKENS)
    while rig.scheduler.sequences:
        step = rig.scheduler.schedule()
        cancel.armed = True
        if step.decode:
            cancel.set()  # native code polls the word itself, after each operation
        with pytest.raises(StepAborted):
            rig.runner.run(step)
        cancel.armed = False
        cancel.clear()
        rig.step()
    assert sequence.completion_ids == alone[2]


@pytest.mark.parametrize("weight_format", ["bf16", "fp16", "int8", "int4"])
def test_every_format_computes_decode_like_prefill(weight_format: str) -> None:
    """Few rows and many rows take different paths over the same weights."""
    rig = Rig(MODEL, weight_format, prefix_caching=False)
    ids = list(range(30, 54))
    many = rig.teacher_forced(ids, 1000)
    few = rig.teacher_forced(ids, 1)
    # Beside INT4 activations have 8 bits: paths that differ in a last digit may be a step apart.
    tolerance = {"int8": 1e-3, "int4": 2e-2}.get(weight_format, 0.15)
    torch.testing.assert_close(few, many, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("weight_format", "most"), [("int8", 1e-5), ("int4", 0.01)])
def test_rounded_activations_change_the_distribution_little(
    weight_format: str, most: float
) -> None:
    """Mean KL divergence, in nats, from the same weights times unrounded activations."""
    path = starter_model_path()
    assert path is not None, "the starter model is not installed"
    prompts = json.loads((GOLDEN / "smollm2.json").read_text(encoding="utf-8"))["prompts"][:4]
    unrounded = torch_kernels(torch.float32, torch.float32)
    log_probs = []
    for kernels in (unrounded, None):
        rig = Rig(path, weight_format, prefix_caching=False, kernels=kernels, num_blocks=64)
        texts = [prompt["prompt_ids"] + prompt["token_ids"] for prompt in prompts]
        logits = torch.cat([rig.teacher_forced(ids, 1000) for ids in texts])
        log_probs.append(logits.log_softmax(-1))
    exact, rounded = log_probs
    assert (exact.exp() * (exact - rounded)).sum(-1).mean() < most
