"""The settings file: overrides only, nothing lost, nothing fatal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.settings.schema import CONTEXT, FONT_SCALE, RECENT_MODELS, SCHEMA, SEED, THEME, Setting
from app.settings.store import Settings


def test_keys_are_unique_and_defaults_acceptable() -> None:
    """The table itself is sound."""
    assert len({s.key for s in SCHEMA}) == len(SCHEMA)
    assert all(s.accepts(s.default) for s in SCHEMA)
    assert all(s.title and s.description.endswith(".") for s in SCHEMA)


def test_only_overrides_are_saved(tmp_path: Path) -> None:
    """A changed default of a later version reaches who never touched the setting."""
    file = tmp_path / "settings.json"
    settings = Settings(file)
    settings.set(THEME, "dark")
    settings.set(FONT_SCALE, 1.2)
    settings.set(FONT_SCALE, 1.0)
    assert json.loads(file.read_text()) == {"theme": "dark"}
    assert Settings(file).get(THEME) == "dark"


def test_change_is_told_once(tmp_path: Path) -> None:
    """Listeners hear of real changes only."""
    settings = Settings(tmp_path / "settings.json")
    heard: list[str] = []
    settings.changed.connect(heard.append)
    settings.set(SEED, 7)
    settings.set(SEED, 7)
    assert heard == ["seed"]


def test_unknown_keys_survive(tmp_path: Path) -> None:
    """An older version does not destroy what a newer one wrote."""
    file = tmp_path / "settings.json"
    file.write_text('{"from_the_future": [1, 2], "theme": "light"}')
    Settings(file).set(RECENT_MODELS, ["a.gguf"])
    assert json.loads(file.read_text()) == {
        "from_the_future": [1, 2],
        "theme": "light",
        "recent_models": ["a.gguf"],
    }


@pytest.mark.parametrize("content", ["", "{", "[1]", '"x"', "[" * 100_000, "\x00"])
def test_corrupt_file_is_set_aside(tmp_path: Path, content: str) -> None:
    """A broken file is kept under another name, told, and the program starts."""
    file = tmp_path / "settings.json"
    file.write_text(content)
    settings = Settings(file)
    assert settings.problem is not None
    assert (tmp_path / "settings.json.bad").read_text() == content
    assert settings.get(THEME) == "system"


def test_wrong_kinds_count_as_defaults(tmp_path: Path) -> None:
    """One bad value does not take the others with it."""
    file = tmp_path / "settings.json"
    file.write_text('{"theme": "pink", "context": true, "font_scale": 99, "seed": 3}')
    settings = Settings(file)
    assert settings.get(THEME) == "system"
    assert settings.get(CONTEXT) is None
    assert settings.get(FONT_SCALE) == 1.0
    assert settings.get(SEED) == 3


def test_unwritable_folder_is_told(tmp_path: Path) -> None:
    """A settings folder that cannot be made does not stop the session."""
    (tmp_path / "file").write_text("")
    settings = Settings(tmp_path / "file" / "settings.json")
    settings.set(THEME, "dark")
    assert settings.get(THEME) == "dark"
    assert settings.problem is not None


def test_impossible_value_is_refused(tmp_path: Path) -> None:
    """Code cannot store what the file could not give back."""
    with pytest.raises(ValueError, match="font_scale"):
        Settings(tmp_path / "s.json").set(FONT_SCALE, 9.0)


@given(st.sampled_from(SCHEMA), st.none() | st.booleans() | st.integers() | st.floats() | st.text())
def test_check_never_raises(setting: Setting[object], value: object) -> None:
    """Any JSON value can be asked about."""
    assert setting.accepts(value) in (True, False)
