"""What is kept of measured quality, and what of it is compared."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.quality.kept import keep_quality, kept_qualities
from engine.quality.report import Quality

RESULT = Quality(
    *("tiny", "int8", 10, "bf16", "CPU", "native", 2, "prefill", 900, 899, 512, 256, True),
    *(3.2, 24.6, "tiny", "fp32", 24.0, 1e-3, 0.98, 1.0),
)


@pytest.fixture
def model(tmp_path: Path) -> EngineConfig:
    """A model's file, to be measured as INT8."""
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    return EngineConfig(str(tmp_path / "tiny.gguf"), weight_format="int8")


def keep(file: Path, config: EngineConfig, result: Quality = RESULT, text: str = "a") -> None:
    keep_quality(file, config, result, "evaluation.txt", text)


def test_kept_for_these_very_files(model: EngineConfig, tmp_path: Path) -> None:
    """By weight format; a changed file is another model, and so is one that is gone."""
    file = tmp_path / "data" / "quality.json"
    keep(file, model)
    keep(file, replace(model, weight_format="int4"), replace(RESULT, perplexity=30.0))
    kept = kept_qualities(file, model.model_path)
    assert {name: each.change for name, each in kept.items()} == pytest.approx(
        {"int8": 0.025, "int4": 0.25}
    )
    Path(model.model_path).write_bytes(b"GGUF2")
    assert kept_qualities(file, model.model_path) == {}
    Path(model.model_path).unlink()
    assert kept_qualities(file, model.model_path) == {}


@pytest.mark.parametrize(
    "other",
    [
        replace(RESULT, window=1024),
        replace(RESULT, stride=512),
        replace(RESULT, path="decode"),
        replace(RESULT, reference_weights="bf16"),
        replace(RESULT, reference_model="source"),
    ],
)
def test_only_what_was_measured_alike_is_compared(
    model: EngineConfig, tmp_path: Path, other: Quality
) -> None:
    """The newest run's conditions hold; earlier figures come back with them."""
    file = tmp_path / "quality.json"
    keep(file, model)
    keep(file, replace(model, weight_format="int4"), other)
    assert set(kept_qualities(file, model.model_path)) == {"int4"}
    keep(file, replace(model, weight_format="int4"))
    assert set(kept_qualities(file, model.model_path)) == {"int4", "int8"}


def test_another_text_is_another_condition(model: EngineConfig, tmp_path: Path) -> None:
    """By its content, not its name."""
    file = tmp_path / "quality.json"
    keep(file, model)
    keep(file, replace(model, weight_format="int4"), text="b")
    assert set(kept_qualities(file, model.model_path)) == {"int4"}


def test_measured_again_the_newest_counts(model: EngineConfig, tmp_path: Path) -> None:
    """And stands once."""
    file = tmp_path / "quality.json"
    keep(file, model)
    keep(file, model, replace(RESULT, perplexity=25.0))
    assert kept_qualities(file, model.model_path)["int8"].perplexity == 25.0
    assert file.read_text().count('"int8"') == 1


def test_a_run_without_reference_is_not_kept(model: EngineConfig, tmp_path: Path) -> None:
    """There is no change to tell."""
    file = tmp_path / "quality.json"
    alone = replace(RESULT, reference_model=None, reference_weights=None, reference_perplexity=None)
    keep(file, model, alone)
    assert not file.exists()


def test_the_file_stays_small(
    model: EngineConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest leave when there are too many."""
    monkeypatch.setattr("engine.quality.kept.MAX_ROWS", 3)
    file = tmp_path / "quality.json"
    for name in ("bf16", "fp16", "int8", "int4"):
        keep(file, replace(model, weight_format=name))
    assert list(kept_qualities(file, model.model_path)) == ["fp16", "int8", "int4"]


@given(st.binary(max_size=200))
def test_any_file_content_can_be_begun_anew(content: bytes) -> None:
    """A broken file is no reason to lose what was just measured."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "m.gguf"
        model.write_bytes(b"GGUF")
        file = Path(folder) / "quality.json"
        file.write_bytes(content)
        assert kept_qualities(file, str(model)) == {}
        keep(file, EngineConfig(str(model), weight_format="int8"))
        assert set(kept_qualities(file, str(model))) == {"int8"}
