"""Syntax colours of code cards, in hues that carry no meaning elsewhere in the window."""

from __future__ import annotations

from dataclasses import dataclass

from pygments.lexers import get_lexer_by_name
from pygments.lexers.special import TextLexer
from pygments.token import Comment, Keyword, Literal, Name, Operator, String, _TokenType
from pygments.util import ClassNotFound

from app.theme import Theme, ThemeName

# Beyond this the colours are not worth the wait; the text is shown plain.
LONGEST_HIGHLIGHTED = 30_000


@dataclass(frozen=True, slots=True)
class CodeColors:
    """One colour per kind of word; comments and plain code take the theme's own greys."""

    keyword: str
    string: str
    number: str


CODE_COLORS: dict[ThemeName, CodeColors] = {
    "dark": CodeColors(keyword="#ee9bd8", string="#bdcf72", number="#62ccd6"),
    "light": CodeColors(keyword="#9c2377", string="#55640a", number="#0b6873"),
}


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of code in one colour: characters from `start`, `length` long."""

    start: int
    length: int
    color: str


def highlight(language: str, text: str, theme: Theme) -> list[Span]:
    """Coloured spans of `text`; none for a language that is not known or a very long text."""
    if len(text) > LONGEST_HIGHLIGHTED:
        return []
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False) if language else None
    except ClassNotFound:
        lexer = None
    if lexer is None or isinstance(lexer, TextLexer):
        return []
    spans = []
    for start, kind, value in lexer.get_tokens_unprocessed(text):
        color = _color(kind, theme)
        if color:
            spans.append(Span(start, len(value), color))
    return spans


def _color(kind: _TokenType, theme: Theme) -> str | None:
    colors = CODE_COLORS[theme.name]
    if _is(kind, Comment):
        return theme.faint
    if _is(kind, Keyword, Operator.Word, Name.Tag):
        return colors.keyword
    if _is(kind, String):
        return colors.string
    if _is(kind, Literal, Name.Builtin, Name.Decorator):
        return colors.number
    return None


def _is(kind: _TokenType, *parents: _TokenType) -> bool:
    return any(kind[: len(parent)] == parent for parent in parents)
