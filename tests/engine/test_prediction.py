"""Predicted speeds: the formula against figures worked out by hand, the survey against a load."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.config import WEIGHT_FORMATS, EngineConfig
from engine.costs import ModelCosts
from engine.device_peaks import stored_peaks
from engine.load_blocking import load_or_raise
from engine.loading.checkpoint import open_checkpoint
from engine.local_session import LocalSession
from engine.prediction import (
    EFFICIENCY,
    KV_EFFICIENCY,
    STEP_OVERHEAD_S,
    DeviceSpeed,
    MatrixGroup,
    ModelWork,
    predict,
    prefill_s,
)
from engine.session import EngineError
from engine.starter import starter_model_path
from engine.survey import model_work
from tests.engine.conftest import PEAKS
from tests.engine.loading.tiny_files import write_gguf
from tests.engine.rig import GOLDEN

WORK = ModelWork(
    layers=MatrixGroup("int8", 1_000_000_000, 1_060_000_000),
    head=MatrixGroup("int8", 50_000_000, 53_000_000),
    attention_size=2_048 * 16,
    kv_bytes_per_token=32_768,
)
DEVICE = DeviceSpeed("cpu", 100e9, lambda _: 20e9)


def test_decode_is_bytes_over_bandwidth() -> None:
    """Weights once, the cache of 1,000 tokens once, and the time between steps."""
    share = EFFICIENCY["cpu"]["int8"].decode
    seconds = 1_113_000_000 / (20e9 * share) + 32_768_000 / (20e9 * KV_EFFICIENCY["cpu"])
    assert predict(WORK, DEVICE).decode_tok_s == pytest.approx(1 / (seconds + STEP_OVERHEAD_S))


def test_prefill_is_operations_over_peak() -> None:
    """2 x parameters x tokens, attention over all pairs, the head for one token."""
    share = EFFICIENCY["cpu"]["int8"]
    flops = 2 * 1_000_000_000 * 1_000 + 4 * 32_768 * 500_500
    seconds = flops / (100e9 * share.prefill) + 53_000_000 / (20e9 * share.decode)
    assert predict(WORK, DEVICE).ttft_ms == pytest.approx(1e3 * (seconds + STEP_OVERHEAD_S))


def test_a_cached_prefix_is_not_computed_again() -> None:
    """400 tokens and 600 after them take as long as 1,000, but for a second read of the head."""
    whole, first = (prefill_s(WORK, DEVICE, tokens) for tokens in (1_000, 400))
    head_s = 53_000_000 / (20e9 * EFFICIENCY["cpu"]["int8"].decode)
    rest = prefill_s(WORK, DEVICE, 600, cached=400)
    assert first + rest == pytest.approx(whole + head_s + STEP_OVERHEAD_S)


def test_bandwidth_is_that_of_the_bytes_read() -> None:
    """A model that fits in the processor's cache is predicted at the cache's rate."""
    asked: list[int] = []

    def bandwidth(working_set: int) -> float:
        asked.append(working_set)
        return 20e9

    predict(WORK, replace(DEVICE, bandwidth_at=bandwidth))
    assert 1_113_000_000 + 32_768_000 in asked


def test_every_format_has_its_efficiency() -> None:
    """Each weights format, on each device, has one row."""
    formats = set(WEIGHT_FORMATS) - {"as-stored"}
    assert all(set(rows) == formats for rows in EFFICIENCY.values())
    assert set(KV_EFFICIENCY) == set(EFFICIENCY)


@pytest.mark.parametrize("weight_format", ["as-stored", "fp32", "bf16", "fp16"])
def test_work_is_what_a_loaded_model_counts(
    tiny_model: Path, weight_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parameters and bytes from headers equal those of the model once it is loaded."""
    monkeypatch.setattr("engine.survey.stored_peaks", lambda *_: PEAKS)
    work, costs = work_and_costs(str(tiny_model), weight_format)
    assert work.layers.num_bytes == costs.layer_bytes
    assert work.head.num_bytes == costs.head_bytes
    groups = costs.kv_groups
    assert work.kv_bytes_per_token == sum(group.bytes_per_token for _, group in groups)
    num_layers = sum(count for count, _ in groups)
    assert work.attention_size == num_layers * costs.num_heads * costs.head_dim


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "qwen3_moe_dense"])
def test_work_of_experts_is_what_one_token_passes(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each sparse layer the router and the experts that a token goes to."""
    monkeypatch.setattr("engine.survey.stored_peaks", lambda *_: PEAKS)
    folder = shutil.copytree(GOLDEN / "families" / family, tmp_path / family)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(GOLDEN / "tiny" / name, folder)
    work, costs = work_and_costs(str(folder), "as-stored")
    assert work.layers.num_bytes == costs.layer_bytes


@pytest.mark.starter
@pytest.mark.parametrize("weight_format", ["as-stored", "int8", "int4"])
def test_work_of_quantized_weights(weight_format: str) -> None:
    """Kernels pad quantized matrices to whole tiles: in a model of real size hardly more bytes."""
    path = starter_model_path()
    assert path is not None
    work, costs = work_and_costs(path, weight_format)
    assert work.layers.num_bytes == pytest.approx(costs.layer_bytes, rel=0.01)
    assert work.head.num_bytes == pytest.approx(costs.head_bytes, rel=0.01)


def work_and_costs(path: str, weight_format: str) -> tuple[ModelWork, ModelCosts]:
    """What the headers say and what the loaded model says; the parameters must agree."""
    config = EngineConfig(path, weight_format=weight_format, context_length=64, device="cpu")
    session = LocalSession()
    survey = session.survey(config)
    load_or_raise(session, config)
    assert session._loaded is not None
    costs = session._loaded.costs
    session.close()
    checkpoint = open_checkpoint(path)
    work = model_work(checkpoint, weight_format, survey.memory.kv_bytes_per_token)
    checkpoint.close()
    assert work.layers.parameters == costs.layer_parameters
    assert work.head.parameters == costs.head_parameters
    return work, costs


def test_survey_predicts_once_the_peaks_are_known(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With peaks there is a speed; a loaded model's peaks serve where none are kept."""
    config = EngineConfig(str(tiny_model), context_length=64, device="cpu", threads=1)
    session = LocalSession()
    assert session.survey(config).speed is None
    load_or_raise(session, config)
    known = session.survey(config).speed
    assert known is not None
    session.unload()
    monkeypatch.setattr("engine.survey.stored_peaks", lambda *_: PEAKS)
    assert session.survey(config).speed == known
    session.close()


def test_stored_quantization_decides_the_format(tmp_path: Path) -> None:
    """Loaded as stored, a Q8_0 file runs through the INT8 kernels, F32 through FP32's."""
    import gguf

    for quantization, expected in ((None, "fp32"), (gguf.GGMLQuantizationType.Q8_0, "int8")):
        path = write_gguf(tmp_path / f"{expected}.gguf", quantization)
        checkpoint = open_checkpoint(str(path))
        assert model_work(checkpoint, "as-stored", 0).layers.kernel_format == expected
        checkpoint.close()


def test_survey_resolves_what_it_was_asked(tmp_path: Path) -> None:
    """The answer says device, threads, context and formats as a load would; no peaks, no speed."""
    session = LocalSession()
    path = str(write_gguf(tmp_path / "tiny.gguf"))
    survey = session.survey(EngineConfig(path, device="cpu", threads=1))
    assert stored_peaks(torch.device("cpu"), 1) is None
    assert survey.speed is None
    assert (survey.device, survey.threads) == ("CPU", 1)
    assert (survey.config.context_length, survey.config.kv_format) == (128, "bf16")
    assert survey.info == session.inspect(path)
    session.close()


def test_survey_from_another_thread_while_a_model_is_dropped(tiny_model: Path) -> None:
    """Any thread may ask at any time."""
    session = LocalSession()
    path = str(tiny_model)
    failures: list[Exception] = []

    def ask() -> None:
        try:
            for _ in range(10):
                session.survey(EngineConfig(path, device="cpu"))
        except Exception as error:  # noqa: BLE001 - told by the assertion below
            failures.append(error)

    other = threading.Thread(target=ask)
    other.start()
    for _ in range(3):
        load_or_raise(session, EngineConfig(path, context_length=64, device="cpu"))
        session.unload()
    other.join()
    assert failures == []
    session.close()


def test_survey_of_a_broken_file(tmp_path: Path) -> None:
    """The reason is an EngineError, as for opening."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    with pytest.raises(EngineError, match="cannot be read"):
        LocalSession().survey(EngineConfig(str(broken)))
