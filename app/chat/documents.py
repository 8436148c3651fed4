"""Text documents of a row: plain, Markdown, code and the one that grows while text streams in."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import cast

from PySide6.QtCore import QCoreApplication, QPoint, QRect, QRectF
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontDatabase,
    QFontMetricsF,
    QTextBlock,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFragment,
    QTextFrameFormat,
    QTextOption,
    QTextTable,
)

from app.chat.highlight import Span, highlight
from app.chat.markdown import Code, Prose
from app.theme import CONTROL_PX, CONVERSATION_PX, MONO_FAMILY, Theme

PROSE_LINE_PERCENT = 130
CODE_LINE_PERCENT = 112
CARET_WIDTH = 7
# A paragraph is laid out as a whole at each append, so a long one is cut at a line end.
LONGEST_LIVE_PARAGRAPH = 400


def code_font(theme: Theme, px: float = CONTROL_PX) -> QFont:
    """The code font, or the system's fixed one where it is missing."""
    font = theme.font(px, mono=True)
    if not QFontDatabase.hasFamily(MONO_FAMILY):
        font.setFamily(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont).family())
    font.setStyleHint(QFont.StyleHint.Monospace)
    font.setFeature(QFont.Tag("calt"), 0)  # "--" must not look like one dash
    return font


def text_height(document: QTextDocument) -> int:
    """Height in whole pixels at the document's width."""
    return math.ceil(document.size().height())


def plain_document(
    text: str, font: QFont, width: int, line_percent: int = PROSE_LINE_PERCENT
) -> QTextDocument:
    """Plain text, wrapped at `width` px, with room between the lines."""
    document = _empty_document(font, width)
    document.setPlainText(text)
    cursor = QTextCursor(document)
    cursor.select(QTextCursor.SelectionType.Document)
    cursor.mergeBlockFormat(_line_format(line_percent))
    return document


def headed_document(headline: str, text: str, font: QFont, width: int) -> QTextDocument:
    """A bold headline that its text follows in the same paragraph, wrapped at `width` px."""
    document = plain_document(f"{headline} {text}".strip(), font, width)
    bold = QTextCharFormat()
    bold.setFontWeight(QFont.Weight.DemiBold)
    cursor = QTextCursor(document)
    cursor.setPosition(len(headline), QTextCursor.MoveMode.KeepAnchor)
    cursor.mergeCharFormat(bold)
    return document


def bubble_document(text: str, theme: Theme, width: int, limit: int) -> QTextDocument:
    """What the person said; beyond `limit` characters the rest is counted instead of laid out."""
    document = plain_document(text[:limit], theme.font(CONVERSATION_PX), width)
    rest = len(text) - limit
    if rest > 0:
        note = QTextCharFormat()
        note.setForeground(theme.color("muted"))
        cursor = QTextCursor(document)
        cursor.movePosition(QTextCursor.MoveOperation.End)
        more = QCoreApplication.translate("Documents", "… and %1 more characters")
        cursor.insertBlock()
        cursor.insertText(more.replace("%1", f"{rest:,}"), note)
    document.setTextWidth(math.ceil(document.idealWidth()) + 1)
    return document


def prose_document(prose: Prose, theme: Theme, width: int, *, first: bool) -> QTextDocument:
    """Rendered Markdown without code cards; the `first` of a row begins without a margin."""
    document = _empty_document(theme.font(CONVERSATION_PX), width)
    document.setDefaultStyleSheet(_prose_style(theme))
    document.setHtml(prose.html.rstrip())
    _set_code_font(document, theme)
    _trim_outer_margins(document, first)
    _style_tables(document, theme)
    return document


def code_document(code: Code, theme: Theme, width: int) -> QTextDocument:
    """A code block in the code font and its colours; long lines wrap, nothing is cut off."""
    document = plain_document(code.text, code_font(theme), width, CODE_LINE_PERCENT)
    cursor = QTextCursor(document)
    cursor.beginEditBlock()
    for start, end, color in _utf16_spans(code.text, highlight(code.language, code.text, theme)):
        cursor.setPosition(start)
        cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
        format_ = QTextCharFormat()
        format_.setForeground(QColor(color))
        cursor.mergeCharFormat(format_)
    cursor.endEditBlock()
    return document


class LiveText:
    """A streaming answer as plain text: each piece is appended, nothing before it is touched.

    `caret` stands after the last character, in the document's px. `dirty_top` is where the last
    piece began to change what is seen: the line it was appended to, for its last word may have
    moved on.
    """

    def __init__(self, theme: Theme, width: int) -> None:
        self.document = plain_document("", theme.font(CONVERSATION_PX), width)
        self.caret = QRect()
        self.dirty_top = 0
        self._consumed = 0

    def update(self, text: str) -> None:
        """Append what `text` has beyond the last call; text only grows while it streams."""
        if len(text) == self._consumed:
            return
        self.dirty_top = self.caret.top()
        cursor = QTextCursor(self.document)
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.insertText(text[self._consumed :])
        self._consumed = len(text)
        self._cut_long_paragraph()
        self.caret = caret_rect(self.document)

    def _cut_long_paragraph(self) -> None:
        block = self.document.lastBlock()
        while block.length() > LONGEST_LIVE_PARAGRAPH:
            self.document.documentLayout().blockBoundingRect(block)  # lays the block out
            layout = block.layout()
            if layout.lineCount() < 3:
                return
            cursor = QTextCursor(self.document)
            last_full_line = layout.lineAt(layout.lineCount() - 2)
            cursor.setPosition(block.position() + last_full_line.textStart())
            cursor.insertBlock()
            block = self.document.lastBlock()


