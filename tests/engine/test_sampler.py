"""Sampling against transformers' processors, and its promises: greedy, seeded, in distribution."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import SamplingParams
from engine.sampler import SampleRow, apply_penalties, candidates, sample, uniform
from tests.engine.rig import GOLDEN

with np.load(GOLDEN / "sampler.npz") as _data:
    SAMPLER = dict(_data)


def row(params: SamplingParams, position: int = 5, context: list[int] | None = None) -> SampleRow:
    """A row with seed 11."""
    return SampleRow(params, 11, position, context or [], 0)


@pytest.mark.parametrize("setting", range(len(SAMPLER["temperature"])))
def test_distributions_equal_transformers(setting: int) -> None:
    """Penalty, temperature, top-k, top-p and min-p leave the same tokens, equally likely."""
    assert "transformers" in json.loads(str(SAMPLER["versions"]))
    params = SamplingParams(
        temperature=float(SAMPLER["temperature"][setting]),
        top_k=int(SAMPLER["top_k"][setting]),
        top_p=float(SAMPLER["top_p"][setting]),
        min_p=float(SAMPLER["min_p"][setting]),
        repetition_penalty=float(SAMPLER["repetition_penalty"][setting]),
    )
    for index in range(SAMPLER["logits"].shape[0]):
        logits = torch.from_numpy(SAMPLER["logits"][index]).clone()
        history = SAMPLER["history"][index].tolist()
        apply_penalties(logits, SampleRow(params, 0, 0, history, 0))
        ids, probs = candidates(logits, params)
        got = np.zeros(len(logits))
        got[ids] = probs
        expected = SAMPLER["probabilities"][setting, index]
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


def test_presence_and_frequency_count_the_answer_only() -> None:
    """OpenAI's definition: minus presence once, minus frequency for each occurrence."""
    logits = torch.zeros(6)
    params = SamplingParams(presence_penalty=0.5, frequency_penalty=0.25)
    apply_penalties(logits, SampleRow(params, 0, 0, [0, 1, 2, 2, 3], 2))
    assert logits.tolist() == [0, 0, -1.0, -0.75, 0, 0]


@pytest.mark.parametrize("temperature", [0.0, 1e-6, 1e-30])
def test_no_and_almost_no_temperature_are_greedy(temperature: float) -> None:
    """Never a division by zero, never nan."""
    logits = torch.tensor([[1.0, 30.0, 29.0], [5.0, -5.0, 4.0]])
    rows = [row(SamplingParams(temperature=temperature))] * 2
    assert sample(logits, rows) == [1, 0]


def test_draws_follow_the_distribution() -> None:
    """4,000 positions of one seed: frequencies within four standard deviations."""
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -9.0])
    params = SamplingParams(temperature=1.0)
    count = 4_000
    rows = [row(params, position) for position in range(count)]
    drawn = np.bincount(sample(logits.repeat(count, 1), rows), minlength=5)
    expected = logits.softmax(0).numpy()
    spread = 4 * np.sqrt(count * expected * (1 - expected)) + 1
    assert (np.abs(drawn - count * expected) <= spread).all()


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**40))
@settings(max_examples=100, deadline=None)
def test_random_numbers_are_a_function_of_seed_and_position(seed: int, position: int) -> None:
    """Equal keys equal numbers, neighbouring positions different ones."""
    value = uniform(seed, position)
    assert 0.0 <= value < 1.0
    assert value == uniform(seed, position)
    assert value != uniform(seed, position + 1)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    """Greedy and sampled rows mix; each gets what it gets alone."""
    rng = torch.Generator().manual_seed(3)
    logits = torch.randn(4, 600, generator=rng)
    settings_ = [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=0.8, top_p=0.9),
        SamplingParams(temperature=1.2, top_k=40, repetition_penalty=1.1),
        SamplingParams(temperature=1.0, min_p=0.02, presence_penalty=0.3),
    ]
    rows = [row(params, 9 + i, [1, 2, 3]) for i, params in enumerate(settings_)]
    together = sample(logits.clone(), rows)
    apart = [sample(logits[i : i + 1].clone(), [rows[i]])[0] for i in range(4)]
    assert together == apart


def test_a_flat_distribution_falls_back_to_the_whole_ranking() -> None:
    """Top-p of a flat row keeps more than the first look sees."""
    ids, probs = candidates(torch.zeros(1000), SamplingParams(temperature=1.0, top_p=0.9))
    assert int((probs > 0).sum()) in (900, 901)
    assert len(set(ids.tolist())) == len(ids)
