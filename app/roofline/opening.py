"""Opens the roofline beside the window and keeps it in the window's colours."""

from __future__ import annotations

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from app.appearance import Appearance
from app.roofline.dialog import RooflineDialog
from app.telemetry.telemetry_model import TelemetryModel


class RooflineLink(QObject):
    """Owns the one roofline there is, made when it is first asked for."""

    def __init__(self, window: QWidget, appearance: Appearance, model: TelemetryModel) -> None:
        super().__init__(window)
        self._window, self._appearance, self._model = window, appearance, model
        self._dialog: RooflineDialog | None = None

    def open(self) -> RooflineDialog:
        """Show it, beside which the window goes on."""
        if self._dialog is None:
            self._dialog = RooflineDialog(self._appearance.theme, self._model, self._window)
            self._appearance.theme_changed.connect(self._dialog.set_theme)
        self._dialog.show()
        self._dialog.activateWindow()
        return self._dialog
