"""What is kept of measured speeds, and when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.events import RequestMetrics
from engine.model_library.measured import (
    MAX_ENTRIES,
    MIN_DECODED,
    MIN_PREFILLED,
    MeasuredSpeed,
    MeasuredSpeeds,
    SpeedKey,
)

METRICS = RequestMetrics(
    *("r", "2026-01-15T09:30:00Z", 0, "m", "CPU", "int8", "bf16", 4096, "native"),
    *(500, 0, 100, "length", 0.0, 250.0, 250.0, 2_000.0, 50.0, 20.0),
    *(20.0, 20.0, 20.0, 20.0, 2_230.0, 1, 1, 1, 1, 0.0, 1.0, 0, 0, 1, 2, 0.1),
)
KEY = SpeedKey("/m.gguf", 10, 20, "int8", "CPU", 2)


def test_kept_from_one_start_to_the_next(tmp_path: Path) -> None:
    """Both figures come back for the same key, and for no other."""
    file = tmp_path / "data" / "speeds.json"
    MeasuredSpeeds(file).add(KEY, METRICS)
    again = MeasuredSpeeds(file)
    assert again.get(KEY) == MeasuredSpeed(2_000.0, 50.0)
    for other in (
        replace(KEY, weight_format="int4"),
        replace(KEY, device="NVIDIA H200"),
        replace(KEY, threads=1),
        replace(KEY, mtime_ns=21),
        replace(KEY, size=11),
    ):
        assert again.get(other) == MeasuredSpeed()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"completion_tokens": MIN_DECODED - 1}, MeasuredSpeed(2_000.0, None)),
        ({"prompt_tokens": MIN_PREFILLED - 1}, MeasuredSpeed(None, 50.0)),
        ({"cached_tokens": 500 - MIN_PREFILLED + 1}, MeasuredSpeed(None, 50.0)),
        ({"decode_tok_s": None}, MeasuredSpeed(2_000.0, None)),
        ({"use_cache": False}, MeasuredSpeed(2_000.0, None)),
    ],
)
def test_too_few_tokens_say_nothing(
    tmp_path: Path, changes: dict[str, int | None], expected: MeasuredSpeed
) -> None:
    """Short prompts, cached prompts and short answers leave their figure open."""
    speeds = MeasuredSpeeds(tmp_path / "speeds.json")
    speeds.add(KEY, replace(METRICS, **changes))
    assert speeds.get(KEY) == expected


def test_a_short_answer_leaves_what_a_long_one_showed(tmp_path: Path) -> None:
    """The newest figure counts, an absent one does not erase."""
    speeds = MeasuredSpeeds(tmp_path / "speeds.json")
    speeds.add(KEY, METRICS)
    speeds.add(KEY, replace(METRICS, completion_tokens=3, prefill_tok_s=1_500.0))
    assert speeds.get(KEY) == MeasuredSpeed(1_500.0, 50.0)


def test_the_file_stays_small(tmp_path: Path) -> None:
    """The oldest leave when there are too many."""
    file = tmp_path / "speeds.json"
    speeds = MeasuredSpeeds(file)
    for size in range(MAX_ENTRIES + 3):
        speeds._speeds[replace(KEY, size=size)] = MeasuredSpeed(1.0, 1.0)
    speeds.add(KEY, METRICS)
    again = MeasuredSpeeds(file)
    assert len(again._speeds) == MAX_ENTRIES
    assert again.get(KEY) == MeasuredSpeed(2_000.0, 50.0)
    assert again.get(replace(KEY, size=0)) == MeasuredSpeed()


@given(st.binary(max_size=200))
def test_any_file_content_can_be_begun_anew(content: bytes) -> None:
    """A broken file is no reason not to start."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "speeds.json"
        file.write_bytes(content)
        speeds = MeasuredSpeeds(file)
        speeds.add(KEY, METRICS)
        assert MeasuredSpeeds(file).get(KEY) == MeasuredSpeed(2_000.0, 50.0)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """The figure holds for this run; nothing is raised."""
    blocker = tmp_path / "file"
    blocker.write_text("")
    speeds = MeasuredSpeeds(blocker / "speeds.json")
    speeds.add(KEY, METRICS)
    assert speeds.get(KEY).decode_tok_s == 50.0


def test_keys_follow_the_files(tmp_path: Path) -> None:
    """A changed file is another model; a folder is the sum of its weights, links followed."""
    file = tmp_path / "a.gguf"
    file.write_bytes(b"12345")
    config = EngineConfig(str(file), weight_format="int8")
    first = SpeedKey.of(config, "CPU", 2)
    assert (first.size, first.weight_format) == (5, "int8")
    link = tmp_path / "link.gguf"
    link.symlink_to(file)
    assert SpeedKey.of(EngineConfig(str(link), weight_format="int8"), "CPU", 2) == first
    file.write_bytes(b"123456")
    assert SpeedKey.of(config, "CPU", 2) != first
    folder = tmp_path / "model"
    folder.mkdir()
    for name, data in (("a.safetensors", b"12"), ("b.safetensors", b"3"), ("c.json", b"{}")):
        (folder / name).write_bytes(data)
    assert SpeedKey.of(EngineConfig(str(folder)), "CPU", 2).size == 3
    (tmp_path / "nothing").mkdir()
    with pytest.raises(OSError, match="no weights"):
        SpeedKey.of(EngineConfig(str(tmp_path / "nothing")), "CPU", 2)