def _empty_document(font: QFont, width: int) -> QTextDocument:
    document = QTextDocument()
    document.setUndoRedoEnabled(False)
    document.setDocumentMargin(0)
    document.setIndentWidth(24)
    document.setDefaultFont(font)
    option = QTextOption()
    option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
    option.setTabStopDistance(4 * QFontMetricsF(font).horizontalAdvance(" "))
    document.setDefaultTextOption(option)
    document.setTextWidth(width)
    return document


def _line_format(percent: int) -> QTextBlockFormat:
    format_ = QTextBlockFormat()
    format_.setLineHeight(percent, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
    return format_


def _prose_style(theme: Theme) -> str:
    """Qt's subset of CSS for the HTML of an answer."""
    body = round(CONVERSATION_PX * theme.scale)
    code = code_font(theme)
    return f"""
    p {{ margin: 0 0 8px 0; line-height: {PROSE_LINE_PERCENT}%; }}
    ul, ol {{ margin: 0 0 8px 0; }}
    li {{ margin: 0 0 4px 0; line-height: {PROSE_LINE_PERCENT}%; }}
    h1 {{ font-size: {round(body * 1.3)}px; }}
    h2 {{ font-size: {round(body * 1.15)}px; }}
    h3, h4, h5, h6 {{ font-size: {body}px; }}
    h1, h2, h3, h4, h5, h6 {{ margin: 12px 0 8px 0; }}
    h1, h2, h3, h4, h5, h6, strong, th {{ font-weight: 600; }}
    a {{ color: {theme.text}; text-decoration: underline; }}
    blockquote {{ margin: 0 0 8px 16px; color: {theme.muted}; }}
    code {{ font-family: "{code.family()}"; font-size: {code.pixelSize()}px;
            background-color: {inline_code_background(theme).name()}; }}
    """


def inline_code_background(theme: Theme) -> QColor:
    """Between the window and the line colour: seen, but quiet."""
    window, line = theme.color("window"), theme.color("line")
    return QColor(
        (window.red() + line.red()) // 2,
        (window.green() + line.green()) // 2,
        (window.blue() + line.blue()) // 2,
    )


def _set_code_font(document: QTextDocument, theme: Theme) -> None:
    """Give inline code the whole code font: a style sheet cannot set font features."""
    font = code_font(theme)
    format_ = QTextCharFormat()
    format_.setFont(font, QTextCharFormat.FontPropertiesInheritanceBehavior.FontPropertiesAll)
    cursor = QTextCursor(document)
    block = document.begin()
    while block.isValid():
        for fragment in _fragments(block):
            if fragment.charFormat().fontFamilies() == [font.family()]:
                cursor.setPosition(fragment.position())
                end = fragment.position() + fragment.length()
                cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
                cursor.mergeCharFormat(format_)
        block = block.next()


def _fragments(block: QTextBlock) -> list[QTextFragment]:
    iterator, fragments = block.begin(), []
    while not iterator.atEnd():
        fragments.append(iterator.fragment())
        iterator += 1
    return fragments


def _trim_outer_margins(document: QTextDocument, first: bool) -> None:
    end = QTextBlockFormat()
    end.setBottomMargin(0)
    QTextCursor(document.lastBlock()).mergeBlockFormat(end)
    if first:
        start = QTextBlockFormat()
        start.setTopMargin(0)
        QTextCursor(document.firstBlock()).mergeBlockFormat(start)


def _style_tables(document: QTextDocument, theme: Theme) -> None:
    for frame in document.rootFrame().childFrames():
        if isinstance(frame, QTextTable):
            format_ = frame.format().toTableFormat()
            format_.setBorder(1)
            format_.setBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
            format_.setBorderBrush(theme.color("line"))
            format_.setBorderCollapse(True)
            format_.setCellSpacing(0)
            format_.setCellPadding(6)
            format_.setTopMargin(4)
            format_.setBottomMargin(8)
            frame.setFormat(format_)


def _utf16_spans(text: str, spans: list[Span]) -> list[tuple[int, int, str]]:
    """Spans as start and end in Qt's UTF-16 units: characters beyond U+FFFF count twice."""
    wide = [i for i, character in enumerate(text) if character > "\uffff"]
    return [
        (
            span.start + bisect_left(wide, span.start),
            (end := span.start + span.length) + bisect_left(wide, end),
            span.color,
        )
        for span in spans
    ]


def caret_rect(document: QTextDocument) -> QRect:
    """The caret block after the last character, in the document's coordinates."""
    block = document.lastBlock()
    origin = document.documentLayout().blockBoundingRect(block).topLeft()
    layout = block.layout()
    last = block.length() - 1
    line = layout.lineForTextPosition(last)
    metrics = QFontMetricsF(document.defaultFont())
    if not line.isValid():
        return QRect(origin.toPoint(), QPoint(CARET_WIDTH, round(metrics.height())))
    # The binding returns the text position beside the coordinate.
    left = cast(tuple[float, int], line.cursorToX(last))[0] + 2
    top = line.y() + line.ascent() - metrics.ascent()
    return QRectF(origin.x() + left, origin.y() + top, CARET_WIDTH, metrics.height()).toRect()
