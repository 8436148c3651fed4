"""The HTML report: nothing from outside, no text unless asked, any text escaped, sound SVG."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import datetime
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PySide6.QtWidgets import QApplication

from app.export import svg
from app.export.report import MOST_FIGURES, report
from app.export.session_data import RequestData, RequestWords, SessionData, session_data
from app.export.timeline_figure import BINS, thin_to_extremes
from app.telemetry.series import Array
from app.telemetry.step_line import StepLine
from app.telemetry.telemetry_model import TelemetryModel
from engine.events import GenerationFailed
from tests.app.telemetry.story import MS, Clock, Story, loaded

NOW = datetime(2026, 12, 3, 12, 0, 5)
LOADING = {"src", "href", "srcset", "poster", "data", "action", "background", "xlink:href"}
SVG = re.compile(r"<svg .*?</svg>", re.DOTALL)


class Page(HTMLParser):
    """Collects what a page would fetch, its tags and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in LOADING]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


def a_session(words: RequestWords | None = None) -> SessionData:
    """Two answers and a failure."""
    clock = Clock()
    model = TelemetryModel(clock)
    model.handle_events([loaded()])
    first = Story("a", num_tokens=110, late={40: 60.0})
    second = Story("b", t_send_ns=first.end_ns + MS, prompt_tokens=600, cached_tokens=256)
    for story in (first, second):
        story.tell(model, clock)
    model.request_sent("c", second.end_ns + MS)
    model.handle_events([GenerationFailed("c", second.end_ns + 9 * MS, "what", "why", "next")])
    return session_data(model, lambda _: words or RequestWords())


def long_request(count: int, end_s: float) -> RequestData:
    """An answer of `count` tokens with cache and utilization at each."""
    (first, *_) = a_session().requests
    t_s = np.linspace(0.1, end_s, count)
    itl_ms: Array = np.random.default_rng(3).normal(7.0, 1.0, count - 1)
    level = np.linspace(1e6, 9e8, count)
    steps = StepLine(t_s, np.full(count, 8.0), np.full(count, 92.0), np.zeros(count, dtype=bool))
    curves = {"token_s": t_s, "itl_ms": itl_ms, "kv_s": t_s, "kv_used": level}
    return replace(first, end_s=end_s, kv_allocated=level, steps=steps, **curves)


def test_nothing_is_fetched(qapp: QApplication) -> None:
    """Only anchors and data: addresses; no script, no style from elsewhere, no handler."""
    html = report(a_session(RequestWords("https://a.example", "b", "Slow.", "c")), NOW)
    page = Page(html)
    assert page.links
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert not {"script", "iframe", "object", "embed", "img", "base"} & set(page.tags)
    assert page.handlers == []
    style = html[html.index("<style>") : html.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_what_a_reader_finds(qapp: QApplication) -> None:
    """Model, machine, a row and a figure a request, the roofline, the definitions."""
    html = report(a_session(RequestWords(verdict="Slow to start.")), NOW)
    page = Page(html)
    for text in ("SmolLM2-135M-Instruct", "native AVX512-VNNI", "766 GFLOP/s", "Slow to start."):
        assert text in page.text
    assert html.count('id="request-') == 3
    assert "Inter-token latency (ITL)" in page.text
    assert page.tags.count("svg") == 3 + 1
    assert html.count('scope="col"') == 15


def test_text_only_when_asked(qapp: QApplication) -> None:
    """Neither prompt nor answer is in a report that was not given them."""
    assert "<pre>" not in report(a_session(), NOW)
    page = Page(report(a_session(RequestWords("What is it?", "It is this.")), NOW))
    assert "What is it?" in page.text
    assert "It is this." in page.text


def test_figures_are_sound_svg(qapp: QApplication) -> None:
    """Each parses as XML, has a title, and holds no NaN."""
    for drawing in SVG.findall(report(a_session(), NOW)):
        root = ET.fromstring(drawing)
        assert root.find("{http://www.w3.org/2000/svg}title") is not None
        assert "nan" not in drawing.lower()


@settings(max_examples=25, deadline=None)
@given(text=st.text(st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_escaped(qapp: QApplication, text: str) -> None:
    """What a person or a model wrote is text on the page, whatever it looks like."""
    marked = f"<script>{text}</script>"
    words = RequestWords(marked, marked, marked)
    session = a_session()
    requests = tuple(replace(r, words=words) for r in session.requests)
    page = Page(report(replace(session, requests=requests), NOW))
    assert "script" not in page.tags
    assert page.text.count("<script>") == 9 + 3  # in the table too


@given(text=st.text())
def test_any_text_is_sound_xml(text: str) -> None:
    """Control characters and lone surrogates too."""
    ET.fromstring(svg.words(text, 1.0, 2.0))


def test_an_empty_session(qapp: QApplication) -> None:
    """It says so instead of showing an empty table."""
    assert "No request has ended" in Page(report(session_data(TelemetryModel()), NOW)).text


def test_a_long_session_stays_small(qapp: QApplication) -> None:
    """100,000 tokens in 60 requests: below 5 MB, and it says where figures end."""
    session = a_session()
    requests = (long_request(1_700, 12.0),) * (MOST_FIGURES + 10)
    html = report(replace(session, requests=requests), NOW)
    assert len(html.encode()) < 5_000_000
    assert "10 more are in the table only" in html


@pytest.mark.parametrize("count", [1, 2 * BINS, 2 * BINS + 1, 50_000])
def test_thinning_keeps_the_late_token(count: int) -> None:
    """The largest and the least value survive, in order of time, within the bound."""
    y: Array = np.random.default_rng(1).normal(7.0, 0.1, count)
    y[count // 2] = 400.0
    x, thin = thin_to_extremes(np.arange(count, dtype=np.float64), y, BINS)
    assert len(x) <= 2 * BINS
    assert (thin.max(), thin.min()) == (y.max(), y.min())
    assert (np.diff(x) > 0).all()
