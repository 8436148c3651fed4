"""Perplexity and divergence against transformers' own figures and float64 arithmetic."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from engine.quality.scores import DivergenceSum, LikelihoodSum, reference_store
from engine.quality.teacher_forcing import Forcing, ScoredRows, decode_rows, prefill_rows
from engine.quality.windows import Window, strided_windows
from engine.session import EngineError
from tests.engine.rig import GOLDEN, Rig

STORED = json.loads((GOLDEN / "perplexity.json").read_text(encoding="utf-8"))
MODEL = GOLDEN / "tiny" / STORED["case"]


def forcing(rig: Rig) -> Forcing:
    """The parts of a rig that compute."""
    return Forcing(rig.runner, rig.scheduler, rig.config.vocab_size)


def likelihood(rows: list[ScoredRows], ids: list[int]) -> LikelihoodSum:
    """The sum over all rows."""
    result = LikelihoodSum(ids)
    for row in rows:
        result.add(row.positions, row.logits.log_softmax(-1))
    return result


def copied(rows: ScoredRows) -> ScoredRows:
    """Rows that stay when the next ones are computed."""
    return ScoredRows(rows.positions, rows.logits.clone())


@pytest.mark.parametrize("row", STORED["rows"], ids=lambda row: f"{row['window']}-{row['stride']}")
@pytest.mark.parametrize("path", ["prefill", "decode"])
def test_strided_perplexity_is_that_of_transformers(row: dict[str, float], path: str) -> None:
    """The same tokens are scored, with the same mean, through both paths."""
    windows = strided_windows(len(STORED["ids"]), int(row["window"]), int(row["stride"]))
    rig = Rig(MODEL, num_blocks=64, budget=48, prefix_caching=False)
    if path == "prefill":
        rows = list(map(copied, prefill_rows(forcing(rig), STORED["ids"], windows)))
    else:
        rows = list(map(copied, decode_rows(forcing(rig), STORED["ids"], windows, 3)))
    result = likelihood(rows, STORED["ids"])
    assert result.count == row["scored"]
    assert result.mean == pytest.approx(row["nll"], abs=2e-5)
    assert rig.blocks.num_free_blocks == 64


@pytest.mark.parametrize("model", ["tiny/gqa", "families/gemma3", "families/qwen2_window"])
def test_the_paths_give_the_same_logits_in_fp32(model: str) -> None:
    """Position by position, whatever order they come in; also where layers see a window."""
    ids, windows = STORED["ids"], strided_windows(300, 100, 50)
    found = []
    for path in ("prefill", "decode"):
        rig = Rig(GOLDEN / model, num_blocks=64, prefix_caching=False)
        if path == "prefill":
            rows = prefill_rows(forcing(rig), ids, windows)
        else:
            rows = decode_rows(forcing(rig), ids, windows, 8)
        table = torch.zeros(300, rig.config.vocab_size)
        for row in rows:
            table[row.positions] = row.logits
        found.append(table)
    torch.testing.assert_close(*found, rtol=0, atol=1e-3)


def test_a_large_vocabulary_is_taken_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more logits at a time than the bound, and the same ones."""
    monkeypatch.setattr("engine.quality.teacher_forcing._MAX_LOGITS", 5 * 272)
    rig, windows = Rig(MODEL, prefix_caching=False), [Window(0, 60, 20)]
    rows = list(prefill_rows(forcing(rig), STORED["ids"], windows))
    assert [len(row.positions) for row in rows] == [5] * 8
    assert [position for row in rows for position in row.positions] == list(range(20, 60))
    expected = rig.teacher_forced(STORED["ids"][:59], 1000)[19:]
    torch.testing.assert_close(torch.cat([row.logits for row in rows]), expected)


def test_golden_logits_give_our_likelihood() -> None:
    """The negative log-likelihood computed in float64 from transformers' stored logits."""
    with np.load(MODEL / "golden.npz") as golden:
        ids = golden["input_ids_0"].tolist()
        logits = golden["logits_0"].astype(np.float64)
    rows = list(prefill_rows(forcing(Rig(MODEL)), ids, [Window(0, len(ids), 1)]))
    normalizer = np.log(np.exp(logits).sum(-1))
    expected = (normalizer[:-1] - logits[np.arange(len(ids) - 1), ids[1:]]).mean()
    assert likelihood(rows, ids).mean == pytest.approx(expected, abs=1e-5)


def test_divergence_is_the_textbook_sum() -> None:
    """Against float64, over two batches; agreement counts equal best tokens."""
    generator = torch.Generator().manual_seed(0)
    reference = torch.randn(7, 50, generator=generator).log_softmax(-1)
    other = (reference + 0.3 * torch.randn(7, 50, generator=generator)).log_softmax(-1)
    result = DivergenceSum()
    result.add(reference[:3], other[:3])
    result.add(reference[3:], other[3:])
    p, q = reference.double().exp(), other.double().exp()
    assert result.mean == pytest.approx(float((p * (p / q).log()).sum(-1).mean()), rel=1e-5)
    assert result.agreement == float((p.argmax(-1) == q.argmax(-1)).double().mean())
    same = DivergenceSum()
    same.add(reference, reference)
    assert (same.mean, same.agreement) == (0.0, 1.0)


def test_an_endless_surprise_is_infinite() -> None:
    """A perplexity beyond what a float holds is no failure."""
    assert LikelihoodSum([0], total=1e6, count=1).perplexity == float("inf")


def test_the_reference_store_gives_back_what_was_put() -> None:
    """Rows by position, in any order."""
    rows = torch.rand(4, 11)
    with reference_store(9, 11) as store:
        store.put([7, 2, 3, 8], rows)
        got = store.get([8, 7], torch.device("cpu"))
    torch.testing.assert_close(got, rows[[3, 0]], rtol=0, atol=0)


def test_a_disk_too_small_for_the_reference_is_said_beforehand() -> None:
    """With the figures."""
    with (
        pytest.raises(EngineError, match=r"need 4000000\.0 GB of disk"),
        reference_store(10**9, 10**6),
    ):
        pytest.fail("it was opened")
