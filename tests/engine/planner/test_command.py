"""`phasescope plan`: its tables, its JSON line, what it refuses and how."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.cli import main
from engine.planner.shapes import SHAPES
from tests.engine.conftest import PEAKS

KEYS = [
    "model",
    "source",
    "can_run",
    "parameters",
    "device",
    "threads",
    "weights",
    "kv",
    "context_length",
    "kv_bytes_per_token",
    "kv_bytes",
    "weight_bytes",
    "kv_bytes_reserved",
    "workspace_bytes",
    "required_bytes",
    "available_bytes",
    "fits",
    "longest_context",
    "sequences",
    "ttft_ms",
    "decode_tok_s",
    "weight_levels",
    "kv_levels",
]
RunPlan = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> RunPlan:
    """Run `plan` on a CPU with 16 GB free that was never measured; gives code, stdout, stderr."""
    monkeypatch.setattr("engine.memory.available_bytes", lambda _: 16_000_000_000)
    monkeypatch.setattr("engine.survey.stored_peaks", lambda *_: None)

    def run_(*options: str) -> tuple[int, str, str]:
        code = main(["plan", *options, "--device", "cpu", "--threads", "1"])
        out, err = capsys.readouterr()
        return code, out, err

    return run_


def planned(run: RunPlan, *options: str) -> dict[str, Any]:
    """The object on the last line."""
    code, out, err = run(*options, "--json")
    assert (code, err) == (0, "")
    result = json.loads(out.splitlines()[-1])
    assert isinstance(result, dict)
    return result


def test_the_json_line_is_the_contract(run: RunPlan) -> None:
    """Every key in its order; the figures of the best known claim."""
    result = planned(run, "LLAMA-2-13B")
    assert list(result) == KEYS
    assert result["kv_bytes_per_token"] == 819_200
    assert result["kv_bytes"] == 3.125 * 2**30
    assert (result["fits"], result["sequences"], result["longest_context"]) == (False, 0, None)
    assert (result["ttft_ms"], result["decode_tok_s"]) == (None, None)
    assert {each["format"] for each in result["weight_levels"]} >= {"fp32", "bf16", "int8", "int4"}


def test_options_choose(run: RunPlan) -> None:
    """Weights, cache and context as asked, and what fits then."""
    result = planned(run, "Llama-2-7B", "--weights", "int4", "--kv", "fp32", "--context", "1000")
    assert (result["weights"], result["kv"], result["context_length"]) == ("int4", "fp32", 1000)
    assert result["kv_bytes"] == 1000 * 2 * 32 * 32 * 128 * 4
    assert result["kv_bytes_reserved"] == (1008 + 16) * result["kv_bytes"] / 1000
    assert result["fits"]
    assert result["longest_context"] == 4_096


def test_a_file_is_planned_too(run: RunPlan, tiny_model: Path) -> None:
    """By path; its own context bounds it."""
    result = planned(run, str(tiny_model), "--context", "64")
    assert result["source"] == str(tiny_model)
    assert result["can_run"]
    assert result["longest_context"] >= 64


def test_tables_are_for_reading(run: RunPlan) -> None:
    """Weights by level, the cache by format and context, the verdict, and how to get a speed."""
    code, out, _ = run("llama-2-13b", "--weights", "int8")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("Llama-2-13B: 13.0 B parameters, made for 4,096 tokens")
    assert "FP32             52.1 GB      52.1 GB  does not fit" in lines
    assert "bf16          819,200  3.36 GB" in lines
    assert "  one text   4,096 tokens x 819,200 bytes = 3.125 GiB" in lines
    assert any("does not fit" in line and "context 4,096 on CPU" in line for line in lines)
    assert any("this machine was not measured yet" in line for line in lines)


def test_a_measured_machine_predicts(run: RunPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once peaks are known, the time to the first token and the pace stand there."""
    monkeypatch.setattr("engine.survey.stored_peaks", lambda *_: PEAKS)
    assert "tok/s (predicted)" in run("Qwen3-0.6B")[1]
    assert planned(run, "Qwen3-0.6B")["ttft_ms"] > 0


def test_what_cannot_run_says_so(run: RunPlan) -> None:
    """A shape whose attention the engine does not have."""
    code, out, _ = run("deepseek-v3.2", "--kv", "fp8_ds_mla")
    assert code == 0
    assert "shape only: this program cannot run it yet" in out
    assert planned(run, "deepseek-v3.2", "--kv", "fp8_ds_mla")["kv_bytes_per_token"] == 48_068


def test_windows_are_told(run: RunPlan) -> None:
    """Tokens times bytes is not the total where layers forget."""
    _, out, _ = run("gemma-2-9b", "--context", "8192")
    assert "less what has left the windows, = 1.969 GiB" in out


def test_an_unknown_name_is_answered_with_those_known(run: RunPlan) -> None:
    """A wrong argument: code 2, one line."""
    code, out, err = run("llama-9000")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert all(shape.name in err for shape in SHAPES)


@pytest.mark.parametrize(
    ("options", "expected", "words"),
    [
        (("no/such/model",), 1, "was not found"),
        (("gone.gguf",), 1, "was not found"),
        (("Llama-2-7B", "--context", "5000"), 2, "made for at most 4,096 tokens"),
        (("Llama-2-7B", "--kv", "fp8_ds_mla"), 2, "kv: fp8_ds_mla is not planned"),
        (("DeepSeek-V3", "--weights", "int8"), 2, "weights: int8 is not planned"),
    ],
)
def test_refusals(run: RunPlan, options: tuple[str, ...], expected: int, words: str) -> None:
    """The codes of the contract: 1 for what is not there, 2 for what cannot be asked."""
    code, out, err = run(*options)
    assert (code, out, err.count("\n")) == (expected, "", 1)
    assert words in err


def test_without_a_model_it_says_what_to_name(
    run: RunPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No starter installed, nothing named."""
    monkeypatch.setattr("engine.planner.command.starter_model_path", lambda: None)
    code, _, err = run()
    assert code == 1
    assert "phasescope plan --help" in err
