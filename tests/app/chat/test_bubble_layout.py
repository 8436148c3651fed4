"""Geometry of a row: everything in its place, at any width."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QRect

from app.chat.bubble_layout import (
    COLUMN_WIDTH,
    BlockSize,
    CardSize,
    Hit,
    RowGeometry,
    Target,
    Widths,
    answer_geometry,
    bubble_geometry,
    divider_geometry,
    error_geometry,
    notice_geometry,
)

_widths = st.builds(Widths, st.integers(320, 2600), st.sampled_from([0.8, 1.0, 1.5]))
_blocks = st.lists(
    st.builds(BlockSize, st.integers(1, 4000), st.booleans(), st.integers(0, 3)), max_size=6
)
_controls = st.sampled_from([(), ((Target.REGENERATE, 80), (Target.COPY, 60))])


def _row(geometry: RowGeometry) -> QRect:
    column = geometry.column
    return QRect(column.left(), 0, column.width(), geometry.height)


def _places(geometry: RowGeometry) -> list[QRect]:
    """Everything that is drawn side by side, cards instead of what is in them."""
    blocks = [b.card.frame if b.card else b.text for b in geometry.blocks]
    return [*blocks, *(rect for _, rect in geometry.controls)]


def _assert_apart_and_inside(geometry: RowGeometry) -> None:
    for place in _places(geometry):
        assert _row(geometry).contains(place), (place, geometry)
    for one, other in combinations(_places(geometry), 2):
        assert not one.intersects(other), (one, other)


@given(_widths)
def test_the_column_is_centred_and_never_too_wide(widths: Widths) -> None:
    """Text lines stay readable on a wide screen and leave a margin on a narrow one."""
    column = widths.column
    assert column.width() <= COLUMN_WIDTH * max(1.0, widths.scale)
    assert column.left() >= 16
    right_margin = widths.row_width - column.right() - 1
    assert abs(column.left() - right_margin) <= 1


@given(_widths, _blocks, _controls)
def test_an_answer_is_apart_and_inside(
    widths: Widths, blocks: list[BlockSize], controls: tuple[tuple[Target, int], ...]
) -> None:
    """Blocks follow each other without overlap; a card holds its header, code and button."""
    geometry = answer_geometry(widths, blocks, 60, controls)
    _assert_apart_and_inside(geometry)
    for size, block in zip(blocks, geometry.blocks, strict=True):
        assert block.text.height() == size.height
        assert (block.card is not None) == size.is_code
        if block.card:
            assert block.card.frame.contains(block.text)
            assert block.card.header.contains(block.card.copy)
            assert not block.card.header.intersects(block.text)
            assert block.text.width() == widths.code(size.indent)


@given(_widths, st.integers(1, 3000), st.integers(1, 9000))
def test_the_bubble_stands_right_and_leaves_room(
    widths: Widths, text_width: int, height: int
) -> None:
    """The person's words are at the right, over at most four fifths of the column."""
    geometry = bubble_geometry(widths, text_width, height)
    assert geometry.frame is not None
    assert geometry.frame.right() == geometry.column.right()
    assert geometry.frame.width() <= geometry.column.width() * 0.8 + 1
    assert geometry.frame.contains(geometry.blocks[0].text)
    _assert_apart_and_inside(geometry)


@given(
    _widths,
    st.lists(st.integers(14, 200), min_size=1, max_size=3),
    st.lists(st.integers(60, 220), max_size=4),
)
def test_an_error_card_holds_its_sentences_and_buttons(
    widths: Widths, heights: list[int], buttons: list[int]
) -> None:
    """Buttons stand beside the words where there is room, else below, never over them."""
    geometry = error_geometry(widths, heights, buttons)
    assert geometry.frame is not None
    assert [hit for hit, _ in geometry.controls] == [
        Hit(Target.ACTION, number) for number in range(len(buttons))
    ]
    for place in _places(geometry):
        assert geometry.frame.contains(place)
    _assert_apart_and_inside(geometry)


@given(
    _widths,
    _blocks,
    st.lists(st.integers(14, 200), min_size=1, max_size=2),
    st.lists(st.integers(60, 220), max_size=3),
)
def test_a_note_is_a_card_below_the_figures(
    widths: Widths, blocks: list[BlockSize], heights: list[int], buttons: list[int]
) -> None:
    """It holds its words and buttons, and touches neither the answer nor the line of figures."""
    hits = [(Hit(Target.SUGGESTION, number), width) for number, width in enumerate(buttons)]
    controls = ((Target.REGENERATE, 80), (Target.COPY, 60))
    geometry = answer_geometry(widths, blocks, 60, controls, CardSize(heights, hits))
    assert geometry.frame is not None
    assert geometry.stats is not None
    assert geometry.frame.top() > geometry.stats.bottom()
    assert [b.text.height() for b in geometry.blocks[len(blocks) :]] == heights
    inside = [block.text for block in geometry.blocks[len(blocks) :]]
    inside += [rect for hit, rect in geometry.controls if hit.target is Target.SUGGESTION]
    assert all(geometry.frame.contains(place) for place in inside)
    _assert_apart_and_inside(geometry)


def test_one_button_stands_beside_a_wide_card_and_below_a_narrow_one() -> None:
    """The card uses the room at its right."""
    (wide,) = error_geometry(Widths(900), [20, 20], [120]).controls
    (narrow,) = error_geometry(Widths(400), [20, 20], [120]).controls
    assert wide[1].top() < 40
    assert narrow[1].top() > 50


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (lambda g: g.blocks[0].text, Hit(Target.TEXT, 0)),
        (lambda g: g.blocks[1].text, Hit(Target.TEXT, 1)),
        (lambda g: g.blocks[1].card.copy, Hit(Target.COPY_CODE, 1)),
        (lambda g: g.controls[0][1], Hit(Target.REGENERATE)),
        (lambda g: g.controls[1][1], Hit(Target.COPY)),
        (lambda g: QRect(0, 0, 1, 1), None),
    ],
)
def test_a_click_hits_what_lies_there(place: object, expected: Hit | None) -> None:
    """The mouse reads the same places that are painted."""
    sizes = [BlockSize(40), BlockSize(60, is_code=True)]
    controls = ((Target.REGENERATE, 80), (Target.COPY, 60))
    geometry = answer_geometry(Widths(700), sizes, 60, controls)
    assert callable(place)
    assert geometry.hit(place(geometry).center()) == expected


def test_a_notice_is_one_quiet_row() -> None:
    """A notice has its text and nothing to click."""
    geometry = notice_geometry(Widths(700), 16)
    assert geometry.blocks[0].text.height() == 16
    assert not geometry.controls


@given(_widths, st.integers(1, 3000), st.integers(1, 60))
def test_a_divider_reaches_both_ends(widths: Widths, text_width: int, height: int) -> None:
    """Its words stand in the middle, a rule on either side at half their height."""
    geometry = divider_geometry(widths, min(text_width, widths.divider_text), height)
    [words] = geometry.blocks
    before, after = geometry.rules
    assert before.left() == geometry.column.left()
    assert after.right() == geometry.column.right()
    assert abs(before.width() - after.width()) <= 1
    assert before.width() >= 24
    for rule in geometry.rules:
        assert rule.height() == 1
        assert rule.top() == words.text.center().y()
        assert not rule.intersects(words.text)
    _assert_apart_and_inside(geometry)
