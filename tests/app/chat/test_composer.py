"""Writing a message: keys, input methods, big pastes, and never losing the draft."""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QGuiApplication, QInputMethodEvent
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from app.chat.composer import Composer
from app.chat.draft_edit import LONGEST_BLOCK, DraftEdit
from app.theme import Theme, load_theme

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")


@pytest.fixture
def composer(qtbot: QtBot, theme: Theme) -> Composer:
    composer = Composer(theme)
    qtbot.addWidget(composer)
    composer.resize(640, 120)
    composer.show()
    return composer


def _edit(composer: Composer) -> DraftEdit:
    return composer.findChild(DraftEdit)


def _button(composer: Composer, text: str) -> QPushButton:
    (button,) = (b for b in composer.findChildren(QPushButton) if b.text() == text)
    return button


def test_enter_sends_and_the_draft_stays_until_it_is_accepted(
    composer: Composer, qtbot: QtBot
) -> None:
    """A message that is refused is still there; clear is the receiver's word that it went."""
    qtbot.keyClicks(_edit(composer), "Hello")
    with qtbot.waitSignal(composer.send_requested) as sent:
        qtbot.keyClick(_edit(composer), Qt.Key.Key_Return)
    assert sent.args == ["Hello"]
    assert composer.text() == "Hello"
    composer.clear()
    assert composer.text() == ""


def test_shift_enter_is_a_new_line(composer: Composer, qtbot: QtBot) -> None:
    """Several lines can be written, and the field grows with them up to eight."""
    edit = _edit(composer)
    one_line = edit.height()
    with qtbot.assertNotEmitted(composer.send_requested):
        for number in range(12):
            qtbot.keyClicks(edit, str(number))
            qtbot.keyClick(edit, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert composer.text().startswith("0\n1\n2\n")
    assert 6 * one_line < edit.height() < 8 * one_line
    composer.clear()
    assert edit.height() == one_line


def test_enter_during_composition_does_not_send(composer: Composer, qtbot: QtBot) -> None:
    """Choosing a candidate of an input method with Enter sends nothing."""
    edit = _edit(composer)
    qtbot.keyClicks(edit, "x")
    QGuiApplication.sendEvent(edit, QInputMethodEvent("にほん", []))
    with qtbot.assertNotEmitted(composer.send_requested):
        qtbot.keyClick(edit, Qt.Key.Key_Return)
    commit = QInputMethodEvent("", [])
    commit.setCommitString("日本")
    QGuiApplication.sendEvent(edit, commit)
    with qtbot.waitSignal(composer.send_requested) as sent:
        qtbot.keyClick(edit, Qt.Key.Key_Return)
    assert sent.args == ["x日本"]


def test_stop_takes_the_place_of_send(composer: Composer, qtbot: QtBot) -> None:
    """While an answer is made, Esc and the button stop it and Enter sends nothing."""
    composer.set_text("next question")
    composer.set_generating(True)
    assert _button(composer, "Stop").isVisible()
    assert not _button(composer, "Send").isVisible()
    with qtbot.waitSignal(composer.stop_requested):
        qtbot.keyClick(_edit(composer), Qt.Key.Key_Escape)
    with qtbot.waitSignal(composer.stop_requested):
        qtbot.mouseClick(_button(composer, "Stop"), Qt.MouseButton.LeftButton)
    with qtbot.assertNotEmitted(composer.send_requested):
        qtbot.keyClick(_edit(composer), Qt.Key.Key_Return)
    composer.set_generating(False)
    assert composer.text() == "next question"
    with qtbot.assertNotEmitted(composer.stop_requested):
        qtbot.keyClick(_edit(composer), Qt.Key.Key_Escape)


def test_not_ready_says_why_and_keeps_the_draft(composer: Composer, qtbot: QtBot) -> None:
    """While a model loads one can write, not send, and reads the reason."""
    composer.set_ready(False, "Loading the model…")
    qtbot.keyClicks(_edit(composer), "Hi")
    with qtbot.assertNotEmitted(composer.send_requested):
        qtbot.keyClick(_edit(composer), Qt.Key.Key_Return)
    assert not _button(composer, "Send").isEnabled()
    assert composer._hint.accessibleName() == "Loading the model…"
    composer.set_ready(True, "")
    with qtbot.waitSignal(composer.send_requested):
        qtbot.mouseClick(_button(composer, "Send"), Qt.MouseButton.LeftButton)


@pytest.mark.parametrize("blank", ["", "  \n ", " " * 5000])
def test_blank_text_is_not_sent(composer: Composer, qtbot: QtBot, blank: str) -> None:
    """An empty message makes no sense to a model."""
    composer.set_text(blank)
    with qtbot.assertNotEmitted(composer.send_requested):
        qtbot.keyClick(_edit(composer), Qt.Key.Key_Return)


def test_paste_is_plain_text(composer: Composer, qtbot: QtBot) -> None:
    """Formatting of a web page stays there."""
    mime = QMimeData()
    mime.setHtml("<b>bold</b>")
    mime.setText("bold\r\nnext")
    _edit(composer).insertFromMimeData(mime)
    assert composer.text() == "bold\nnext"


@pytest.mark.parametrize(
    "text", ["x" * 1_000_000, "some line of text\n" * 55_000, "wort " * 200_000]
)
def test_a_megabyte_does_not_freeze_the_window(composer: Composer, qtbot: QtBot, text: str) -> None:
    """A huge paste, even without a space, takes a moment and comes out unchanged."""
    mime = QMimeData()
    mime.setText(text)
    start = time.process_time()
    _edit(composer).insertFromMimeData(mime)
    QGuiApplication.processEvents()
    qtbot.keyClicks(_edit(composer), "!")
    assert time.process_time() - start < 2
    assert composer.text() == text + "!"


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.text("ab é語🙂\t", max_size=8) | st.integers(1, 3 * LONGEST_BLOCK).map("x".__mul__),
        max_size=6,
    ).map("\n".join)
)
def test_any_draft_comes_back_as_it_was(composer: Composer, text: str) -> None:
    """Lines that are cut for speed are joined again, whatever their lengths."""
    composer.set_text(text)
    assert composer.text() == text


