"""What the plots show, kept in the settings: chosen over the plots or in the View menu."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from PySide6.QtCore import QObject
from PySide6.QtGui import QAction

from app.settings.schema import TIMELINE_VIEW, TOKEN_AXIS
from app.settings.store import Settings
from app.telemetry.dock import TelemetryPanel
from app.telemetry.timeline import View


class TimelineChoice(QObject):
    """Lets the panel follow the settings, and the settings the person."""

    def __init__(self, panel: TelemetryPanel, settings: Settings, parent: QObject) -> None:
        super().__init__(parent)
        self._panel, self._settings = panel, settings
        panel.view_chosen.connect(self._keep)
        settings.changed.connect(self._on_setting_changed)
        self._show()

    def handlers(self) -> Mapping[str, Callable[..., Any]]:
        """What the View menu does, by action id."""
        return {
            "view.live": lambda: self._choose("live", self._settings.get(TOKEN_AXIS)),
            "view.answer": lambda: self._choose("answer", self._settings.get(TOKEN_AXIS)),
            "view.session": lambda: self._choose("session", self._settings.get(TOKEN_AXIS)),
            "view.tokens": lambda on: self._settings.set(TOKEN_AXIS, on),
            "view.follow": self._panel.plots.follow,
        }

    def keep_checked(self, action: QAction) -> None:
        """Let a checkable action show whether the axis counts tokens."""
        action.setChecked(self._settings.get(TOKEN_AXIS))
        self._settings.changed.connect(lambda _: action.setChecked(self._settings.get(TOKEN_AXIS)))

    def _choose(self, view: View, by_token: bool) -> None:
        self._panel.show_view(view, by_token=by_token)
        self._keep(view, by_token)

    def _keep(self, view: View, by_token: bool) -> None:
        self._settings.set(TIMELINE_VIEW, view)
        self._settings.set(TOKEN_AXIS, by_token)

    def _on_setting_changed(self, key: str) -> None:
        switch = self._panel.switch
        view, by_token = self._settings.get(TIMELINE_VIEW), self._settings.get(TOKEN_AXIS)
        ours = key in (TIMELINE_VIEW.key, TOKEN_AXIS.key)
        if ours and (switch.view, switch.by_token) != (view, by_token):
            self._show()

    def _show(self) -> None:
        view = cast(View, self._settings.get(TIMELINE_VIEW))
        self._panel.show_view(view, by_token=self._settings.get(TOKEN_AXIS))
