"""No text is clipped or overlaps another, and every text can be read, in every state and size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import combinations

import pytest
from PySide6.QtCore import QSize
from PySide6.QtWidgets import QAbstractButton, QApplication, QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.appearance import style_sheet
from app.theme import MIN_CONTRAST, TEXT_PAIRS, Theme, ThemeName, contrast, load_theme
from tests.contact_sheet.states import STATES, State, open_state
from tests.fakes.window import FakeProgram, settle, wait_until

# A menu that is open and a window whose minimum changes say this on the platform without a screen.
pytestmark = pytest.mark.qt_log_ignore(
    "This plugin does not support (raise|grabbing|propagateSizeHints)"
)

SIZES = ((1440, 900), (1280, 720), (1093, 614), (900, 600), (620, 600))
# These cut their text on purpose and show that they do.
ELIDING = {"ElidedLabel"}


@pytest.fixture(params=STATES, ids=lambda state: state.name)
def program(request: pytest.FixtureRequest, qapp: QApplication) -> Iterator[FakeProgram]:
    """A window in each state."""
    state: State = request.param
    opened = open_state(state, qapp, "dark")
    yield opened
    opened.close()
    qapp.setStyleSheet("")


def test_no_text_is_clipped_or_overlaps(program: FakeProgram) -> None:
    """Every label and button has the room its text needs, at every size of the contact sheet."""
    faults: list[str] = []
    for width, height in SIZES:
        program.window.resize(width, height)
        settle(40)
        found = _lasting(lambda: [*_clipped(program.window), *_overlaps(program.window)])
        faults += [f"{width}x{height}: {fault}" for fault in found]
    assert not faults


def test_larger_text_is_not_clipped(qapp: QApplication, program: FakeProgram) -> None:
    """The same at half as large again, as Ctrl and + make it."""
    program.appearance.choose("dark", 1.5)
    settle(60)
    clipped = _lasting(lambda: _clipped(program.window))
    program.appearance.choose("dark", 1.0)
    assert not clipped


def test_the_check_finds_what_it_should(qtbot: QtBot) -> None:
    """A label without room and two labels on one place are reported."""
    window = QWidget()
    qtbot.addWidget(window)
    first, second = QLabel("a long text", window), QLabel("another one", window)
    first.resize(20, 20)
    second.resize(second.sizeHint())
    window.show()
    assert _is_clipped(first)
    assert not _is_clipped(second)
    assert len(_overlaps(window)) == 1


@pytest.mark.parametrize("name", ["dark", "light"])
def test_text_can_be_read(name: ThemeName) -> None:
    """Every text colour stands on its backgrounds with a contrast of 4.5 or more."""
    theme = load_theme(name)
    weak = {
        (text, ground): round(contrast(theme.color(text), theme.color(ground)), 2)
        for text, ground in TEXT_PAIRS
        if contrast(theme.color(text), theme.color(ground)) < MIN_CONTRAST
    }
    assert not weak


@pytest.mark.parametrize("name", ["dark", "light"])
def test_style_sheet_is_filled_in(name: ThemeName) -> None:
    """No token is left open, and sizes follow the text size."""
    theme: Theme = load_theme(name, 2.0)
    sheet = style_sheet(theme)
    assert "{{" not in sheet
    assert "font-size: 24px" in sheet


def _texts(window: QWidget) -> list[QLabel | QAbstractButton]:
    widgets = [*window.findChildren(QLabel), *window.findChildren(QAbstractButton)]
    return [w for w in widgets if w.isVisible() and w.text() and type(w).__name__ not in ELIDING]


def _lasting(find: Callable[[], list[str]]) -> list[str]:
    """Faults that stay; on a busy machine parts that give way are laid out a little later."""
    with suppress(TimeoutError):
        wait_until(lambda: not find(), seconds=2)
    return find()


def _clipped(window: QWidget) -> list[str]:
    return [f"{_name(widget)} is clipped" for widget in _texts(window) if _is_clipped(widget)]


def _is_clipped(widget: QLabel | QAbstractButton) -> bool:
    if isinstance(widget, QLabel) and widget.wordWrap():
        return widget.heightForWidth(widget.width()) > widget.height() + 1
    needed: QSize = widget.sizeHint()
    if isinstance(widget, QAbstractButton) and widget.layout() is not None:
        return False  # its labels are looked at themselves
    return needed.width() > widget.width() + 1 or needed.height() > widget.height() + 4


def _overlaps(window: QWidget) -> list[str]:
    found = []
    by_parent: dict[QWidget, list[QLabel | QAbstractButton]] = {}
    for widget in _texts(window):
        by_parent.setdefault(widget.parentWidget(), []).append(widget)
    for siblings in by_parent.values():
        for first, second in combinations(siblings, 2):
            if first.geometry().intersects(second.geometry()):
                found.append(f"{_name(first)} overlaps {_name(second)}")
    return found


def _name(widget: QLabel | QAbstractButton) -> str:
    parent = type(widget.parentWidget()).__name__
    return f"{type(widget).__name__} {widget.text()!r} in {parent} ({widget.width()} px)"
