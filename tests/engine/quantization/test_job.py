"""Whole jobs: what is written is what was quantized, and computes like it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.cli import main
from engine.quantization.grid import rtn
from engine.quantization.job import QuantizeJob, QuantizeStopped
from engine.quantization.plan import GridSpec, Method, Quantized, QuantizePlan, QuantizeProgress
from engine.session import EngineError
from tests.engine.quantization.unpacking import unpack
from tests.engine.rig import GOLDEN, Rig

CASE = "rope_llama3"  # sizes are multiples of 64


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A tiny model with its tokenizer."""
    return with_tokenizer(CASE, tmp_path)


def with_tokenizer(case: str, folder: Path) -> Path:
    """A golden case as a whole folder."""
    target = folder / case
    shutil.copytree(GOLDEN / "tiny" / case, target)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(GOLDEN / "tiny" / name, target)
    return target


def make_plan(source: Path, method: Method, bits: int = 4, size: int = 32) -> QuantizePlan:
    """A small job beside the source."""
    out = source.parent / f"{method}-{bits}"
    return QuantizePlan(
        str(source), out, method, GridSpec(bits, size), num_samples=6, sample_tokens=64, threads=1
    )


def run(plan: QuantizePlan) -> Quantized:
    """To the end."""
    *steps, last = QuantizeJob(plan).run()
    assert all(isinstance(step, QuantizeProgress) for step in steps)
    assert isinstance(last, Quantized)
    return last


