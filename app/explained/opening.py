"""Switches the explanations on and off, by the setting that the View menu changes."""

from __future__ import annotations

from PySide6.QtCore import QLocale, QObject, Signal, SignalInstance
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QWidget

from app.appearance import Appearance
from app.chat.empty_state import EmptyState
from app.explained.anchors import Anchors
from app.explained.overlay import Overlay
from app.explained.texts import Language, say
from app.settings.schema import EXPLAIN, EXPLAIN_LANGUAGE, EXPLAIN_OFFERED
from app.settings.store import Settings
from app.telemetry.telemetry_model import TelemetryModel
from app.theme import Theme


class Explanations(QObject):
    """Owns a window's overlay while that is wanted; nothing listens or is drawn when it is not.

    `events` is a signal of lists of engine events, of the engine or of a player; `model` is what
    the panels of `anchors` show.
    """

    _switched_on = Signal()

    def __init__(
        self,
        window: QWidget,
        appearance: Appearance,
        settings: Settings,
        model: TelemetryModel,
        events: SignalInstance,
        anchors: Anchors,
    ) -> None:
        super().__init__(window)
        self._appearance, self._settings = appearance, settings
        self._model, self._events, self._anchors = model, events, anchors
        self._overlay: Overlay | None = None
        settings.changed.connect(self._on_setting_changed)
        appearance.theme_changed.connect(self._on_theme_changed)
        self._follow_setting()

    @property
    def overlay(self) -> Overlay | None:
        """What is shown, None while it is off."""
        return self._overlay

    def keep_checked(self, action: QAction) -> None:
        """Let a checkable action show whether the explanations are on."""
        action.setChecked(self._settings.get(EXPLAIN))
        self._settings.changed.connect(lambda _: action.setChecked(self._settings.get(EXPLAIN)))

    def offer_in(self, empty_state: EmptyState, sent: SignalInstance) -> None:
        """Offer them in a line of an empty chat, until that is taken or a message is `sent`."""
        if self._settings.get(EXPLAIN_OFFERED) or self._settings.get(EXPLAIN):
            return
        empty_state.set_offer(say("offer", self._language()))
        empty_state.offer_taken.connect(lambda: self._settings.set(EXPLAIN, True))

        def end() -> None:
            sent.disconnect(end)
            self._switched_on.disconnect(end)
            empty_state.set_offer("")
            self._settings.set(EXPLAIN_OFFERED, True)

        sent.connect(end)
        self._switched_on.connect(end)

    def _language(self) -> Language:
        chosen = self._settings.get(EXPLAIN_LANGUAGE)
        if chosen == "system":
            chinese = QLocale.system().language() == QLocale.Language.Chinese
            return "zh" if chinese else "en"
        return "zh" if chosen == "zh" else "en"

    def _on_setting_changed(self, key: str) -> None:
        if key == EXPLAIN.key:
            self._follow_setting()

    def _follow_setting(self) -> None:
        wanted = self._settings.get(EXPLAIN)
        if wanted and self._overlay is None:
            self._overlay = Overlay(
                self._appearance.theme, self._model, self._events, self._anchors, self._language()
            )
            self._overlay.closed.connect(lambda: self._settings.set(EXPLAIN, False))
            self._overlay.language_chosen.connect(
                lambda language: self._settings.set(EXPLAIN_LANGUAGE, language)
            )
            self._switched_on.emit()
        elif not wanted and self._overlay is not None:
            self._overlay.close()
            self._overlay = None

    def _on_theme_changed(self, theme: Theme) -> None:
        if self._overlay is not None:
            self._overlay.set_theme(theme)
