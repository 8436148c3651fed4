"""The commands without a window: JSON contracts, exit codes, one line for each bad input."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.cli import main
from tests.engine.rig import GOLDEN

BENCH_KEYS = [
    "model",
    "parameters",
    "device",
    "weights",
    "kv",
    "threads",
    "prompt_tokens",
    "completion_tokens",
    "load_s",
    "warmup_s",
    "ttft_ms",
    "prefill_tok_s",
    "decode_tok_s",
    "itl_ms",
    "weight_bytes",
    "kv_bytes_used",
    "kv_bytes_allocated",
    "kv_bytes_reserved",
    "peak_memory_bytes",
    "kernels",
    "concurrency",
    "total_decode_tok_s",
]


@pytest.fixture
def run(
    tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run a command in this process; gives exit code, stdout, stderr."""

    def run_(command: str, *options: str, model: Path = tiny_model) -> tuple[int, str, str]:
        code = main([command, "--model", str(model), "--threads", "1", *options])
        out, err = capsys.readouterr()
        return code, out, err

    return run_


def last_json(out: str) -> dict[str, Any]:
    """The object on the last line."""
    result = json.loads(out.splitlines()[-1])
    assert isinstance(result, dict)
    return result


@pytest.mark.parametrize("weights", ["as-stored", "fp32", "bf16", "fp16", "int8", "int4"])
def test_bench_prints_the_contract(run: Callable[..., Any], weights: str) -> None:
    """Every key, in every weight format; the counts are those asked for."""
    options = ("--prompt-tokens", "20", "--generate", "4", "--repeat", "2", "--json")
    code, out, err = run("bench", "--weights", weights, *options)
    assert (code, err) == (0, "")
    result = last_json(out)
    assert list(result) == BENCH_KEYS
    assert list(result["itl_ms"]) == ["p50", "p90", "p95", "p99", "mean"]
    assert result["weights"] == weights
    assert (result["prompt_tokens"], result["completion_tokens"]) == (20, 4)
    assert result["decode_tok_s"] > 0
    assert result["prefill_tok_s"] > 0


def test_bench_measures_several_requests_at_once(run: Callable[..., Any]) -> None:
    """Each has a prompt of its own; together they get more tokens than the slowest alone."""
    options = ("--prompt-tokens", "20", "--generate", "6", "--repeat", "1", "--concurrency", "3")
    code, out, err = run("bench", *options)
    assert (code, err) == (0, "")
    result = last_json(out)
    assert result["concurrency"] == 3
    assert result["completion_tokens"] == 6
    assert result["total_decode_tok_s"] > result["decode_tok_s"]


def test_bench_tells_no_total_where_requests_did_not_decode_together(
    run: Callable[..., Any],
) -> None:
    """Answers of one token have no time between a last first token and a first end."""
    options = ("--prompt-tokens", "20", "--generate", "1", "--repeat", "1", "--concurrency", "2")
    code, out, err = run("bench", *options)
    assert (code, err) == (0, "")
    result = last_json(out)
    assert result["concurrency"] == 2
    assert result["total_decode_tok_s"] is None


def test_bench_counts_the_tokens_of_one_request_as_its_total(run: Callable[..., Any]) -> None:
    """Alone, tokens after the first over the time to the last: the decode speed itself."""
    code, out, _ = run("bench", "--prompt-tokens", "8", "--generate", "5", "--repeat", "1")
    assert code == 0
    result = last_json(out)
    assert result["total_decode_tok_s"] == pytest.approx(result["decode_tok_s"])


def test_generate_prints_the_contract(run: Callable[..., Any]) -> None:
    """Ids, text, reason and metrics; raw prompts get the tokenizer's own frame."""
    code, out, _ = run("generate", "--prompt", "abc", "--raw", "--max-tokens", "5", "--json")
    assert code == 0
    result = last_json(out)
    assert list(result) == ["prompt_ids", "token_ids", "text", "finish_reason", "metrics"]
    assert result["prompt_ids"] == [256, 97, 98, 99]
    assert result["metrics"]["prompt_tokens"] == 4
    assert len(result["token_ids"]) == result["metrics"]["completion_tokens"]


def test_generate_uses_template_and_system_prompt(run: Callable[..., Any]) -> None:
    """A chat prompt begins with one BOS and holds the system text."""
    options = ("--prompt", "hi", "--system", "be brief", "--max-tokens", "1", "--json")
    ids = last_json(run("generate", *options)[1])["prompt_ids"]
    assert ids.count(256) == 1
    assert bytes(i for i in ids if i < 256).decode().count("be brief") == 1


