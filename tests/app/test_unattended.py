"""The entry point: exit codes, one line on stderr, and the unattended run in the real window."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import pytest
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication

from app import folders
from app.main import main, parser, run_window
from engine.events import GenerationFailed
from engine.session import EngineError
from tests.fakes.fake_session import FakeClock, FakeSession, Script
from tests.fakes.window import MODEL

PROMPT = ("--model", MODEL, "--prompt", "Explain the KV cache.", "--exit-when-done")


class RealClock(FakeClock):
    """Time as it really passes: the sensors' samples must fall into the answer."""

    def __init__(self) -> None:
        self._offset_ns = 0

    @property
    def now_ns(self) -> int:
        return time.perf_counter_ns()

    @now_ns.setter
    def now_ns(self, value: int) -> None:
        """Simulated durations do not move it."""


def run(script: Script, *arguments: str) -> int:
    session = FakeSession(script, clock=RealClock())
    return run_window(parser().parse_args(arguments), lambda: session)


def test_run_writes_tables_and_picture(
    qapp: QApplication, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One command loads, asks, streams, exports and saves a picture; every curve has points."""
    out, picture = tmp_path / "out", tmp_path / "pictures" / "window.png"
    script = Script(wait=lambda s: time.sleep(min(s, 0.004)))
    code = run(
        script,
        *(*PROMPT, "--max-tokens", "64", "--export", str(out)),
        *("--screenshot", str(picture), "--report", str(out / "report.html")),
    )
    assert 'id="request-1"' in (out / "report.html").read_text(encoding="utf-8")
    assert capsys.readouterr().err == ""
    assert code == 0
    with (out / "tokens.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 64
    assert all(row["paint_ms"] for row in rows)
    assert QImage(str(picture)).width() >= 1440


def test_run_leaves_nothing_behind(qapp: QApplication, isolated_home: Path) -> None:
    """A scripted run writes neither a chat nor settings of the person's."""
    assert run(Script(), *PROMPT) == 0
    assert not folders.chats_folder().exists()
    assert not (folders.config_folder() / "settings.json").exists()


def test_run_is_greedy_by_itself(qapp: QApplication) -> None:
    """Two runs of one command give one answer, whatever the model's files ask for."""
    session = FakeSession(Script(), clock=RealClock())
    assert run_window(parser().parse_args([*PROMPT, "--max-tokens", "5"]), lambda: session) == 0
    assert session.requests[0].sampling.temperature == 0
    assert session.requests[0].max_tokens == 5


def test_failed_load_is_one_line(qapp: QApplication, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, what, why and what next in one line, no traceback."""
    path = str(Path(MODEL).absolute())
    error = EngineError("No such file.", "It was moved.", "Name another.")
    assert run(Script(bad_paths={path: error}), *PROMPT) == 1
    assert capsys.readouterr().err == "phasescope: No such file. It was moved. Name another.\n"


def test_failed_answer_is_one_line(qapp: QApplication, capsys: pytest.CaptureFixture[str]) -> None:
    """The same when the prompt cannot be served."""
    failure = GenerationFailed("", 0, "Too long.", "It is.", "Shorten it.")
    assert run(Script(generation_failure=failure), *PROMPT) == 1
    assert capsys.readouterr().err == "phasescope: Too long. It is. Shorten it.\n"


def test_empty_curves_fail_the_run(
    qapp: QApplication, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose panels stayed empty must not look like a success."""
    monkeypatch.setattr("app.main_window.MainWindow.empty_curves", lambda _self: ["mfu"])
    assert run(Script(), *PROMPT) == 1
    assert "mfu" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--weights", "int3"],
        ["--exit-when-done"],
        ["--screenshot", "x.png"],
        ["--prompt", "x", "--max-tokens", "0"],
        ["--nonsense"],
    ],
)
def test_wrong_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and the usage, before anything is imported or shown."""
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert "usage: phasescope" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """--version names the program and its version."""
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out.startswith("phasescope ")


def test_no_display(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a display the person reads a sentence instead of an abort of Qt."""
    for name in ("QT_QPA_PLATFORM", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert main([]) == 1
    assert "no display" in capsys.readouterr().err
