"""Where everything in a conversation row lies: pure geometry, shared by paint, size and mouse.

A row is laid out in two steps. The widths come first (`Widths`), because text needs a width
before it has a height. Then the heights go into one of the `*_geometry` functions, which return
a `RowGeometry` in coordinates of the row's top left corner, in device-independent pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from PySide6.QtCore import QPoint, QRect

COLUMN_WIDTH = 760
SCROLL_BAR_WIDTH = 10
BUBBLE_SHARE = 0.8
BUBBLE_RADIUS = 12
CARD_RADIUS = 8
INDENT = 24
BUBBLE_PADDING_X = 16
# The room between lines lies below each of them: less of it makes the text look centred.
BUBBLE_PADDING_TOP, BUBBLE_PADDING_BOTTOM = 10, 6
CODE_PADDING = 12
CARD_PADDING, CARD_PADDING_Y = 16, 12
BUTTON_GAP = 8
NOTE_GAP = 8  # above a note on an answer, and above its figures
ROW_GAP = 8  # above and below each row: 16 between two rows
BLOCK_GAP = 12
CONTROL_PADDING = 8
SHORTEST_BESIDE = 400  # px of words that buttons may stand beside; fewer make a ragged column
RULE_GAP, SHORTEST_RULE = 12, 24


class Target(StrEnum):
    """What a place in a row does when it is clicked."""

    TEXT = "text"
    COPY_CODE = "copy code"
    COPY = "copy"
    REGENERATE = "regenerate"
    COMPARE = "compare"
    RACE = "race"
    PIN = "pin"
    ACTION = "action"
    SUGGESTION = "suggestion"
    DETAILS = "details"


@dataclass(frozen=True, slots=True)
class Hit:
    """A target and which of its kind: the block of text or code, the button of a card."""

    target: Target
    number: int = 0


@dataclass(frozen=True, slots=True)
class BlockSize:
    """The text height of a block of an answer, `indent` list levels in; code gets a card."""

    height: int
    is_code: bool = False
    indent: int = 0


@dataclass(frozen=True, slots=True)
class CodeCard:
    """The card around a block of code: its frame, its header line and the Copy button in it."""

    frame: QRect
    header: QRect
    copy: QRect


@dataclass(frozen=True, slots=True)
class PlacedBlock:
    """A block of text in its place, with a card around it when it is code."""

    text: QRect
    card: CodeCard | None = None


@dataclass(frozen=True, slots=True)
class RowGeometry:
    """All places in a row. Rects that a row does not have are None or absent."""

    height: int
    column: QRect
    blocks: tuple[PlacedBlock, ...] = ()
    frame: QRect | None = None  # the bubble, the error card or the card of a note
    stats: QRect | None = None
    controls: tuple[tuple[Hit, QRect], ...] = field(default=())
    rules: tuple[QRect, ...] = ()  # one pixel high, left and right of a divider's words

    def hit(self, position: QPoint) -> Hit | None:
        """What lies at a position of the row."""
        for hit, rect in self.controls:
            if rect.contains(position):
                return hit
        for number, block in enumerate(self.blocks):
            if block.card and block.card.copy.contains(position):
                return Hit(Target.COPY_CODE, number)
            if block.text.contains(position):
                return Hit(Target.TEXT, number)
        return None


@dataclass(frozen=True, slots=True)
class Widths:
    """The widths that a row `row_width` wide gives to its texts; `scale` is that of the type."""

    row_width: int
    scale: float = 1.0

    @property
    def column(self) -> QRect:
        """The centred text column, of no height; its margins shrink in a narrow window."""
        margin = 28 if self.row_width >= 560 else 16
        width = max(1, min(round(COLUMN_WIDTH * max(1.0, self.scale)), self.row_width - 2 * margin))
        return QRect((self.row_width - width) // 2, 0, width, 0)

    @property
    def line(self) -> int:
        """Height of a line of controls: a code header, the figures under an answer."""
        return round(28 * self.scale)

    @property
    def bubble_text(self) -> int:
        """The widest text of the person's bubble."""
        return max(1, int(self.column.width() * BUBBLE_SHARE) - 2 * BUBBLE_PADDING_X)

    def prose(self, indent: int) -> int:
        """The width of prose `indent` list levels in."""
        return max(1, self.column.width() - indent * INDENT)

    def code(self, indent: int) -> int:
        """The width of the code inside of its card."""
        return max(1, self.prose(indent) - 2 * CODE_PADDING)

    @property
    def divider_text(self) -> int:
        """The widest words of a divider, its rules beside them."""
        return max(1, self.column.width() - 2 * (RULE_GAP + SHORTEST_RULE))

    def card_text(self, buttons: Sequence[int]) -> int:
        """The width of a card's sentences beside its `buttons`, or above them when narrow."""
        inner = self.column.width() - 2 * CARD_PADDING
        beside = inner - _buttons_width(buttons) - CARD_PADDING
        return beside if buttons and beside >= SHORTEST_BESIDE else max(1, inner)