def test_the_draft_is_told_after_a_moment(composer: Composer, qtbot: QtBot) -> None:
    """What was typed is reported once it pauses, what the program sets at once."""
    with qtbot.waitSignal(composer.draft_changed) as changed:
        qtbot.keyClicks(_edit(composer), "abc")
    assert changed.args == ["abc"]
    with qtbot.waitSignal(composer.draft_changed) as changed:
        composer.set_text("of another chat")
    assert changed.args == ["of another chat"]


def test_the_gauge_says_tokens(composer: Composer) -> None:
    """Used and limit are exact numbers; unknown is a dash."""
    gauge = composer._gauge
    assert gauge._numbers.text() == "– / –"
    composer.set_context(1284, 4096)
    assert gauge._numbers.text() == "1,284 / 4,096"
    assert gauge._bar.share == pytest.approx(1284 / 4096)
    composer.set_context(5000, 4096)
    assert gauge._bar.share == 1


@pytest.mark.parametrize("width", [480, 640, 1400])
@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_nothing_is_clipped(qtbot: QtBot, width: int, scale: float) -> None:
    """Stop, the gauge and the reason fit side by side in a narrow window and with large type."""
    composer = Composer(load_theme("light", scale))
    qtbot.addWidget(composer)
    composer.set_context(128_000, 131_072)
    composer.set_ready(False, "The model is being loaded with another weight format, please wait")
    composer.resize(width, composer.sizeHint().height())
    composer.show()
    QGuiApplication.processEvents()
    numbers, hint = composer._gauge._numbers, composer._hint
    assert numbers.width() >= numbers.sizeHint().width()
    assert hint.fontMetrics().horizontalAdvance(hint.text()) <= hint.width()
    assert _button(composer, "Send").width() >= _button(composer, "Send").sizeHint().width()
    assert _button(composer, "Send").geometry().right() <= composer.contentsRect().right()


def test_the_gauge_counts_the_draft(composer: Composer) -> None:
    """It is part of the number, a lighter part of the bar, and told with what a full one does."""
    gauge = composer._gauge
    composer.set_context(1000, 4096, 96, "Then the answer ends.")
    assert gauge._numbers.text() == "1,096 / 4,096"
    assert gauge._bar.share == pytest.approx(1000 / 4096)
    assert gauge._bar.draft_share == pytest.approx(1096 / 4096)
    assert "Your draft adds 96." in gauge.toolTip()
    assert gauge.toolTip().endswith("Then the answer ends.")
    assert "more than fits" not in gauge.toolTip()
    assert not gauge._numbers.font().bold()
    composer.set_context(1000, 4096, 4000, "")
    assert gauge._bar.draft_share == 1.0
    assert "more than fits" in gauge.toolTip()
    assert gauge._numbers.font().bold()
