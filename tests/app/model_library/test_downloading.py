"""The download dialog against a local stand-in for the Hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.model_library.download_dialog import DownloadDialog
from engine.model_library.hub import Hub
from tests.app.conftest import MakeProgram
from tests.fakes.hub_server import FakeHub, serving
from tests.fakes.window import FakeProgram, wait_until
from tests.test_project import loaded_modules

REPOSITORY = "maker/tiny-GGUF"
SIZE = 1_000_000


@pytest.fixture
def fake() -> Iterator[FakeHub]:
    files = {"tiny.gguf": b"GGUF" + b"x" * (SIZE - 4), "README.md": b"# Tiny"}
    with serving(FakeHub({REPOSITORY: files, "maker/empty": {"README.md": b"-"}})) as hub:
        yield hub


def open_dialog(program: FakeProgram, fake: FakeHub, tmp_path: Path) -> DownloadDialog:
    hub = Hub(endpoint=fake.endpoint, cache=tmp_path / "hub")
    return program.window.finding.open_download(hub)


def arrived(tmp_path: Path) -> int:
    """Bytes of unfinished files in the cache."""
    return sum(p.stat().st_size for p in (tmp_path / "hub").glob("*/blobs/*.incomplete"))


def look_up(dialog: DownloadDialog, name: str = REPOSITORY) -> None:
    dialog.name.setText(name)
    dialog.look_up.click()
    wait_until(lambda: dialog.choices.count() > 0 or not dialog.problem.isHidden())


def test_a_model_comes_and_is_loaded(
    qtbot: QtBot, make_program: MakeProgram, fake: FakeHub, tmp_path: Path
) -> None:
    """Look up, choose, download, load: the whole way, licence and room said before."""
    program = make_program()
    dialog = open_dialog(program, fake, tmp_path)
    look_up(dialog, f"{fake.endpoint}/{REPOSITORY}")
    assert "tiny.gguf" in dialog.choices.item(0).text()
    assert "apache-2.0" in dialog.facts.text()
    assert "free" in dialog.facts.text()
    dialog.download.click()
    wait_until(lambda: dialog.load.isVisibleTo(dialog))
    dialog.load.click()
    wait_until(lambda: program.controller.model is not None)
    path = Path(program.session.loads[-1].model_path)
    assert path.is_relative_to(tmp_path / "hub")
    assert path.stat().st_size == SIZE


def test_stop_and_go_on(
    qtbot: QtBot, make_program: MakeProgram, fake: FakeHub, tmp_path: Path
) -> None:
    """Stopped midway, Download asks for the rest only."""
    fake.stall_after = 400_000
    dialog = open_dialog(make_program(), fake, tmp_path)
    look_up(dialog)
    dialog.download.click()
    wait_until(lambda: arrived(tmp_path) > 0)
    assert not dialog.look_up.isEnabled()
    dialog.stop.click()
    fake.release()
    wait_until(lambda: dialog.download.isEnabled())
    assert "Stopped" in dialog.detail.toolTip() + dialog.detail.text()
    dialog.download.click()
    wait_until(lambda: dialog.load.isVisibleTo(dialog))
    [first, second] = fake.ranges()
    assert first is None
    assert second is not None
    dialog.reject()


def test_gated_models_ask_for_a_token(
    qtbot: QtBot, make_program: MakeProgram, fake: FakeHub, tmp_path: Path, isolated_home: Path
) -> None:
    """The refusal is told in the dialog; a token typed there opens it and is written nowhere."""
    fake.token = "hf_secret_of_a_test"
    dialog = open_dialog(make_program(), fake, tmp_path)
    look_up(dialog)
    assert "token" in dialog.problem.text()
    dialog.token.setText(fake.token)
    look_up(dialog)
    assert dialog.choices.count() == 1
    assert "gated" in dialog.facts.text()
    dialog.download.click()
    wait_until(lambda: dialog.load.isVisibleTo(dialog))
    for folder in (isolated_home, tmp_path):
        for file in folder.rglob("*"):
            assert not file.is_file() or b"hf_secret" not in file.read_bytes()
    dialog.reject()


def test_nothing_to_load_is_told(
    qtbot: QtBot, make_program: MakeProgram, fake: FakeHub, tmp_path: Path
) -> None:
    """A repository without a format of ours, an unknown one, and a text that is no name."""
    dialog = open_dialog(make_program(), fake, tmp_path)
    for name, words in (
        ("maker/empty", "Nothing in maker/empty"),
        ("maker/unknown", "no model maker/unknown"),
        ("unknown", "not the name"),
    ):
        look_up(dialog, name)
        assert words in dialog.problem.text()
        assert not dialog.download.isEnabled()
    dialog.reject()


def test_closing_the_window_stops_a_download(
    qtbot: QtBot, make_program: MakeProgram, fake: FakeHub, tmp_path: Path
) -> None:
    """The window closes at once, and what came is kept for the next time."""
    fake.stall_after = 400_000
    program = make_program()
    dialog = open_dialog(program, fake, tmp_path)
    look_up(dialog)
    dialog.download.click()
    wait_until(lambda: arrived(tmp_path) > 0)
    program.window.finding.downloads.stop()
    fake.release()
    program.window.close()
    assert 0 < arrived(tmp_path) < SIZE


def test_the_hubs_library_is_not_imported_at_start() -> None:
    """It takes a quarter of a second: only the dialog's first look-up pays for it."""
    assert not loaded_modules("import app.program") & {"huggingface_hub", "httpx2", "torch"}
