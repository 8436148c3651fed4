"""Choosing configurations by time, and keeping them; no GPU and no Triton needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kernels.gpu.autotune import LinearConfig, TuningFile, fastest

SLOW, FAST, BROKEN = (LinearConfig(128, splits, 4, 2) for splits in (1, 2, 3))


def fake_times(run: Callable[[], object]) -> float:
    """The milliseconds that the run says it takes."""
    result = run()
    assert isinstance(result, float)
    return result


def run(config: LinearConfig) -> float:
    """A kernel that one configuration does not fit."""
    if config == BROKEN:
        raise RuntimeError("out of resource: shared memory")
    return {SLOW: 2.0, FAST: 1.0}[config]


def test_the_fastest_that_runs_is_chosen() -> None:
    """Whatever the order, and though one does not run here."""
    assert fastest([SLOW, BROKEN, FAST], run, fake_times) == FAST
    assert fastest([FAST, SLOW], run, fake_times) == FAST


def test_none_that_runs_is_an_error_with_its_cause() -> None:
    """Instead of a choice that fails in the middle of an answer."""
    with pytest.raises(RuntimeError, match="no configuration") as raised:
        fastest([BROKEN], run, fake_times)
    assert "shared memory" in str(raised.value.__cause__)


def test_choices_are_found_again(tmp_path: Path) -> None:
    """By another process on the same device with the same Triton, and by no other."""
    folder = tmp_path / "new"
    TuningFile(folder, "NVIDIA H200", "3.9.0").put("int4 8x8", FAST)
    assert TuningFile(folder, "NVIDIA H200", "3.9.0").get("int4 8x8") == FAST
    assert TuningFile(folder, "NVIDIA H200", "3.9.0").get("int8 8x8") is None
    assert TuningFile(folder, "NVIDIA H200", "3.9.1").get("int4 8x8") is None
    assert TuningFile(folder, "NVIDIA A100", "3.9.0").get("int4 8x8") is None
    assert [path.suffix for path in folder.iterdir()] == [".json"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        '{"key": 3}',
        '{"key": {"block_n": 1}}',
        "\ud800".encode("utf-16", "surrogatepass"),
    ],
)
def test_a_broken_file_is_as_none(tmp_path: Path, text: str | bytes) -> None:
    """Whatever it holds; the next choice replaces it."""
    TuningFile(tmp_path, "gpu", "3").put("key", FAST)
    (path,) = tmp_path.iterdir()
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    file = TuningFile(tmp_path, "gpu", "3")
    assert file.get("key") is None
    file.put("other", SLOW)
    assert list(json.loads(path.read_text())) == ["other"]


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    """The choice holds for this process."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    file = TuningFile(blocked / "folder", "gpu", "3")
    file.put("key", FAST)
    assert file.get("key") == FAST
