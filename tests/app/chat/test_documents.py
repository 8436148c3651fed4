"""Text documents of a row: nothing lost, and streaming costs only what is new."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PySide6.QtGui import QTextDocument, QTextTable
from pytestqt.qtbot import QtBot

from app.chat import documents
from app.chat.documents import (
    LONGEST_LIVE_PARAGRAPH,
    LiveText,
    bubble_document,
    caret_rect,
    code_document,
    prose_document,
    text_height,
)
from app.chat.highlight import CODE_COLORS
from app.chat.markdown import Code, Prose
from app.theme import Theme, load_theme

pytestmark = pytest.mark.usefixtures("qapp")


@pytest.fixture(scope="module")
def theme() -> Theme:
    return load_theme("dark")


def _colors(document: QTextDocument) -> dict[str, str]:
    found = {}
    block = document.begin()
    while block.isValid():
        for span in block.textFormats():
            text = block.text().encode("utf-16-le")[2 * span.start : 2 * (span.start + span.length)]
            found[text.decode("utf-16-le")] = span.format.foreground().color().name()
        block = block.next()
    return found


@settings(max_examples=40)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"])), max_size=8))
def test_streamed_pieces_join_to_the_whole(pieces: list[str]) -> None:
    """Whatever the pieces are, the live document holds all of the text and only that."""
    live, text = LiveText(load_theme("dark"), 400), ""
    for piece in pieces:
        text += piece
        live.update(text)
    assert live.document.toRawText() == text


def test_a_long_streamed_paragraph_looks_the_same_when_it_is_cut(theme: Theme) -> None:
    """The cuts that keep appending cheap move no line."""
    text = "words of a paragraph that has no end " * 400
    live = LiveText(theme, 500)
    for end in range(0, len(text), 100):
        live.update(text[:end])
    live.update(text)
    whole = documents.plain_document(text, theme.font(14), 500)
    assert live.document.blockCount() > len(text) // (2 * LONGEST_LIVE_PARAGRAPH)
    assert text_height(live.document) == text_height(whole)
    assert live.document.toRawText().replace("\u2029", "") == text


def test_code_colours_stand_after_wide_characters(theme: Theme) -> None:
    """An emoji counts twice in Qt: the colours behind it must not slip."""
    document = code_document(Code("python", "x = '🙂🙂'\nfor y in x: pass"), theme, 400)
    colors = _colors(document)
    assert colors["'🙂🙂'"] == CODE_COLORS["dark"].string
    assert colors["for"] == CODE_COLORS["dark"].keyword
    assert document.toPlainText() == "x = '🙂🙂'\nfor y in x: pass"


def test_a_megabyte_of_the_person_is_shortened(theme: Theme, qtbot: QtBot) -> None:
    """A huge message is counted, not laid out, so that it cannot freeze the window."""
    document = bubble_document("x" * 1_000_000, theme, 500, 8000)
    assert document.characterCount() < 8100
    assert document.toPlainText().endswith("… and 992,000 more characters")


def test_a_bubble_is_as_wide_as_its_text(theme: Theme) -> None:
    """A short message makes a small bubble, a long one wraps."""
    short = bubble_document("Hi", theme, 500, 8000)
    long = bubble_document("word " * 200, theme, 500, 8000)
    assert short.textWidth() < 60
    assert 400 < long.textWidth() <= 501
    assert text_height(long) > 2 * text_height(short)


def test_tables_have_lines_of_one_pixel(theme: Theme) -> None:
    """A table is drawn in the theme's line colour."""
    html = "<table><tr><th>a</th></tr><tr><td>1</td></tr></table>"
    document = prose_document(Prose(html), theme, 400, first=True)
    (table,) = (f for f in document.rootFrame().childFrames() if isinstance(f, QTextTable))
    format_ = table.format().toTableFormat()
    assert format_.borderBrush().color().name() == theme.line
    assert format_.border() == 1


def test_inline_code_is_in_the_code_font(theme: Theme) -> None:
    """Code in a sentence has the whole code font, without ligatures."""
    document = prose_document(Prose("<p>a <code>--b</code></p>"), theme, 400, first=True)
    formats = document.begin().textFormats()
    assert formats[-1].format.font().family() == documents.code_font(theme).family()


def test_the_caret_is_behind_the_last_character(theme: Theme) -> None:
    """The caret moves right with the text and down with its lines."""
    live = LiveText(theme, 300)
    start = caret_rect(live.document)
    live.update("some words")
    later = caret_rect(live.document)
    live.update("some words\n\nand more")
    below = caret_rect(live.document)
    assert start.left() < later.left()
    assert later.top() < below.top()
    assert below.bottom() <= text_height(live.document)