def expanded(folder: Path, method: str, bits: int, target: Path) -> Path:
    """The folder with its quantized tensors unpacked to plain FP32 ones."""
    tensors = load_file(folder / "model.safetensors")
    plain = {name: t.float() for name, t in tensors.items() if name.endswith((".weight", ".bias"))}
    for name in [name for name in tensors if name.endswith(".qweight")]:
        stem = name.removesuffix(".qweight")
        parts = {part: tensors[f"{stem}.{part}"] for part in ("qweight", "qzeros", "scales")}
        plain[f"{stem}.weight"] = unpack(parts, method, bits)
    target.mkdir()
    save_file(plain, target / "model.safetensors")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    del config["quantization_config"]
    (target / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return target


@pytest.mark.parametrize(
    ("method", "bits", "most"),
    [("rtn", 8, 0.06), ("rtn", 4, 0.6), ("gptq", 4, 0.6), ("gptq", 8, 0.06), ("awq", 4, 0.6)],
)
def test_the_folder_computes_about_what_the_source_does(
    source: Path, method: Method, bits: int, most: float, tmp_path: Path
) -> None:
    """Unpacked by an independent reader. The bound is a share of the golden logits' deviation.

    Random weights have no structure to spare: 4 bits cost a lot. A wrong layout gives 1.4.
    """
    result = run(make_plan(source, method, bits))
    assert result.num_quantized == 14
    folder = expanded(result.out, method, bits, tmp_path / "plain")
    with np.load(source / "golden.npz") as golden:
        ids, expected = golden["input_ids_0"].tolist(), torch.from_numpy(golden["logits_0"])
    logits = Rig(folder).teacher_forced(ids, 1000)
    assert float((logits - expected).std() / expected.std()) < most


@pytest.mark.parametrize("bits", [4, 8])
def test_what_is_written_is_what_was_rounded(source: Path, bits: int, tmp_path: Path) -> None:
    """Every value of every matrix, exactly; what is not quantized is the source's in FP16."""
    before = load_file(source / "model.safetensors")
    folder = expanded(run(make_plan(source, "rtn", bits)).out, "rtn", bits, tmp_path / "plain")
    after = load_file(folder / "model.safetensors")
    assert after.keys() == before.keys()
    for name, tensor in before.items():
        is_matrix = name.endswith("_proj.weight")
        expected = rtn(tensor, GridSpec(bits, 32)).dequantize() if is_matrix else tensor.half()
        assert torch.equal(after[name], expected.float()), name


def test_config_and_text_files_come_along(source: Path) -> None:
    """With what readers need to know, and nothing of an earlier quantization."""
    config_path = source / "config.json"
    config = json.loads(config_path.read_text(encoding="utf-8"))
    result = run(make_plan(source, "gptq", 4, 64))
    written = json.loads((result.out / "config.json").read_text(encoding="utf-8"))
    quantization = written.pop("quantization_config")
    assert written.pop("torch_dtype") == "float16"
    assert written == {name: value for name, value in config.items() if name != "dtype"}
    expected = {"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": False}
    assert expected.items() <= quantization.items()
    assert quantization["desc_act"] is False
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (result.out / name).read_bytes() == (source / name).read_bytes()


def test_awq_says_so(source: Path) -> None:
    """In AutoAWQ's words; there is no g_idx in its layout."""
    result = run(make_plan(source, "awq"))
    config = json.loads((result.out / "config.json").read_text(encoding="utf-8"))
    quantization = config["quantization_config"]
    assert (quantization["quant_method"], quantization["version"]) == ("awq", "gemm")
    assert not any(name.endswith("g_idx") for name in load_file(result.out / "model.safetensors"))


def test_progress_only_grows_and_ends_at_the_whole(source: Path) -> None:
    """Layers in order; the time left is told once a layer is done."""
    *steps, last = QuantizeJob(make_plan(source, "gptq")).run()
    assert isinstance(last, Quantized)
    progress = [step for step in steps if isinstance(step, QuantizeProgress)]
    fractions = [step.fraction for step in progress]
    assert fractions == sorted(fractions)
    assert (fractions[0], progress[-1].layer) == (0.0, 2)
    assert 0.5 < fractions[-1] <= 1.0
    assert {step.layer for step in progress if step.remaining_s is None} == {1}
    assert last.calibration_tokens == 6 * 64
    assert last.bits_per_weight == pytest.approx(4 + 16 / 32 + 4 / 32 + 0.5, abs=0.1)


@pytest.mark.parametrize("after", [0, 3, 20])
def test_stopping_leaves_nothing(source: Path, after: int) -> None:
    """At the start, in the first pass, later."""
    job = QuantizeJob(make_plan(source, "gptq"))
    steps = job.run()
    for _ in range(after + 1):
        next(steps)
    job.stop()
    with pytest.raises(QuantizeStopped):
        list(steps)
    assert [path.name for path in source.parent.iterdir()] == [source.name]


def test_closing_the_iterator_leaves_nothing(source: Path) -> None:
    """As an interrupt in the terminal does."""
    steps = QuantizeJob(make_plan(source, "rtn")).run()
    next(steps)
    assert len(list(source.parent.iterdir())) == 2
    steps.close()  # type: ignore[attr-defined]
    assert [path.name for path in source.parent.iterdir()] == [source.name]


def test_groups_that_do_not_divide_are_refused_by_name(tmp_path: Path) -> None:
    """Before anything is computed or written."""
    source = with_tokenizer("gqa", tmp_path)
    with pytest.raises(EngineError, match=r"self_attn\.q_proj cannot .* groups of 32.*48 inputs"):
        list(QuantizeJob(make_plan(source, "rtn")).run())
    assert [path.name for path in tmp_path.iterdir()] == ["gqa"]


def test_values_beyond_fp16_are_refused_by_name(source: Path) -> None:
    """Rather than stored as infinity."""
    tensors = load_file(source / "model.safetensors")
    tensors["model.norm.weight"][3] = 1e6
    save_file(tensors, source / "model.safetensors")
    with pytest.raises(EngineError, match=r"model\.norm\.weight cannot be stored"):
        run(make_plan(source, "rtn"))


def test_bf16_stays_bf16(source: Path) -> None:
    """What is not quantized keeps its range."""
    tensors = load_file(source / "model.safetensors")
    tensors["model.norm.weight"][3] = 1e6
    save_file({n: t.bfloat16() for n, t in tensors.items()}, source / "model.safetensors")
    result = run(make_plan(source, "rtn"))
    written = load_file(result.out / "model.safetensors")
    assert written["model.norm.weight"].dtype == torch.bfloat16
    assert written["model.layers.0.mlp.up_proj.scales"].dtype == torch.float16


def test_an_empty_calibration_is_refused(source: Path, tmp_path: Path) -> None:
    """GPTQ has nothing to look at then; RTN does not mind."""
    (tmp_path / "empty").write_text("")
    options = ("--calibration", str(tmp_path / "empty"), "--group-size", "32")
    out = tmp_path / "out"
    assert main(["quantize", str(source), *options, "--out", str(out)]) == 1
    assert main(["quantize", str(source), "--method", "rtn", *options, "--out", str(out)]) == 0


def test_the_command_says_what_came_of_it(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Size, bits a weight, tokens; a second time it refuses; wrong arguments exit 2."""
    options = ["--group-size", "64", "--samples", "2", "--out", str(tmp_path / "out")]
    assert main(["quantize", str(source), *options]) == 0
    out, err = capsys.readouterr()
    assert "14 matrices at 4." in out
    assert "calibrated on 512 tokens" in out
    assert err == ""
    assert main(["quantize", str(source), *options]) == 1
    assert "exists already" in capsys.readouterr().err
    assert main(["quantize", str(source), "--method", "awq", "--bits", "8", *options]) == 2
    assert "AWQ files hold 4 bits" in capsys.readouterr().err


@pytest.mark.parametrize("family", ["gemma3", "olmo2", "phi3"])
def test_other_families_are_quantized_too(family: str, tmp_path: Path) -> None:
    """Norms around or after, one matrix for q, k and v: GPTQ at 8 bits loses next to nothing."""
    source = tmp_path / family
    shutil.copytree(GOLDEN / "families" / family, source)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(GOLDEN / "tiny" / name, source)
    result = run(make_plan(source, "gptq", 8))
    folder = expanded(result.out, "gptq", 8, tmp_path / "plain")
    with np.load(source / "golden.npz") as golden:
        expected = torch.from_numpy(golden["prefill_logits"])
        ids = golden["input_ids"][: len(expected)].tolist()
    logits = Rig(folder).teacher_forced(ids, 1000)
    assert float((logits - expected).std() / expected.std()) < 0.06


def test_experts_are_refused(tmp_path: Path) -> None:
    """By what they are, whatever the method."""
    source = GOLDEN / "families" / "mixtral"
    with pytest.raises(EngineError, match="mixture of experts"):
        run(QuantizePlan(str(source), tmp_path / "out", "rtn", GridSpec(4, 32)))


def test_a_model_that_sees_is_refused(source: Path) -> None:
    """Its other parts would be missing."""
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    wrapper = {"model_type": "llava", "text_config": config}
    (source / "config.json").write_text(json.dumps(wrapper), encoding="utf-8")
    with pytest.raises(EngineError, match="also sees or hears"):
        run(make_plan(source, "rtn"))
