"""Colours and type: named tokens that palette, style sheets, delegates and plots all read."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from typing import Literal

from PySide6.QtGui import QColor, QFont

from app import resources

ThemeName = Literal["dark", "light"]

# Type sizes in px at 100 %: conversation, controls, plot labels and figures, readings.
CONVERSATION_PX = 14
CONTROL_PX = 13
LABEL_PX = 11
READING_PX = 17

UI_FAMILY = "Inter"
MONO_FAMILY = "JetBrains Mono"

# Which text stands on which background somewhere in the window; each pair is held to a
# contrast of at least MIN_CONTRAST by a test.
MIN_CONTRAST = 4.5
_GROUNDS = ("window", "side", "surface", "raised")
TEXT_PAIRS = (
    *((text, ground) for text in ("text", "muted", "faint") for ground in _GROUNDS),
    ("text", "bubble"),
    ("muted", "bubble"),
    ("on_stop", "stop"),
    ("window", "prefill"),
    ("prefill", "surface"),
    ("decode", "surface"),
    ("kv", "surface"),
)


@dataclass(frozen=True, slots=True)
class Theme:
    """One colour set. The first five tokens carry a meaning that holds in every panel.

    prefill: prefill, compute, TTFT. decode: decode, bandwidth, ITL. kv: KV cache, context.
    device: device utilization. stop: stop and errors (with `on_stop` text on it).
    `scale` multiplies every type size (Ctrl +/-).
    """

    name: ThemeName
    prefill: str
    decode: str
    kv: str
    device: str
    stop: str
    on_stop: str
    window: str
    side: str
    surface: str
    raised: str
    line: str
    text: str
    muted: str
    faint: str
    bubble: str
    scale: float = 1.0

    def color(self, token: str, alpha: float = 1.0) -> QColor:
        """The named token as a QColor with the given opacity (0 to 1)."""
        color = QColor(getattr(self, token))
        color.setAlphaF(alpha)
        return color

    def font(self, px: float, *, bold: bool = False, mono: bool = False) -> QFont:
        """The interface or code font at `px` (scaled), weight 400 or 600, tabular figures."""
        font = QFont(MONO_FAMILY if mono else UI_FAMILY)
        font.setPixelSize(self.px(px))
        font.setWeight(QFont.Weight.DemiBold if bold else QFont.Weight.Normal)
        if not mono:
            font.setFeature(QFont.Tag("tnum"), 1)
        return font

    def px(self, size: float) -> int:
        """A type size or a height that follows it, in px at the present scale."""
        return max(8, round(size * self.scale))


def load_theme(name: ThemeName, scale: float = 1.0) -> Theme:
    """Read a colour set from `resources/themes/`."""
    tokens = tomllib.loads(resources.read_text(f"themes/{name}.toml"))
    return Theme(name=name, scale=scale, **tokens)


def color_tokens(theme: Theme) -> dict[str, str]:
    """All colour tokens by name, for style sheets."""
    return {
        f.name: getattr(theme, f.name) for f in fields(theme) if f.name not in ("name", "scale")
    }


def contrast(first: QColor, second: QColor) -> float:
    """The contrast ratio of two opaque colours, 1 to 21 (WCAG 2.1, relative luminance)."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color: QColor) -> float:
    def linear(channel: float) -> float:
        return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(c) for c in (color.redF(), color.greenF(), color.blueF()))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