def test_the_module_is_the_command() -> None:
    """`python -m engine.bench` documents itself and never imports Qt."""
    code = "import sys, engine.bench, engine.cli; print([m for m in sys.modules if 'PySide' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    done = subprocess.run(
        [sys.executable, "-m", "engine.bench", "--help"], capture_output=True, text=True, check=True
    )
    assert "--prompt-tokens" in done.stdout


@pytest.mark.parametrize(
    "options",
    [["--weights", "int3"], ["--context", "many"], ["--device", "tpu"], ["--threads", "0"]],
)
def test_wrong_arguments_exit_2(run: Callable[..., Any], options: list[str]) -> None:
    """argparse's own exit, with the option named."""
    with pytest.raises(SystemExit) as exit_:
        run("bench", *options)
    assert exit_.value.code == 2


def test_values_out_of_range_exit_2(run: Callable[..., Any]) -> None:
    """What only the engine can judge."""
    code, _, err = run("generate", "--prompt", "x", "--temperature", "-1")
    assert code == 2
    assert "temperature" in err


def bad_inputs(folder: Path) -> dict[str, tuple[Path, str]]:
    """Broken models by name, each with a word its message must hold."""
    tiny = GOLDEN / "tiny" / "gqa"
    cases: dict[str, tuple[Path, str]] = {"missing file": (folder / "nowhere.gguf", "not found")}

    def copy(name: str) -> Path:
        target = folder / name
        target.mkdir()
        for file in ("config.json", "model.safetensors"):
            (target / file).write_bytes((tiny / file).read_bytes())
        return target

    (folder / "empty").mkdir()
    cases["folder without config"] = (folder / "empty", "config.json")
    unknown = copy("unknown")
    config = json.loads((unknown / "config.json").read_text())
    config |= {"model_type": "mamba", "architectures": ["MambaForCausalLM"]}
    (unknown / "config.json").write_text(json.dumps(config))
    cases["unknown architecture"] = (unknown, "mamba")
    truncated = copy("truncated")
    data = (truncated / "model.safetensors").read_bytes()
    (truncated / "model.safetensors").write_bytes(data[:-1000])
    cases["truncated shard"] = (truncated, "model.safetensors")
    pointer = copy("pointer")
    (pointer / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    )
    cases["LFS pointer"] = (pointer, "LFS")
    absurd = folder / "absurd.gguf"
    absurd.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2**60, 2**60) + b"\0" * 64)
    cases["absurd counts"] = (absurd, "absurd.gguf")
    return cases


CASES = [
    "missing file",
    "folder without config",
    "unknown architecture",
    "truncated shard",
    "LFS pointer",
    "absurd counts",
]


@pytest.mark.parametrize("case", CASES)
def test_a_bad_model_is_one_line_and_exit_1(
    run: Callable[..., Any], tmp_path: Path, case: str
) -> None:
    """What, why and what next, no traceback."""
    path, word = bad_inputs(tmp_path)[case]
    code, out, err = run("bench", model=path)
    assert code == 1
    assert out == ""
    assert err.count("\n") == 1
    assert word.lower() in err.lower()
    assert "Traceback" not in err


def test_a_prompt_longer_than_the_context_exits_1(run: Callable[..., Any]) -> None:
    """Never silently cut."""
    code, _, err = run("generate", "--raw", "--prompt", "x" * 300)
    assert code == 1
    assert "301 tokens" in err


def test_a_context_larger_than_memory_exits_1(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figures and what would fit."""
    monkeypatch.setattr("engine.memory.available_bytes", lambda device: 1000)
    code, _, err = run("bench", "--context", "256")
    assert code == 1
    assert "needs" in err


@pytest.mark.parametrize(
    ("template", "word"),
    [
        ("{{ raise_exception('no such role') }}", "no such role"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", ""),
    ],
)
def test_a_template_that_raises_or_loops_exits_1(
    run: Callable[..., Any], tiny_model: Path, tmp_path: Path, template: str, word: str
) -> None:
    """The model still loads; only the chat through its template fails."""
    for file in tiny_model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(config | {"chat_template": template})
    )
    code, _, err = run("generate", "--prompt", "x", model=tmp_path)
    assert code == 1
    assert err.count("\n") == 1
    assert "template" in err
    assert word in err
    code, out, _ = run("generate", "--raw", "--prompt", "x", "--json", model=tmp_path)
    assert code == 0
    assert last_json(out)["token_ids"]
