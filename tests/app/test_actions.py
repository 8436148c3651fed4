"""The action table: sound in itself, and complete where it meets the window."""

from __future__ import annotations

from collections import Counter

import pytest
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QMainWindow
from pytestqt.qtbot import QtBot

from app.actions import MENUS, Actions, ActionSpec, all_specs, plain
from app.dialogs import pages


def test_ids_are_unique() -> None:
    """An id names one action."""
    assert max(Counter(spec.id for spec in all_specs()).values()) == 1


def test_shortcuts_do_not_clash() -> None:
    """A key does one thing, and Qt understands every key of the table."""
    keys = [QKeySequence(key).toString() for spec in all_specs() for key in spec.shortcuts]
    assert all(keys)
    assert max(Counter(keys).values()) == 1


def test_mnemonics_do_not_clash_within_a_menu() -> None:
    """Each underlined letter opens one thing."""
    for _, entries in MENUS:
        letters = [
            e.text[e.text.index("&") + 1].lower()
            for e in entries
            if isinstance(e, ActionSpec) and "&" in e.text
        ]
        assert max(Counter(letters).values(), default=1) == 1


def test_every_action_needs_a_handler(qtbot: QtBot) -> None:
    """A menu entry that does nothing, or a handler without entry, is refused at start."""
    window = QMainWindow()
    qtbot.addWidget(window)
    with pytest.raises(KeyError):
        Actions(window, {}, {name: lambda _menu: None for name in ("recent", "device")})
    with pytest.raises(KeyError, match="nowhere"):
        Actions(window, {"nowhere": print}, {})


def test_shortcuts_page_lists_all() -> None:
    """The page behind Help names every action with a shortcut."""
    page = pages.shortcuts_page()
    assert all(plain(spec.text) in page for spec in all_specs() if spec.shortcuts)


def test_help_pages_have_content() -> None:
    """Definitions name the figures of the window, About the licences."""
    assert "TTFT" in pages.metrics_page()
    assert "Open Font License" in pages.about_page()
