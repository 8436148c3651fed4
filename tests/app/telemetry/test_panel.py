"""Readings, ribbon, badge, header, panel and strip say the right things and fit their room."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QColor, QHelpEvent, QImage
from PySide6.QtWidgets import QPushButton, QToolTip, QWidget
from pytestqt.qtbot import QtBot

from app.telemetry.dock import MINIMUM_WIDTH, TelemetryPanel
from app.telemetry.labels import ThemedLabel
from app.telemetry.phase_badge import BadgePhase, PhaseBadge
from app.telemetry.pixel_items import PREFILL_SHADE
from app.telemetry.readings import ReadingCard, ReadingCards, ReadingKey, reading
from app.telemetry.ribbon import PhaseRibbon
from app.telemetry.strip import STRIP_HEIGHT, TelemetryStrip
from app.telemetry.telemetry_model import TelemetryModel
from app.theme import Theme, ThemeName, load_theme
from tests.app.telemetry.story import MS, Clock, Story, loaded

# The offscreen platform says so of every window that is shown.
pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")


def texts(model: TelemetryModel) -> dict[str, str]:
    """All readings as one would read them."""
    keys: tuple[ReadingKey, ...] = get_args(ReadingKey)
    return {reading(k, model).title: reading(k, model).quantity.text for k in keys}


def test_readings_without_an_answer_are_dashes(model: TelemetryModel) -> None:
    """A blank reading is an en dash with its unit, never 0 or nan."""
    assert texts(model) == {
        "TTFT": "– ms",
        "Decode": "– tok/s",
        "ITL p50 / p95": "– ms",
        "Prefill": "– tok/s",
        "KV cache": "– MB",
    }


def test_readings_during_prefill(model: TelemetryModel, clock: Clock) -> None:
    """The wait counts up and says so; the pace of the prefill is known already."""
    story = Story(prompt_tokens=3_120, prefill_tok_s=396)
    model.handle_events([loaded()])
    story.tell(model, clock, story.t_send_ns + 3_100 * MS)
    assert texts(model) == {
        "TTFT, running": "3.10 s",
        "Decode": "– tok/s",
        "ITL p50 / p95": "– ms",
        "Prefill": "396 tok/s",
        "KV cache": "26.5 MB",
    }


def test_readings_of_a_finished_answer_define_themselves(
    model: TelemetryModel, clock: Clock
) -> None:
    """Each figure has its definition as a tooltip, TTFT's with the value, ITL's with painting."""
    model.handle_events([loaded()])
    story = Story(num_tokens=110)
    story.tell(model, clock)
    model.request_painted("r1", 109, story.end_ns + 12 * MS)
    assert texts(model)["TTFT"] == "125 ms"
    assert reading("ttft", model).tooltip == (
        "Time to first token: from Send to the first token, 125 ms"
    )
    assert "(p95)" in reading("itl", model).tooltip
    assert "94.7 MB reserved" in reading("kv", model).tooltip
    for key in get_args(ReadingKey):
        assert "%" not in reading(key, model).tooltip.replace("95 %", "")


def test_prefill_tells_what_the_cache_had(model: TelemetryModel, clock: Clock) -> None:
    """The pace counts computed tokens only; the tooltip says how many were not."""
    Story(prompt_tokens=3_120, cached_tokens=1_024).tell(model, clock)
    tooltip = reading("prefill", model).tooltip
    assert tooltip.endswith(". Of this prompt's 3,120 tokens the cache had 1,024")


@pytest.mark.parametrize(("width", "columns"), [(484, 4), (332, 2)])
def test_cards_fold_before_they_clip(
    qtbot: QtBot, model: TelemetryModel, clock: Clock, theme: Theme, width: int, columns: int
) -> None:
    """In the dock's usual width one row, at its narrowest two by two; every card has its room."""
    cards = ReadingCards(theme, model)
    qtbot.addWidget(cards)
    model.handle_events([loaded()])
    Story(num_tokens=110).tell(model, clock)
    model.changed.emit()
    cards.resize(width, cards.sizeHint().height())
    cards.show()
    shown = cards.findChildren(ReadingCard)
    qtbot.waitUntil(lambda: len({card.y() for card in shown}) == 4 // columns)
    for card in shown:
        assert card.width() >= card.sizeHint().width()
        assert cards.rect().contains(card.geometry())


def test_cards_are_readable_without_sight(
    qtbot: QtBot, model: TelemetryModel, clock: Clock, theme: Theme
) -> None:
    """A screen reader hears name and value, and the tooltip is the definition."""
    cards = ReadingCards(theme, model)
    qtbot.addWidget(cards)
    cards.show()
    Story(num_tokens=110).tell(model, clock)
    cards.refresh()
    first = cards.findChildren(ReadingCard)[0]
    assert first.accessibleName() == "TTFT: 125 ms"
    assert first.toolTip().startswith("Time to first token")


def test_ribbon_shows_the_phases_in_their_time(
    qtbot: QtBot, model: TelemetryModel, clock: Clock, theme: Theme
) -> None:
    """Waiting, prefill and decode follow one another without a hole, from Send to the end."""
    ribbon = PhaseRibbon(theme, model, aligned=False)
    qtbot.addWidget(ribbon)
    story = Story(num_tokens=60, queue_ms=60)
    story.tell(model, clock)
    (lane,) = ribbon.lanes()
    assert [s.kind for s in lane] == ["queue", "prefill", "decode"]
    assert lane[0].start == 0
    assert lane[0].end == pytest.approx(0.06)
    assert [s.end for s in lane[:2]] == [s.start for s in lane[1:]]
    assert lane[-1].end == pytest.approx((story.end_ns - story.t_send_ns) / 1e9)


def test_ribbon_has_a_lane_for_each_chat(
    qtbot: QtBot, model: TelemetryModel, clock: Clock, theme: Theme
) -> None:
    """A chat that runs beside the selected one has a lane on the same time axis."""
    ribbon = PhaseRibbon(theme, model, aligned=False)
    qtbot.addWidget(ribbon)
    one = ribbon.sizeHint().height()
    first = Story("a", num_tokens=200)
    first.tell(model, clock)
    Story("b", t_send_ns=first.t_send_ns + 300 * MS, num_tokens=50).tell(model, clock)
    assert len(ribbon.lanes()) == 2
    assert ribbon.lanes()[1][0].start == pytest.approx(-0.3)
    assert ribbon.sizeHint().height() > one


def test_ribbon_names_what_is_under_the_mouse(
    qtbot: QtBot, model: TelemetryModel, clock: Clock, theme: Theme
) -> None:
    """Colour is not alone: the tooltip names the phase and its duration."""
    ribbon = PhaseRibbon(theme, model, aligned=False)
    qtbot.addWidget(ribbon)
    ribbon.resize(400, 9)
    ribbon.show()
    Story(num_tokens=110).tell(model, clock)
    where = QPoint(10, 4)
    ribbon.event(QHelpEvent(QHelpEvent.Type.ToolTip, where, ribbon.mapToGlobal(where)))
    assert QToolTip.text() == "Prefill, the prompt is read: 125 ms, in 2 chunks"
    QToolTip.hideText()


def test_ribbon_keeps_to_the_plots_axis(
    qtbot: QtBot, model: TelemetryModel, clock: Clock, theme: Theme
) -> None:
    """The ribbon's end of the prefill stands over the TTFT line of the plots."""
    panel = TelemetryPanel(theme, model)
    qtbot.addWidget(panel)
    panel.resize(512, 760)
    panel.show()
    model.handle_events([loaded()])
    Story(num_tokens=110).tell(model, clock)
    panel.plots.redraw()
    first_s = panel.ribbon.lanes()[0][1].start
    area = panel.plots.itl.area
    scene = area.view_box.mapViewToScene(panel.plots.itl.area.view_box.viewRect().topLeft())
    left_of_plot = area.mapTo(panel, area.mapFromScene(scene)).x()
    view = area.view_box
    ttft_x = left_of_plot + first_s / panel.plots.time_range[1] * view.width()
    ribbon_x = panel.ribbon.x() + panel.ribbon._x(first_s)
    assert ribbon_x == pytest.approx(ttft_x, abs=2.0)


@pytest.mark.parametrize("phase", get_args(BadgePhase))
def test_badge_says_each_phase_in_the_same_width(
    qtbot: QtBot, theme: Theme, phase: BadgePhase
) -> None:
    """A word, not only a colour; the toolbar does not move when the phase changes."""
    badge = PhaseBadge(theme)
    qtbot.addWidget(badge)
    width = badge.sizeHint().width()
    badge.set_phase(phase)
    assert badge.accessibleName().lower() == phase
    assert badge.sizeHint().width() == width


def _luminance(color: QColor) -> float:
    def linear(c: float) -> float:
        return c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4

    r, g, b = (linear(c) for c in (color.redF(), color.greenF(), color.blueF()))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def _contrast(text: QColor, background: QColor) -> float:
    """WCAG 2 contrast ratio."""
    light, dark = sorted((_luminance(text), _luminance(background)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _over(top: QColor, bottom: QColor) -> QColor:
    a = top.alphaF()
    mixed = [
        a * t + (1 - a) * b for t, b in zip(top.getRgbF()[:3], bottom.getRgbF()[:3], strict=True)
    ]
    return QColor.fromRgbF(*mixed)


@pytest.mark.parametrize("name", get_args(ThemeName))
def test_every_text_has_contrast(qtbot: QtBot, name: ThemeName) -> None:
    """Each text of the panels on what lies behind it: 4.5 or more in both themes."""
    theme = load_theme(name)
    surface, raised = theme.color("surface"), theme.color("raised")
    shade = _over(theme.color("prefill", PREFILL_SHADE), surface)
    pairs = [
        (theme.color("text"), surface),
        (theme.color("muted"), surface),
        (theme.color("faint"), surface),
        (theme.color("text"), raised),
        (theme.color("muted"), raised),
        (theme.color("text"), shade),
        (theme.color("muted"), shade),
        (theme.color("surface"), theme.color("prefill")),
    ]
    badge = PhaseBadge(theme)
    qtbot.addWidget(badge)
    for phase in get_args(BadgePhase):
        text, fill = badge.colors(phase)
        pairs.append((text, fill))
    for text, background in pairs:
        ratio = _contrast(text, background)
        assert ratio >= 4.5, (text.name(), background.name(), round(ratio, 2))


@pytest.mark.parametrize("width", [MINIMUM_WIDTH, 512])
@pytest.mark.parametrize("scale", [1.0, 1.25])
def test_labels_of_the_panel_are_whole_and_apart(
    qtbot: QtBot, model: TelemetryModel, clock: Clock, width: int, scale: float
) -> None:
    """At the dock's narrowest and usual width no title, subtitle or legend is cut or covered."""
    panel = TelemetryPanel(load_theme("dark", scale), model)
    qtbot.addWidget(panel)
    panel.resize(round(width * scale), 760)
    panel.show()
    model.handle_events([loaded()])
    Story(num_tokens=110).tell(model, clock)
    panel.plots.redraw()
    panel.block_map.refresh()
    titles = {"Inter-token latency", "KV cache", "Utilization", "Cache blocks"}
    titles |= {"token", "reserved", "process CPU", "cached", "free"}

    def whole_and_apart() -> None:
        labels = [x for x in panel.findChildren(ThemedLabel) if x.isVisible() and x.text()]
        assert titles <= {label.text() for label in labels}
        boxes = [label.rect().translated(label.mapTo(panel, QPoint())) for label in labels]
        assert all(panel.rect().contains(box) for box in boxes)
        for i, (label, box) in enumerate(zip(labels, boxes, strict=True)):
            assert label.width() >= label.sizeHint().width(), label.text()
            assert not any(box.intersects(other) for other in boxes[i + 1 :])

    qtbot.waitUntil(whole_and_apart)


def test_map_gives_way_where_the_panel_is_low(
    qtbot: QtBot, model: TelemetryModel, theme: Theme
) -> None:
    """The plots keep their height; the map comes back with the room, unless it is not wanted."""
    panel = TelemetryPanel(theme, model)
    qtbot.addWidget(panel)
    panel.resize(512, 760)
    panel.show()
    model.handle_events([loaded()])
    panel.block_map.refresh()
    qtbot.waitUntil(panel.block_map.isVisible)
    panel.resize(512, 440)
    qtbot.waitUntil(lambda: not panel.block_map.isVisible())
    assert panel.height() == 440
    panel.resize(512, 760)
    qtbot.waitUntil(panel.block_map.isVisible)
    panel.want_map(False)
    panel.resize(512, 780)
    assert not panel.block_map.isVisible()


def test_save_picture_is_twice_the_size(
    qtbot: QtBot, model: TelemetryModel, clock: Clock, theme: Theme, tmp_path: Path
) -> None:
    """A panel that was never shown is still drawn whole, at 2x, with its curves."""
    panel = TelemetryPanel(theme, model)
    qtbot.addWidget(panel)
    model.handle_events([loaded()])
    Story(num_tokens=110).tell(model, clock)
    panel.save_picture(tmp_path / "panels.png")
    image = QImage(str(tmp_path / "panels.png"))
    assert image.size() == panel.size() * 2
    image.convertTo(QImage.Format.Format_RGB32)
    pixels = np.frombuffer(image.constBits(), np.uint32) & 0xFFFFFF
    colors = {f"#{pixel:06x}" for pixel in np.unique(pixels)}
    assert {theme.decode, theme.prefill, theme.surface} <= colors


def test_save_picture_says_when_it_cannot(
    qtbot: QtBot, model: TelemetryModel, theme: Theme, tmp_path: Path
) -> None:
    """A folder that does not exist is an OSError that names the file."""
    panel = TelemetryPanel(theme, model)
    qtbot.addWidget(panel)
    with pytest.raises(OSError, match=r"no-such.*panels\.png"):
        panel.save_picture(tmp_path / "no-such" / "panels.png")


def test_strip_fits_a_narrow_window_and_leads_to_the_panels(
    qtbot: QtBot, model: TelemetryModel, clock: Clock, theme: Theme
) -> None:
    """64 px high, nothing covered at 900 px, and its button asks for the panels."""
    strip = TelemetryStrip(theme, model)
    qtbot.addWidget(strip)
    strip.resize(900, STRIP_HEIGHT)
    strip.show()
    model.handle_events([loaded()])
    Story(num_tokens=110).tell(model, clock)
    assert strip.height() == STRIP_HEIGHT
    parts: list[QWidget] = [strip.ribbon, *strip.findChildren(ReadingCard)]
    button = strip.findChild(QPushButton)
    assert isinstance(button, QPushButton)
    parts.append(button)
    boxes = [w.rect().translated(w.mapTo(strip, QPoint())) for w in parts]
    for i, box in enumerate(boxes):
        assert strip.rect().contains(box)
        assert not any(box.intersects(other) for other in boxes[i + 1 :])
    with qtbot.waitSignal(strip.panels_requested):
        qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def test_strip_puts_the_phase_into_words(
    qtbot: QtBot, model: TelemetryModel, clock: Clock, theme: Theme
) -> None:
    """Under the strip's ribbon stands what it is doing and for how long."""
    strip = TelemetryStrip(theme, model)
    qtbot.addWidget(strip)
    assert strip.ribbon._words_under() == ""
    story = Story(prompt_tokens=3_120, prefill_tok_s=396)
    story.tell(model, clock, story.t_send_ns + 3_100 * MS)
    assert strip.ribbon._words_under() == "prefill, 3.10 s"


def test_panels_change_theme_together(
    qtbot: QtBot, model: TelemetryModel, clock: Clock, theme: Theme
) -> None:
    """Dark to light leaves nothing dark behind."""
    panel = TelemetryPanel(theme, model)
    qtbot.addWidget(panel)
    panel.resize(512, 760)
    panel.show()
    light = load_theme("light")
    panel.set_theme(light)
    image = panel.grab().toImage()
    for x in range(0, image.width(), 40):
        for y in range(0, image.height(), 12):
            pixel = image.pixelColor(x, y)
            assert pixel.name() not in (theme.surface, theme.raised, theme.window)
