"""The View menu's choices of theme and text size, kept in the settings."""

from __future__ import annotations

from PySide6.QtCore import QObject
from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QMenu

from app.appearance import Appearance, theme_choice
from app.settings.schema import FONT_SCALE, THEME
from app.settings.store import Settings

SCALE_STEP = 0.1


class ViewChoices(QObject):
    """Changes the settings and lets the appearance follow them."""

    def __init__(self, appearance: Appearance, settings: Settings, parent: QObject) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._settings = settings
        settings.changed.connect(self._on_setting_changed)

    def fill_theme_menu(self, menu: QMenu) -> None:
        """Add the Theme submenu to `menu`."""
        submenu = menu.addMenu(self.tr("&Theme"))
        group = QActionGroup(submenu)
        names = {
            "system": self.tr("Like the system"),
            "light": self.tr("Light"),
            "dark": self.tr("Dark"),
        }
        for choice, name in names.items():
            action = submenu.addAction(name)
            action.setCheckable(True)
            action.setChecked(choice == self._settings.get(THEME))
            group.addAction(action)
            action.triggered.connect(lambda _=False, c=choice: self._settings.set(THEME, c))

    def larger(self) -> None:
        """Enlarge all text by a step."""
        self._scale(self._settings.get(FONT_SCALE) + SCALE_STEP)

    def smaller(self) -> None:
        """Make all text smaller by a step."""
        self._scale(self._settings.get(FONT_SCALE) - SCALE_STEP)

    def reset_text(self) -> None:
        """Give all text its usual size."""
        self._scale(1.0)

    def _scale(self, scale: float) -> None:
        rounded = round(scale, 2)
        if FONT_SCALE.accepts(rounded):
            self._settings.set(FONT_SCALE, rounded)

    def _on_setting_changed(self, key: str) -> None:
        if key in (THEME.key, FONT_SCALE.key):
            choice = theme_choice(self._settings.get(THEME))
            self._appearance.choose(choice, self._settings.get(FONT_SCALE))
