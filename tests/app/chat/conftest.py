"""Themes and a clipboard for the tests of the conversation."""

from __future__ import annotations

import pytest

from app.theme import Theme, load_theme


@pytest.fixture(scope="session")
def theme() -> Theme:
    """The dark colours at 100 %."""
    return load_theme("dark")
