"""The installed program from the outside: the real engine in the real window, unattended."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

TIMEOUT_S = 240


def phasescope(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "app.main", *arguments],
        env=os.environ | {"QT_QPA_PLATFORM": "offscreen"} | environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def rows(folder: Path, table: str) -> list[dict[str, str]]:
    with (folder / f"{table}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.e2e
@pytest.mark.starter
def test_unattended_answer_of_the_starter(tmp_path: Path) -> None:
    """It loads, streams, exports and exits 0; tokens.csv has a row a token, every curve points."""
    out, picture = tmp_path / "out", tmp_path / "out" / "window.png"
    done = phasescope(
        *("--prompt", "Explain the KV cache in two sentences.", "--max-tokens", "12"),
        *("--threads", "1", "--export", str(out), "--screenshot", str(picture)),
        "--exit-when-done",
    )
    assert (done.returncode, done.stderr) == (0, "")
    (request,) = rows(out, "requests")
    tokens = rows(out, "tokens")
    assert len(tokens) == int(request["completion_tokens"]) == 12
    assert tokens[0]["itl_ms"] == ""
    assert all(float(token["itl_ms"]) > 0 for token in tokens[1:])
    assert float(request["ttft_ms"]) == pytest.approx(float(tokens[0]["t_ms"]))
    assert rows(out, "samples")
    assert {step["phase"] for step in rows(out, "steps")} == {"prefill", "decode"}
    assert picture.stat().st_size > 10_000


@pytest.mark.e2e
def test_missing_model_is_one_line(tmp_path: Path) -> None:
    """Exit code 1 and one line that says what to do; no traceback."""
    done = phasescope("--model", str(tmp_path / "no.gguf"), "--prompt", "x", "--exit-when-done")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("phasescope: ")
    assert done.stderr.count("\n") == 1
    assert "no.gguf" in done.stderr


@pytest.mark.e2e
def test_no_display_is_one_line() -> None:
    """Where no window can open the unattended mode is named."""
    done = phasescope(QT_QPA_PLATFORM="", DISPLAY=":987", WAYLAND_DISPLAY="")
    assert done.returncode == 1
    assert "no display" in done.stderr
    assert done.stderr.count("\n") == 1


def test_window_code_does_not_import_torch() -> None:
    """The window appears before torch is imported, so nothing it is made of may import it."""
    check = "import sys, app.program; sys.exit('torch' in sys.modules or 'kernels' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], timeout=60, check=False).returncode == 0
