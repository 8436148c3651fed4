"""`phasescope perplexity`: the JSON contract, refusals, and no Qt."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.cli import main

KEYS = (
    *("model", "weights", "weight_bytes", "kv", "device", "kernels", "threads", "path", "tokens"),
    *("scored_tokens", "window", "stride", "starts_with_bos", "nll", "perplexity"),
    *("reference_model", "reference_weights", "reference_perplexity"),
    *("kl_divergence", "top1_agreement", "elapsed_s"),
)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tiny_model: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run the command on the tiny model and a text; gives exit code, stdout, stderr."""

    def run_(*options: str, text: str = "An epoch of rest. " * 8) -> tuple[int, str, str]:
        (tmp_path / "text").write_text(text, encoding="utf-8")
        named = ("--text", str(tmp_path / "text"))
        code = main(["perplexity", str(tiny_model), "--threads", "1", *named, *options])
        out, err = capsys.readouterr()
        return code, out, err

    return run_


def last_json(out: str) -> dict[str, Any]:
    """The object on the last line."""
    result = json.loads(out.splitlines()[-1])
    assert isinstance(result, dict)
    return result


def test_the_contract(run: Run) -> None:
    """Every key; window and stride as asked for; the tokenizer's BOS is told."""
    code, out, err = run("--weights", "fp32", "--window", "40", "--stride", "30", "--json")
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    result = last_json(out)
    assert tuple(result) == KEYS
    assert (result["window"], result["stride"], result["starts_with_bos"]) == (40, 30, True)
    assert result["tokens"] == 1 + 18 * 8
    assert result["scored_tokens"] == result["tokens"] - 1
    assert result["kl_divergence"] is None


def test_a_run_does_not_diverge_from_itself(run: Run) -> None:
    """FP32 against FP32 through the other path: nothing but the order of summation."""
    code, out, _ = run("--weights", "fp32", "--path", "decode", "--reference-weights", "fp32")
    result = last_json(out)
    assert code == 0
    assert result["perplexity"] == pytest.approx(result["reference_perplexity"], rel=1e-5)
    assert abs(result["kl_divergence"]) < 1e-6
    assert result["top1_agreement"] == 1.0


def test_rounding_shows(run: Run) -> None:
    """INT8 weights diverge from FP32 ones, a little; the table says so."""
    _, out, _ = run("--weights", "int8", "--reference-weights", "fp32")
    assert 0 < last_json(out)["kl_divergence"] < 0.1
    assert "against tiny, fp32" in out


def test_another_model_can_be_the_reference(run: Run, tiny_model: Path, tmp_path: Path) -> None:
    """What was quantized is compared with its source in FP32, loaded from the other folder."""
    model = shutil.copytree(tiny_model, tmp_path / "source")
    code, out, _ = run("--weights", "int8", "--reference-model", str(model), "--json")
    beside_itself = last_json(run("--weights", "int8", "--reference-weights", "fp32", "--json")[1])
    result = last_json(out)
    assert code == 0
    assert (result["reference_model"], result["reference_weights"]) == ("source", "fp32")
    # Not to the last digit: the products that were measured faster at load may differ.
    assert result["kl_divergence"] == pytest.approx(beside_itself["kl_divergence"], rel=0.02)


def test_a_reference_that_reads_other_tokens_is_refused(
    run: Run, tiny_model: Path, tmp_path: Path
) -> None:
    """Rows of one position would predict different things."""
    other = shutil.copytree(tiny_model, tmp_path / "other")
    settings = json.loads((other / "tokenizer_config.json").read_text(encoding="utf-8"))
    (other / "tokenizer_config.json").write_text(json.dumps(settings | {"add_bos_token": False}))
    code, _, err = run("--reference-model", str(other))
    assert code == 1
    assert "other tokens" in err


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [
        (("--window", "32", "--stride", "33"), 2, "stride"),
        (("--window", "100000"), 1, "longer than the model's"),
        (("--model", "elsewhere"), 2, "two models"),
    ],
)
def test_what_cannot_be_is_refused(
    run: Run, options: tuple[str, ...], code: int, word: str
) -> None:
    """One line, with the exit code of its kind."""
    got, out, err = run(*options)
    assert (got, out) == (code, "")
    assert err.count("\n") == 1
    assert word in err


def test_a_text_of_one_token_is_refused(run: Run) -> None:
    """Nothing predicts it."""
    code, _, err = run(text="")
    assert code == 1
    assert "too short" in err


def test_a_text_that_is_no_text_is_refused(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The byte is named."""
    (tmp_path / "bytes").write_bytes(b"ab\xff")
    code = main(["perplexity", str(tiny_model), "--text", str(tmp_path / "bytes")])
    assert code == 1
    assert "not a UTF-8 text" in capsys.readouterr().err


def test_an_interrupt_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends a run with the shell's code for it, without a traceback."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("engine.quality.perplexity.measure_quality", interrupt)
    code, out, err = run()
    assert (code, out, err) == (130, "", "phasescope perplexity: interrupted\n")


def test_help_needs_neither_torch_nor_qt() -> None:
    """So that it is there at once."""
    code = (
        "import sys, engine.cli; engine.cli.build_parser();"
        "print([m for m in ('torch', 'PySide6') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
