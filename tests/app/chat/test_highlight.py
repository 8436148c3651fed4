"""Code colours: readable, and in hues that mean nothing else."""

from __future__ import annotations

from dataclasses import astuple

import pytest
from PySide6.QtGui import QColor

from app.chat.highlight import CODE_COLORS, LONGEST_HIGHLIGHTED, highlight
from app.theme import Theme, ThemeName, load_theme

MEANINGS = ("prefill", "decode", "kv", "device", "stop")


def _luminance(color: str) -> float:
    """WCAG 2 relative luminance."""
    channels = QColor(color).getRgbF()[:3]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.fixture(params=["dark", "light"])
def theme(request: pytest.FixtureRequest) -> Theme:
    name: ThemeName = request.param
    return load_theme(name)


def test_code_can_be_read(theme: Theme) -> None:
    """Every colour of code has a contrast of 4.5 or more on the card and on the window."""
    for color in (*astuple(CODE_COLORS[theme.name]), theme.faint, theme.text):
        assert _contrast(color, theme.surface) >= 4.5
        assert _contrast(color, theme.window) >= 4.5


def test_code_hues_carry_no_meaning(theme: Theme) -> None:
    """A keyword must not look like decode, nor a number like prefill."""
    for color in astuple(CODE_COLORS[theme.name]):
        for meaning in MEANINGS:
            difference = abs(QColor(color).hue() - QColor(getattr(theme, meaning)).hue()) % 360
            assert min(difference, 360 - difference) >= 25, (color, meaning)


def test_python_is_coloured(theme: Theme) -> None:
    """Keywords, strings, numbers and comments each get their colour, at the right place."""
    code = "for x in [1]:  # why\n    'é'"
    colors = CODE_COLORS[theme.name]
    found = {code[s.start : s.start + s.length]: s.color for s in highlight("python", code, theme)}
    assert found["for"] == colors.keyword
    assert found["1"] == colors.number
    assert found["# why"] == theme.faint
    assert found["é"] == colors.string


@pytest.mark.parametrize("language", ["", "no-such-language", "text"])
def test_unknown_languages_are_plain(theme: Theme, language: str) -> None:
    """A language that nobody knows is shown without colours, not refused."""
    assert highlight(language, "for x in y", theme) == []


def test_a_huge_block_is_plain(theme: Theme) -> None:
    """Colouring must not freeze the window."""
    assert highlight("python", "x = 1\n" * LONGEST_HIGHLIGHTED, theme) == []
