"""Markdown to segments: nothing swallowed, nothing dangerous, code apart."""

from __future__ import annotations

import re
import time
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat.markdown import Code, Prose, is_safe_link, parse_answer

_TAG = re.compile(r"</?([a-zA-Z0-9]+)")
_ALLOWED = {"p", "strong", "em", "s", "code", "a", "blockquote", "hr", "br"}
_ALLOWED |= {"ul", "ol", "li", "h1", "h2", "h3", "h4", "h5", "h6"}
_ALLOWED |= {"table", "thead", "tbody", "tr", "th", "td"}


def _html(text: str) -> str:
    (segment,) = parse_answer(text)
    assert isinstance(segment, Prose)
    return segment.html


def _visible(html: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", html))


@pytest.mark.parametrize("text", ["<smirk> waffles!", "a <div>b</div>", "<script>x()</script>"])
def test_html_is_shown_as_text(text: str) -> None:
    """Tags that a model writes are read by the person, not swallowed."""
    assert _visible(_html(text)).strip() == text


@pytest.mark.parametrize(
    "text",
    [r"\( a * b * c \)", r"\[ D_i \]", "$5 and $6", "cost: $5_000_ or $6", r"\(x_1\) and \(x_2\)"],
)
def test_formulas_and_money_stay_as_written(text: str) -> None:
    """TeX brackets keep backslashes and stars; dollars are money."""
    assert _visible(_html(text)).strip() == text


def test_links_stay_only_where_a_browser_opens_them() -> None:
    """An unsafe link keeps its text and loses its target."""
    html = _html("[a](https://x.org) [b](javascript:alert(1)) [c](file:///etc) <mailto:m@x.org>")
    assert re.findall(r'href="([^"]*)"', html) == ["https://x.org", "mailto:m@x.org"]
    assert _visible(html).split() == ["a", "b", "c", "mailto:m@x.org"]
    assert not is_safe_link("http://[broken")


def test_an_image_is_its_alternative_text() -> None:
    """No picture is ever fetched."""
    assert _html("![a <b> & c](https://x.org/p.png)") == "<p>a &lt;b&gt; &amp; c</p>\n"


def test_code_is_cut_out_of_the_prose() -> None:
    """A fence becomes a segment with its language; prose goes on after it."""
    before, code, after = parse_answer("one\n\n```python title=x\nprint(1)\n\n```\ntwo")
    assert (before, after) == (Prose("<p>one</p>\n"), Prose("<p>two</p>\n"))
    assert code == Code("python", "print(1)")


def test_an_open_fence_at_the_end_is_code() -> None:
    """An answer cut off inside of a code block shows the code."""
    assert parse_answer("see:\n```c\nint main(")[-1] == Code("c", "int main(")


def test_code_in_a_list_keeps_the_list_counting() -> None:
    """Code between the items of a list is a card of its own and the numbers go on."""
    segments = parse_answer("1. one\n   ```sh\n   ls\n   ```\n   then\n\n   more\n2. two\n")
    kinds = [(type(segment), segment.indent) for segment in segments]
    assert kinds == [(Prose, 0), (Code, 1), (Prose, 1), (Prose, 0)]
    last = segments[-1]
    assert isinstance(last, Prose)
    assert '<ol start="2">' in last.html


def test_tables_and_strikethrough_are_on() -> None:
    """Models write tables."""
    html = _html("| a | b |\n|---|--:|\n| ~~1~~ | 2 |\n")
    assert "<table>" in html
    assert "<s>1</s>" in html


@pytest.mark.parametrize("loop", ["[", "![", "[a](", r"\(", "*a ", "`", "> ", "<"])
def test_an_endless_repetition_does_not_freeze_the_window(loop: str) -> None:
    """A small model that repeats itself for ever still ends in a row, at once."""
    start = time.process_time()
    segments = parse_answer("a " + loop * 20_000)
    assert time.process_time() - start < 2
    assert segments


@given(st.text(alphabet=st.sampled_from("ab \n`*_~|<>&[]()!#-1.\\$\"'é語🙂:/"), max_size=120))
def test_any_text_gives_known_tags_only(text: str) -> None:
    """Whatever a model writes, the HTML holds no tag and no address that we do not know."""
    for segment in parse_answer(text):
        if isinstance(segment, Prose):
            assert {tag.lower() for tag in _TAG.findall(segment.html)} <= _ALLOWED
            for url in re.findall(r'(?:href|src)="([^"]*)"', segment.html):
                assert is_safe_link(unescape(url))


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_letters_and_digits_are_never_lost(text: str) -> None:
    """Every word of plain text is still there after parsing."""
    plain = "".join(c if c.isalnum() else " " for c in text)
    shown = " ".join(
        _visible(segment.html) if isinstance(segment, Prose) else segment.text
        for segment in parse_answer(plain)
    )
    assert shown.split() == plain.split()
