"""The stamp decides whether set-up has anything to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stamp import Stamp, fingerprint, read_stamp, remove_stamp, write_stamp

EXTRAS = st.sets(st.sampled_from(["test", "dev", "gpu"])).map(lambda s: tuple(sorted(s)))


def test_stamp_survives_writing_and_reading(tmp_path: Path) -> None:
    """What is written is what the next call reads."""
    stamp = Stamp("abc", "cuda", ("dev", "test"))
    write_stamp(tmp_path, stamp)
    assert read_stamp(tmp_path) == stamp
    assert [p.name for p in tmp_path.iterdir()] == ["phasescope-stamp.json"]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"fingerprint": 1}', "\x00"])
def test_damaged_stamp_counts_as_none(tmp_path: Path, content: str) -> None:
    """A damaged stamp means set-up again, never a crash."""
    (tmp_path / "phasescope-stamp.json").write_text(content)
    assert read_stamp(tmp_path) is None


def test_removed_stamp_is_gone_and_may_be_removed_twice(tmp_path: Path) -> None:
    """An interrupted set-up leaves no stamp behind."""
    write_stamp(tmp_path, Stamp("abc", "cpu", ()))
    remove_stamp(tmp_path)
    remove_stamp(tmp_path)
    assert read_stamp(tmp_path) is None


@given(present=EXTRAS, wanted=EXTRAS)
def test_more_extras_cover_fewer(present: tuple[str, ...], wanted: tuple[str, ...]) -> None:
    """`make run` after `make test` has nothing to do; the other way round it has."""
    covered = Stamp("f", "cpu", present).covers(Stamp("f", "cpu", wanted))
    assert covered == (set(wanted) <= set(present))


def test_other_recipe_or_device_is_not_covered() -> None:
    """A changed recipe or a changed device needs a new set-up."""
    stamp = Stamp("f", "cpu", ())
    assert not stamp.covers(Stamp("g", "cpu", ()))
    assert not stamp.covers(Stamp("f", "cuda", ()))


def test_fingerprint_follows_every_file_of_the_recipe(tmp_path: Path) -> None:
    """Any change of content moves the fingerprint, and so does moving text between files."""
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("xy")
    second.write_text("z")
    before = fingerprint([first, second])
    assert fingerprint([first, second]) == before
    second.write_text("Z")
    assert fingerprint([first, second]) != before
    first.write_text("x")
    second.write_text("yz")
    assert fingerprint([first, second]) != before
