"""What a row shows, ready to paint: text documents in their places, kept while nothing changes."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication, Qt
from PySide6.QtGui import QFontMetrics, QTextDocument

from app.chat.bubble_layout import (
    CONTROL_PADDING,
    NOTE_GAP,
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
from app.chat.documents import (
    LiveText,
    bubble_document,
    code_document,
    headed_document,
    plain_document,
    prose_document,
    text_height,
)
from app.chat.markdown import Code, parse_answer
from app.chat.stats_line import Item, stats_items
from app.chat.store import AnswerNote, ChatMessage
from app.theme import CONTROL_PX, CONVERSATION_PX, LABEL_PX, Theme

DOCUMENT_CACHE_ROWS = 64
# A longer message of the person is shown shortened: laying out a megabyte takes seconds.
LONGEST_BUBBLE = 8000

translate = QCoreApplication.translate


@dataclass(frozen=True, slots=True)
class RenderKey:
    """What a row's picture depends on."""

    message_id: str
    revision: int
    width: int
    theme: Theme


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A document to draw in a theme colour; `code` is what it shows when it is a code card.

    `on_card`: whether it stands on a card's ground and not on the window's.
    """

    document: QTextDocument
    color: str = "text"
    code: Code | None = None
    indent: int = 0
    on_card: bool = False


@dataclass(frozen=True, slots=True)
class RowContent:
    """Blocks of text, in the order of `geometry.blocks`, and the line of figures."""

    blocks: tuple[TextBlock, ...]
    geometry: RowGeometry
    stats: tuple[Item, ...] = ()
    live: LiveText | None = None


def control_label(target: Target) -> str:
    """The words on a control of a row."""
    if target is Target.REGENERATE:
        return translate("ChatDelegate", "Regenerate")
    if target is Target.COMPARE:
        return translate("ChatDelegate", "Compare with the cache off…")
    if target is Target.RACE:
        return translate("ChatDelegate", "Race…")
    if target is Target.PIN:
        return translate("ChatDelegate", "Pin this run")
    return translate("ChatDelegate", "Copy")


def note_buttons(note: AnswerNote) -> list[tuple[Hit, str]]:
    """The buttons of a note with their words: what it suggests, and the one for its details."""
    buttons = [(Hit(Target.SUGGESTION, n), a.label) for n, a in enumerate(note.actions)]
    if note.details:
        hide, show = translate("ChatDelegate", "Less"), translate("ChatDelegate", "Figures")
        buttons.append((Hit(Target.DETAILS), hide if note.is_open else show))
    return buttons


def copied_label() -> str:
    """What a Copy control says for a moment after it was used."""
    return translate("ChatDelegate", "Copied")


class RowContentCache:
    """Builds the content of rows and keeps the last ones, and the heights of many more.

    A streaming answer has one live document that is appended to; all else is rebuilt when its
    `RenderKey` changes.
    """

    def __init__(self, theme: Theme) -> None:
        self._theme = theme
        self._contents: OrderedDict[str, tuple[RenderKey, RowContent]] = OrderedDict()
        self._heights: dict[str, tuple[RenderKey, int]] = {}

    @property
    def theme(self) -> Theme:
        """The colours and sizes that rows are built with."""
        return self._theme

    def set_theme(self, theme: Theme) -> None:
        """Build everything anew with another theme or type size."""
        self._theme = theme
        self.clear()

    def clear(self) -> None:
        """Forget everything, e.g. because the fonts changed."""
        self._contents.clear()
        self._heights.clear()

    def content(self, message: ChatMessage, width: int) -> RowContent:
        """The content of a row `width` px wide."""
        key = self._key(message, width)
        found_key, found = self._contents.get(message.id, (None, None))
        if found is None or found_key != key:
            live = found.live if found and found_key and found_key.width == width else None
            found = self._build(message, Widths(width, self._theme.scale), live)
            self._contents[message.id] = (key, found)
            self._heights[message.id] = (key, found.geometry.height)
            while len(self._contents) > DOCUMENT_CACHE_ROWS:
                self._contents.popitem(last=False)
        self._contents.move_to_end(message.id)
        return found

    def is_laid_out(self, message: ChatMessage, width: int) -> bool:
        """Whether `height` is the true height of the row as it is now."""
        found = self._heights.get(message.id)
        return found is not None and found[0] == self._key(message, width)

    def height(self, message: ChatMessage, width: int) -> int:
        """The row's height: true, else that before its last change, else a guess by its text."""
        key, height = self._heights.get(message.id, (None, 0))
        if key is not None and key.width == width and key.theme is self._theme:
            return height
        characters_a_line = max(10, Widths(width, self._theme.scale).column.width() // 7)
        text = message.text[:LONGEST_BUBBLE] if message.role == "user" else message.text
        lines = 1 + len(text) // characters_a_line + text.count("\n")
        return round(lines * 22 * self._theme.scale) + 48

    def _key(self, message: ChatMessage, width: int) -> RenderKey:
        return RenderKey(message.id, message.revision, width, self._theme)

    def _build(self, message: ChatMessage, widths: Widths, live: LiveText | None) -> RowContent:
        match message.role:
            case "user":
                return self._bubble(message, widths)
            case "assistant" if message.state == "streaming":
                return self._streaming(message, widths, live)
            case "assistant":
                return self._answer(message, widths)
            case "error":
                return self._error(message, widths)
            case "notice":
                return self._notice(message, widths)
            case "divider":
                return self._divider(message, widths)

    def _bubble(self, message: ChatMessage, widths: Widths) -> RowContent:
        document = bubble_document(message.text, self._theme, widths.bubble_text, LONGEST_BUBBLE)
        width = int(document.textWidth())
        geometry = bubble_geometry(widths, width, text_height(document))
        return RowContent((TextBlock(document),), geometry)

    def _streaming(self, message: ChatMessage, widths: Widths, live: LiveText | None) -> RowContent:
        if message.text:
            live = live or LiveText(self._theme, widths.prose(0))
            live.update(message.text)
            block = TextBlock(live.document)
        else:
            font = self._theme.font(CONVERSATION_PX)
            document = plain_document(message.progress, font, widths.prose(0))
            block = TextBlock(document, "muted")
        size = BlockSize(text_height(block.document))
        return RowContent((block,), answer_geometry(widths, [size], 0, ()), live=live)

    def _answer(self, message: ChatMessage, widths: Widths) -> RowContent:
        blocks: list[TextBlock] = []
        for segment in parse_answer(message.text):
            if isinstance(segment, Code):
                width = widths.code(segment.indent)
                document = code_document(segment, self._theme, width)
                blocks.append(TextBlock(document, code=segment, indent=segment.indent))
            else:
                document = prose_document(
                    segment, self._theme, widths.prose(segment.indent), first=not blocks
                )
                blocks.append(TextBlock(document, indent=segment.indent))
        if not blocks:
            words = translate("ChatDelegate", "No text.")
            font = self._theme.font(CONVERSATION_PX)
            blocks.append(TextBlock(plain_document(words, font, widths.prose(0)), "muted"))
        sizes = [BlockSize(text_height(b.document), b.code is not None, b.indent) for b in blocks]
        controls = [(t, self._control_width(t)) for t in (Target.REGENERATE, Target.COPY)]
        card: CardSize | None = None
        if message.note is not None:
            card, texts = self._note(message.note, widths)
            blocks += texts
        copy_width = self._control_width(Target.COPY_CODE)
        geometry = answer_geometry(widths, sizes, copy_width, controls, card)
        items = tuple(stats_items(message.stats, message.state))
        return RowContent(tuple(blocks), geometry, items)

    def _error(self, message: ChatMessage, widths: Widths) -> RowContent:
        buttons = [self._button_width(action.label) for action in message.actions]
        width = widths.card_text(buttons)
        what = plain_document(message.text, self._theme.font(CONTROL_PX, bold=True), width)
        blocks = [TextBlock(what, on_card=True)]
        for sentence in filter(None, (message.why, message.next_step)):
            document = plain_document(sentence, self._theme.font(CONTROL_PX), width)
            blocks.append(TextBlock(document, "muted", on_card=True))
        heights = [text_height(block.document) for block in blocks]
        return RowContent(tuple(blocks), error_geometry(widths, heights, buttons))

    def _note(self, note: AnswerNote, widths: Widths) -> tuple[CardSize, list[TextBlock]]:
        buttons = [(hit, self._button_width(label)) for hit, label in note_buttons(note)]
        width = widths.card_text([each for _, each in buttons])
        font = self._theme.font(CONTROL_PX)
        headed = headed_document(note.headline, note.text, font, width)
        blocks = [TextBlock(headed, on_card=True)]
        if note.is_open:
            figures = plain_document("\n".join(note.details), self._theme.font(LABEL_PX + 1), width)
            blocks.append(TextBlock(figures, "muted", on_card=True))
        heights = [text_height(block.document) for block in blocks]
        return CardSize(heights, buttons, NOTE_GAP), blocks

    def _notice(self, message: ChatMessage, widths: Widths) -> RowContent:
        font = self._theme.font(LABEL_PX + 1)
        document = plain_document(message.text, font, widths.prose(0))
        geometry = notice_geometry(widths, text_height(document))
        return RowContent((TextBlock(document, "faint"),), geometry)

    def _divider(self, message: ChatMessage, widths: Widths) -> RowContent:
        font = self._theme.font(LABEL_PX + 1)
        document = plain_document(message.text, font, widths.divider_text)
        centred = document.defaultTextOption()
        centred.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        document.setDefaultTextOption(centred)
        document.setTextWidth(math.ceil(document.idealWidth()))
        geometry = divider_geometry(widths, int(document.textWidth()), text_height(document))
        return RowContent((TextBlock(document, "muted"),), geometry)

    def _button_width(self, label: str) -> int:
        return QFontMetrics(self._theme.font(CONTROL_PX)).horizontalAdvance(label) + 24

    def _control_width(self, target: Target) -> int:
        metrics = QFontMetrics(self._theme.font(LABEL_PX + 1))
        labels = [control_label(target)]
        if target is not Target.REGENERATE:
            labels.append(copied_label())
        return max(map(metrics.horizontalAdvance, labels)) + 2 * CONTROL_PADDING
