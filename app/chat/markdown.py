"""Markdown of an answer, cut into prose (HTML for a text document) and code.

Raw HTML is shown as text, an image as its alternative text, and only links that a browser or a
mail program opens stay links. Formulas in TeX brackets are left as they were written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode
from markdown_it.utils import EnvType, OptionsDict

LINK_SCHEMES = ("http", "https", "mailto")
# A model that repeats one bracket for ever: parsing takes the square of their number.
MOST_BRACKETS = 4000
_FORMULA_ENDS = {r"\(": r"\)", r"\[": r"\]"}
_CODE_NODES = ("fence", "code_block")


@dataclass(frozen=True, slots=True)
class Prose:
    """A run of paragraphs, lists and tables as HTML, `indent` list levels deep."""

    html: str
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Code:
    """A fenced or indented block: the language as written (may be empty) and the text."""

    language: str
    text: str
    indent: int = 0


Segment = Prose | Code


def parse_answer(text: str) -> tuple[Segment, ...]:
    """Cut Markdown into segments in reading order. A fence that is still open is code.

    Text of more than `MOST_BRACKETS` opening brackets is kept as it is.
    """
    if text.count("[") + text.count(r"\(") > MOST_BRACKETS:
        return (Prose("<p>" + escapeHtml(text).replace("\n", "<br>") + "</p>"),)
    env: EnvType = {}
    root = SyntaxTreeNode(_MARKDOWN.parse(text, env))
    return tuple(_merge(_segments(root.children, 0)))


def is_safe_link(url: str) -> bool:
    """Whether a link may be opened: http, https or mailto."""
    try:
        return urlsplit(url).scheme.lower() in LINK_SCHEMES
    except ValueError:  # e.g. a malformed IPv6 host
        return False


class _Renderer(RendererHTML):
    """Standard HTML, except images and links."""

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        children = tokens[idx].children or []
        return escapeHtml(self.renderInlineAsText(children, options, env))

    def link_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        token = tokens[idx]
        if not is_safe_link(str(token.attrGet("href") or "")):
            token.attrs.clear()
        return self.renderToken(tokens, idx, options, env)


def _formula(state: StateInline, silent: bool) -> bool:
    opening = state.src[state.pos : state.pos + 2]
    closing = _FORMULA_ENDS.get(opening)
    if closing is None:
        return False
    end = state.src.find(closing, state.pos + 2, state.posMax)
    if end < 0:
        return False
    end += len(closing)
    if not silent:
        state.push("text", "", 0).content = state.src[state.pos : end]
    state.pos = end
    return True


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 60}, renderer_cls=_Renderer)
    parser.enable(["table", "strikethrough"])
    parser.inline.ruler.before("escape", "formula", _formula)
    # Every link is parsed, so that an unsafe one still shows its text; the renderer unlinks it.
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    return parser


_MARKDOWN = _parser()


def _segments(nodes: Iterable[SyntaxTreeNode], indent: int) -> Iterable[Segment]:
    for node in nodes:
        if node.type in _CODE_NODES:
            yield Code(node.info.strip().split(" ")[0], node.content.rstrip("\n"), indent)
        elif not _holds_code(node):
            html = _html([node])
            # A tight list's paragraph carries no tag of its own.
            yield Prose(f"<p>{html}</p>\n" if node.hidden else html, indent)
        elif node.type in ("bullet_list", "ordered_list"):
            yield from _list_segments(node, indent)
        else:
            yield from _segments(node.children, indent + 1)


def _list_segments(node: SyntaxTreeNode, indent: int) -> Iterable[Segment]:
    """A list with code in it: each item starts a list of its own that goes on counting."""
    first = int(node.attrs.get("start", 1))
    for number, item in enumerate(node.children, first):
        children = item.children
        cut = next((i for i, child in enumerate(children) if _holds_code(child)), len(children))
        tag, start = ("ol", f' start="{number}"') if node.type == "ordered_list" else ("ul", "")
        yield Prose(f"<{tag}{start}><li>{_html(children[:cut])}</li></{tag}>\n", indent)
        yield from _segments(children[cut:], indent + 1)


def _holds_code(node: SyntaxTreeNode) -> bool:
    return node.type in _CODE_NODES or any(_holds_code(child) for child in node.children)


def _html(nodes: Sequence[SyntaxTreeNode]) -> str:
    tokens = [token for node in nodes for token in node.to_tokens()]
    return str(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))


def _merge(segments: Iterable[Segment]) -> Iterable[Segment]:
    pending: Prose | None = None
    for segment in segments:
        if isinstance(segment, Code):
            if pending:
                yield pending
            pending = None
            yield segment
        elif pending and pending.indent == segment.indent:
            pending = Prose(pending.html + segment.html, segment.indent)
        else:
            if pending:
                yield pending
            pending = segment
    if pending:
        yield pending