def bubble_geometry(widths: Widths, text_width: int, text_height: int) -> RowGeometry:
    """The person's message: a bubble as wide as its text, at the right of the column."""
    column = widths.column
    width = min(text_width, widths.bubble_text) + 2 * BUBBLE_PADDING_X
    height = text_height + BUBBLE_PADDING_TOP + BUBBLE_PADDING_BOTTOM
    frame = QRect(column.right() + 1 - width, ROW_GAP, width, height)
    text = frame.adjusted(
        BUBBLE_PADDING_X, BUBBLE_PADDING_TOP, -BUBBLE_PADDING_X, -BUBBLE_PADDING_BOTTOM
    )
    return RowGeometry(height + 2 * ROW_GAP, column, (PlacedBlock(text),), frame)


@dataclass(frozen=True, slots=True)
class CardSize:
    """Heights of a card's texts and the `gap` between two; its buttons' widths and what they do."""

    heights: Sequence[int]
    buttons: Sequence[tuple[Hit, int]] = ()
    gap: int = 0


def answer_geometry(
    widths: Widths,
    blocks: Sequence[BlockSize],
    code_copy_width: int,
    control_widths: Sequence[tuple[Target, int]],
    note: CardSize | None = None,
) -> RowGeometry:
    """An answer: blocks one below the other and, with `control_widths`, a line beneath.

    The controls stand at the right end of that line, over figures that give way to them. A `note`
    is a card below; its texts are the last blocks.
    """
    column = widths.column
    placed, y = [], ROW_GAP
    for number, size in enumerate(blocks):
        y += BLOCK_GAP if number else 0
        block = _place(widths, size, y, code_copy_width)
        placed.append(block)
        y = (block.card.frame if block.card else block.text).bottom() + 1
    stats: QRect | None = None
    controls: tuple[tuple[Hit, QRect], ...] = ()
    if control_widths:
        line = QRect(column.left(), y + 4, column.width(), widths.line)
        controls = _controls(line, control_widths)
        stats = line
        y = line.bottom() + 1
    frame: QRect | None = None
    if note is not None:
        frame, texts, buttons = _card(widths, y + NOTE_GAP, note)
        placed += texts
        controls += buttons
        y = frame.bottom() + 1
    return RowGeometry(y + ROW_GAP, column, tuple(placed), frame, stats, controls)


def error_geometry(widths: Widths, heights: Sequence[int], buttons: Sequence[int]) -> RowGeometry:
    """An error card: sentences of the given text `heights`, buttons of the given widths."""
    hits = [(Hit(Target.ACTION, number), width) for number, width in enumerate(buttons)]
    frame, placed, controls = _card(widths, ROW_GAP, CardSize(heights, hits))
    height = frame.bottom() + 1 + ROW_GAP
    return RowGeometry(height, widths.column, tuple(placed), frame, None, controls)


