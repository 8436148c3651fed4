"""A few lines of SVG: elements as text, with everything that is not markup escaped."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

from app.telemetry.series import Array

# What XML 1.0 cannot hold, not even escaped.
_CODES = (*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF)
_FORBIDDEN = dict.fromkeys(_CODES, "\ufffd")


def text_of(text: str) -> str:
    """`text` so that a reader of XML or HTML sees exactly it, lone surrogates aside."""
    sound = text.encode("utf-8", "replace").decode("utf-8")
    return escape(sound.translate(_FORBIDDEN))


def element(name: str, *children: str, **attributes: str | float) -> str:
    """An element. Children are markup. `class_` is class; an underscore is a hyphen."""
    pairs = ((k.rstrip("_").replace("_", "-"), v) for k, v in attributes.items())
    written = "".join(f" {key}={_value(value)}" for key, value in pairs)
    return f"<{name}{written}>{''.join(children)}</{name}>" if children else f"<{name}{written}/>"


def words(text: str, x: float, y: float, class_: str = "tick", anchor: str = "start") -> str:
    """Text whose base line begins, ends or is centred ("start", "end", "middle") at a point."""
    return element("text", text_of(text), x=x, y=y, class_=class_, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def rect(x: float, y: float, width: float, height: float, class_: str) -> str:
    """A filled rectangle; one without extent is drawn too."""
    return element("rect", x=x, y=y, width=max(0.0, width), height=max(0.0, height), class_=class_)


def curve(x: Array, y: Array, class_: str) -> str:
    """A line through points, shapes [n]; nothing without any."""
    if not len(x):
        return ""
    return element("polyline", points=_points(zip(x, y, strict=True)), class_=class_)


def dots(x: Array, y: Array, class_: str, radius: float = 1.6) -> str:
    """Dots at points, shapes [n], as one path: a stroke of no length with round ends."""
    if not len(x):
        return ""
    path = "".join(f"M{_number(a)} {_number(b)}h0" for a, b in zip(x, y, strict=True))
    return element("path", d=path, class_=f"dots {class_}", stroke_width=2 * radius)


def figure(title: str, description: str, width: float, height: float, *children: str) -> str:
    """A whole drawing that scales with the page and is read aloud by its title."""
    return element(
        "svg",
        element("title", text_of(title)),
        element("desc", text_of(description)),
        *children,
        viewBox=f"0 0 {_number(width)} {_number(height)}",
        role="img",
        xmlns="http://www.w3.org/2000/svg",
    )


def _value(value: str | float) -> str:
    if isinstance(value, str):
        return quoteattr(value)
    return f'"{_number(value)}"'


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
