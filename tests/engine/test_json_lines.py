"""`--progress json`, as another program meets it: a child process, read line by line, stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.quantization.plan import Quantized, QuantizeProgress
from tests.engine.quantization.test_job import with_tokenizer

CASE = "rope_llama3"
WAIT_S = 60
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A tiny model with its tokenizer, alone in a folder."""
    (tmp_path / "models").mkdir()
    return with_tokenizer(CASE, tmp_path / "models")


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a command with pipes at all ends; none outlives the test."""
    children: list[subprocess.Popen[str]] = []

    def start_(*arguments: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-m", "app.main", *arguments, "--progress", "json"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        return child

    yield start_
    for child in children:
        child.kill()
        with child:  # closes the pipes
            child.wait(WAIT_S)


def quantize(source: Path, *more: str) -> tuple[str, ...]:
    out = ("--out", str(source.parent / "out"), "--group-size", "32", "--threads", "1")
    return ("quantize", str(source), *out, *more)


def rest(child: subprocess.Popen[str]) -> tuple[list[dict[str, Any]], str]:
    """What is still to come on stdout, and stderr; stdin stays open until then."""
    assert child.stdout is not None
    assert child.stderr is not None
    rows = [json.loads(line) for line in child.stdout]
    child.wait(WAIT_S)
    return rows, child.stderr.read()


def test_every_step_is_a_line(source: Path, start: Start) -> None:
    """Progress with the fields of QuantizeProgress, then one result with those of Quantized."""
    child = start(*quantize(source, "--samples", "2"))
    rows, err = rest(child)
    assert (child.returncode, err) == (0, "")
    kinds = [kind for row in rows for kind in row]
    assert kinds == ["progress"] * (len(rows) - 1) + ["result"]
    steps = [QuantizeProgress(**row["progress"]) for row in rows[:-1]]
    assert {step.layer for step in steps} == {1, 2}
    assert Quantized(**rows[-1]["result"]).num_quantized == 14


def test_an_error_is_its_three_sentences(source: Path, start: Start) -> None:
    """On stdout for the program, on stderr and by exit code as always."""
    (source.parent / "out").mkdir()
    (source.parent / "out" / "file").touch()
    child = start(*quantize(source))
    rows, err = rest(child)
    assert child.returncode == 1
    [row] = rows
    assert set(row["error"]) == {"what", "why", "next"}
    assert "exists already" in row["error"]["what"]
    assert row["error"]["what"] in err


@pytest.mark.parametrize("how", ["stdin", "terminate"])
def test_stopping_leaves_nothing(source: Path, start: Start, how: str) -> None:
    """At the end of stdin, which also comes when the other program dies, and at SIGTERM."""
    if how == "terminate" and sys.platform == "win32":
        pytest.skip("Windows ends a process without telling it")
    child = start(*quantize(source, "--samples", "128", "--sample-tokens", "64"))
    assert child.stdout is not None
    assert child.stdin is not None
    child.stdout.readline()
    assert len(list(source.parent.iterdir())) == 2  # the source, and what is half made
    if how == "stdin":
        child.stdin.close()
    else:
        child.send_signal(signal.SIGTERM)
    rows, err = rest(child)
    assert child.returncode == 130
    assert err == "phasescope quantize: interrupted\n"
    assert not any("result" in row for row in rows)
    assert list(source.parent.iterdir()) == [source]


def test_perplexity_tells_its_progress_too(
    source: Path, start: Start, tmp_path: Path, isolated_home: Path
) -> None:
    """Both runs, then the result, which is kept for the window."""
    (tmp_path / "text").write_text("An epoch of rest. " * 8)
    text = ("--text", str(tmp_path / "text"), "--threads", "1")
    child = start("perplexity", str(source), "--reference-weights", "fp32", *text)
    rows, err = rest(child)
    assert (child.returncode, err) == (0, "")
    assert {row["progress"]["run"] for row in rows[:-1]} == {"reference", "measured"}
    assert rows[-1]["result"]["reference_perplexity"] > 1
    assert (isolated_home / "data" / "model-quality.json").exists()