def _card(
    widths: Widths, at: int, size: CardSize
) -> tuple[QRect, list[PlacedBlock], tuple[tuple[Hit, QRect], ...]]:
    """Frame, sentences and buttons of a card whose top is `at`.

    The buttons stand at the right where they leave room for the words, else below them.
    """
    column = widths.column
    inner = QRect(column.left() + CARD_PADDING, 0, column.width() - 2 * CARD_PADDING, 0)
    buttons = [width for _, width in size.buttons]
    text_width = widths.card_text(buttons)
    top = y = at + CARD_PADDING_Y
    placed = []
    for number, height in enumerate(size.heights):
        y += size.gap if number else 0
        placed.append(PlacedBlock(QRect(inner.left(), y, text_width, height)))
        y += height
    beside = text_width < inner.width()
    rows = _button_rows(buttons, _buttons_width(buttons) if beside else inner.width())
    tall = max(0, len(rows) * (widths.line + BUTTON_GAP) - BUTTON_GAP)
    if beside:
        left = inner.right() + 1 - _buttons_width(buttons)
        middle = top + max(0, y - top - tall) // 2
        controls = _place_buttons(rows, size.buttons, left, middle, widths)
        y = max(y, top + tall)
    else:
        y += BUTTON_GAP if rows else 0
        controls = _place_buttons(rows, size.buttons, inner.left(), y, widths)
        y += tall
    return QRect(column.left(), at, column.width(), y + CARD_PADDING_Y - at), placed, controls


def notice_geometry(widths: Widths, text_height: int) -> RowGeometry:
    """One quiet line across the column."""
    column = widths.column
    text = QRect(column.left(), ROW_GAP, column.width(), text_height)
    return RowGeometry(text_height + 2 * ROW_GAP, column, (PlacedBlock(text),))


def divider_geometry(widths: Widths, text_width: int, text_height: int) -> RowGeometry:
    """Words in the middle of the column between two rules, which reach its ends."""
    column = widths.column
    left = column.left() + (column.width() - text_width) // 2
    text = QRect(left, ROW_GAP, text_width, text_height)
    before = QRect(column.left(), text.center().y(), column.width(), 1)
    after = QRect(before)
    before.setRight(text.left() - RULE_GAP - 1)
    after.setLeft(text.right() + RULE_GAP + 1)
    return RowGeometry(
        text_height + 2 * ROW_GAP, column, (PlacedBlock(text),), rules=(before, after)
    )


def _place(widths: Widths, size: BlockSize, y: int, copy_width: int) -> PlacedBlock:
    left = widths.column.left() + size.indent * INDENT
    if not size.is_code:
        return PlacedBlock(QRect(left, y, widths.prose(size.indent), size.height))
    header = QRect(left, y, widths.prose(size.indent), widths.line)
    text = QRect(left + CODE_PADDING, header.bottom() + 9, widths.code(size.indent), size.height)
    card = QRect(left, y, header.width(), text.bottom() + 9 - y)
    copy = QRect(header.right() + 1 - copy_width, y, copy_width, header.height())
    return PlacedBlock(text, CodeCard(card, header, copy))


def _controls(
    line: QRect, control_widths: Sequence[tuple[Target, int]]
) -> tuple[tuple[Hit, QRect], ...]:
    placed, right = [], line.right() + 1
    for target, width in reversed(control_widths):
        placed.append((Hit(target), QRect(right - width, line.top(), width, line.height())))
        right -= width
    return tuple(reversed(placed))


def _buttons_width(buttons: Sequence[int]) -> int:
    return sum(buttons) + BUTTON_GAP * max(0, len(buttons) - 1)


def _button_rows(buttons: Sequence[int], width: int) -> list[list[int]]:
    """Numbers of the buttons line by line, broken where the next one does not fit."""
    rows: list[list[int]] = []
    for number in range(len(buttons)):
        if rows and _buttons_width([buttons[n] for n in [*rows[-1], number]]) <= width:
            rows[-1].append(number)
        else:
            rows.append([number])
    return rows


def _place_buttons(
    rows: Sequence[Sequence[int]],
    buttons: Sequence[tuple[Hit, int]],
    left: int,
    top: int,
    widths: Widths,
) -> tuple[tuple[Hit, QRect], ...]:
    placed = []
    for row, numbers in enumerate(rows):
        x, y = left, top + row * (widths.line + BUTTON_GAP)
        for number in numbers:
            hit, width = buttons[number]
            placed.append((hit, QRect(x, y, width, widths.line)))
            x += width + BUTTON_GAP
    return tuple(placed)
