"""Pinned runs on disk: what is written comes back, what is damaged is set aside and told."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app import safe_files
from app.run_comparison.pinned_run import PinnedRun, PinnedRunStore
from app.run_comparison.pinned_runs import PinnedRuns
from tests.app.run_comparison.test_figures import BASE, run


def pins(folder: Path) -> tuple[PinnedRuns, list[tuple[str, str]]]:
    found, told = PinnedRuns(PinnedRunStore(folder)), []
    found.problem_found.connect(lambda what, why: told.append((what, why)))
    return found, told


def test_they_are_there_at_the_next_start(tmp_path: Path, qtbot: QtBot) -> None:
    """Newest first, to the last figure; one that was let go is not."""
    now, _ = pins(tmp_path)
    older, newer = run("a"), run("b", started_at="2026-01-16T09:30:00Z")
    for each in (older, newer, run("c")):
        with qtbot.waitSignal(now.changed):
            now.pin(each)
    now.unpin("c")
    later, told = pins(tmp_path)
    assert later.runs == (newer, older)
    assert told == []


def test_pinning_again_changes_nothing(tmp_path: Path, qtbot: QtBot) -> None:
    """One run is one line."""
    found, _ = pins(tmp_path)
    found.pin(run("a"))
    with qtbot.assertNotEmitted(found.changed):
        found.pin(run("a"))
    assert len(found.runs) == 1


def test_no_word_of_the_prompt_is_kept(tmp_path: Path) -> None:
    """Neither text nor ids: a digest tells whether two prompts were the same."""
    ids = array("I", [31_337, 40_404])
    kept = PinnedRun.of(BASE, "tiny.gguf", ids, [float("nan"), 12.34567])
    PinnedRunStore(tmp_path).save(kept)
    [path] = tmp_path.iterdir()
    written = json.loads(path.read_text("utf-8"))
    assert set(written) == {"metrics", "model_path", "prompt_sha256", "itl_ms"}
    assert written["itl_ms"] == [12.346]
    assert "31337" not in path.read_text("utf-8")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"metrics": {}}', b"\xff\xfe", b"[" * 100_000]
)
def test_a_damaged_file_is_set_aside_and_told(tmp_path: Path, content: bytes) -> None:
    """The others are there; the file is kept under another name."""
    PinnedRunStore(tmp_path).save(run("a"))
    (tmp_path / "b.json").write_bytes(content)
    found, told = pins(tmp_path)
    assert [each.id for each in found.runs] == ["a"]
    assert told == [("Some pinned runs are damaged and were set aside.", "b.bad")]
    assert (tmp_path / "b.bad").read_bytes() == content


def test_a_file_under_another_name_is_not_believed(tmp_path: Path) -> None:
    """Otherwise one run could be there twice and never be let go."""
    PinnedRunStore(tmp_path).save(run("a"))
    (tmp_path / "a.json").rename(tmp_path / "b.json")
    found, told = pins(tmp_path)
    assert found.runs == ()
    assert len(told) == 1


def test_a_full_disk_keeps_the_run_until_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be compared; that it will be gone is said."""

    def refuse(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safe_files.os, "fsync", refuse)
    found, told = pins(tmp_path)
    found.pin(run("a"))
    assert [each.id for each in found.runs] == ["a"]
    [(what, why)] = told
    assert "until you quit" in what
    assert why == "No space left on device"
    assert list(tmp_path.iterdir()) == []


def test_an_id_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    """What comes from a file's name or an engine is no path."""
    with pytest.raises(ValueError, match="not a request id"):
        PinnedRunStore(tmp_path).delete("../../chats/a")
