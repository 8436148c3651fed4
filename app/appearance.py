"""Puts a theme on the application: fonts, palette, style sheet and tinted icons."""

from __future__ import annotations

import logging
import re
from typing import Literal

from PySide6.QtCore import QByteArray, QObject, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontDatabase, QGuiApplication, QIcon, QPainter, QPalette, QPixmap
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QApplication

from app import resources
from app.theme import CONTROL_PX, Theme, ThemeName, color_tokens, load_theme

log = logging.getLogger("app.appearance")

ThemeChoice = Literal["system", "light", "dark"]
ICON_SCALES = (1, 2, 3)


class Appearance(QObject):
    """Owns the present theme; follows the desktop while the choice is "system".

    Signals:
        theme_changed(Theme): palette and style sheet are set, widgets take the theme now.
    """

    theme_changed = Signal(object)

    def __init__(
        self, app: QApplication, choice: ThemeChoice = "system", scale: float = 1.0
    ) -> None:
        super().__init__(app)
        self._app = app
        self._choice: ThemeChoice = choice
        self._scale = scale
        register_fonts()
        app.setStyle("Fusion")
        app.setWindowIcon(app_icon())
        self._theme = load_theme(self._wanted(), scale)
        self._apply()
        app.styleHints().colorSchemeChanged.connect(self._on_scheme_changed)

    @property
    def theme(self) -> Theme:
        """The theme in force."""
        return self._theme

    def choose(self, choice: ThemeChoice, scale: float) -> None:
        """Take another colour set or text size."""
        self._choice, self._scale = choice, scale
        self._refresh()

    def _on_scheme_changed(self) -> None:
        self._refresh()

    def _refresh(self) -> None:
        theme = load_theme(self._wanted(), self._scale)
        if theme != self._theme:
            self._theme = theme
            self._apply()
            self.theme_changed.emit(theme)

    def _wanted(self) -> ThemeName:
        if self._choice != "system":
            return self._choice
        dark = QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark
        return "dark" if dark else "light"

    def _apply(self) -> None:
        self._app.setPalette(palette(self._theme))
        self._app.setFont(self._theme.font(CONTROL_PX))
        self._app.setStyleSheet(style_sheet(self._theme))


def theme_choice(text: str) -> ThemeChoice:
    """The choice a setting's text names; anything unknown follows the system."""
    return "light" if text == "light" else "dark" if text == "dark" else "system"


def register_fonts() -> None:
    """Make the bundled fonts known; where one is refused the system's face takes its place."""
    for name in resources.names("fonts", ".otf", ".ttf"):
        if QFontDatabase.addApplicationFontFromData(resources.read_bytes(name)) < 0:
            log.warning("font %s could not be registered", name)


def palette(theme: Theme) -> QPalette:
    """The Qt palette of a theme, for everything the style sheet does not name."""
    role = QPalette.ColorRole
    colors = {
        role.Window: theme.window,
        role.WindowText: theme.text,
        role.Base: theme.surface,
        role.AlternateBase: theme.side,
        role.Text: theme.text,
        role.Button: theme.raised,
        role.ButtonText: theme.text,
        role.BrightText: theme.on_stop,
        role.ToolTipBase: theme.raised,
        role.ToolTipText: theme.text,
        role.PlaceholderText: theme.faint,
        role.Highlight: theme.bubble,
        role.HighlightedText: theme.text,
        role.Link: theme.decode,
        role.LinkVisited: theme.decode,
        role.Mid: theme.line,
        role.Midlight: theme.line,
        role.Light: theme.raised,
        role.Dark: theme.line,
        role.Shadow: theme.line,
    }
    result = QPalette()
    for each, color in colors.items():
        result.setColor(each, QColor(color))
    for each in (role.WindowText, role.Text, role.ButtonText):
        result.setColor(QPalette.ColorGroup.Disabled, each, QColor(theme.faint))
    return result


def style_sheet(theme: Theme) -> str:
    """All of `resources/styles/*.qss` in order, `{{token}}` and `{{px:13}}` filled in.

    Raises KeyError for a token the theme does not have.
    """
    tokens = color_tokens(theme)

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        return f"{theme.px(float(name[3:]))}px" if name.startswith("px:") else tokens[name]

    text = "\n".join(resources.read_text(name) for name in resources.names("styles", ".qss"))
    return re.sub(r"\{\{([\w:.]+)\}\}", fill, text)


def icon(name: str, color: str, size: int = 16) -> QIcon:
    """An icon of `resources/icons/` in one colour, crisp at every usual pixel ratio."""
    svg = resources.read_text(f"icons/{name}.svg").replace("currentColor", color)
    return _render(svg, size)


def app_icon() -> QIcon:
    """The program's own icon."""
    return _render(resources.read_text("icons/app.svg"), 64)


def _render(svg: str, size: int) -> QIcon:
    renderer = QSvgRenderer(QByteArray(svg.encode()))
    result = QIcon()
    for scale in ICON_SCALES:
        pixmap = QPixmap(QSize(size, size) * scale)
        pixmap.fill(Qt.GlobalColor.transparent)
        painter = QPainter(pixmap)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        renderer.render(painter)
        painter.end()
        pixmap.setDevicePixelRatio(scale)
        result.addPixmap(pixmap)
    return result
