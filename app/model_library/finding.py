"""Opens the list of models and the download dialog, and takes what is dropped on the window."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QObject, QUrl, Signal
from PySide6.QtWidgets import QWidget

from app import folders
from app.appearance import Appearance
from app.cards import CardAction, CardStack, CardText
from app.engine_link.controller import EngineController
from app.model_library.download_dialog import DownloadDialog
from app.model_library.downloads import Downloads
from app.model_library.library import Library
from app.model_library.picker import ModelPicker
from app.model_library.speed_recorder import SpeedRecorder
from app.settings.schema import DEVICE, THREADS
from app.settings.store import Settings
from app.theme import Theme
from engine.config import EngineConfig
from engine.model_library.hub import Hub
from engine.model_library.measured import MeasuredSpeeds

CARD = "drop"
SUFFIXES = (".gguf", ".safetensors")


class ModelFinding(QObject):
    """Owns the background threads of finding models; `close` ends them.

    Attributes:
        library, downloads: what works in the background.

    Signals:
        config_chosen(EngineConfig): load this.
        path_chosen(str): load what lies there, as it is stored.
    """

    config_chosen = Signal(object)
    path_chosen = Signal(str)

    def __init__(
        self,
        window: QWidget,
        appearance: Appearance,
        settings: Settings,
        controller: EngineController,
        cards: CardStack,
    ) -> None:
        super().__init__(window)
        self._window, self._appearance, self._settings = window, appearance, settings
        self._cards = cards
        self.library = Library(controller, self)
        self.downloads = Downloads(self)
        self._speeds = MeasuredSpeeds(folders.speeds_file())
        SpeedRecorder(controller, self._speeds, self)
        self._picker: ModelPicker | None = None
        self._download: DownloadDialog | None = None
        appearance.theme_changed.connect(self._on_theme_changed)

    def open_picker(self) -> ModelPicker:
        """Show the list of models, beside which the window goes on."""
        if self._picker is None:
            base = EngineConfig(
                "", device=self._settings.get(DEVICE), threads=self._settings.get(THREADS)
            )
            theme = self._appearance.theme
            picker = ModelPicker(
                theme, self.library, self._speeds, self._settings, base, self._window
            )
            picker.chosen.connect(self.config_chosen)
            picker.download_requested.connect(self.open_download)
            picker.finished.connect(self._forget_picker)
            self._picker = picker
        self._picker.show()
        self._picker.activateWindow()
        self._picker.search.setFocus()
        return self._picker

    def open_download(self, hub: Hub | None = None) -> DownloadDialog:
        """Show the download dialog; a download under way is still in it."""
        if self._download is None:
            theme = self._appearance.theme
            self._download = DownloadDialog(theme, self.downloads, hub or Hub(), self._window)
            self._download.load_requested.connect(self._on_load_requested)
            self.downloads.ended.connect(self._on_download_ended)
        self._download.show()
        self._download.activateWindow()
        self._download.name.setFocus()
        return self._download

    def take_dropped(self, urls: Sequence[QUrl]) -> None:
        """Load what was dropped, or say in a card why not."""
        self._cards.dismiss(CARD)
        path = Path(urls[0].toLocalFile()) if len(urls) == 1 and urls[0].isLocalFile() else None
        if path and (path.is_dir() or path.suffix.lower() in SUFFIXES):
            self.path_chosen.emit(str(path))
            return
        what = (
            self.tr("{0} is not a model.").format(path.name)
            if path
            else self.tr("One model at a time can be loaded.")
        )
        why = (
            self.tr("A model is a .gguf file, a .safetensors file or a folder of them.")
            if path
            else self.tr("Several things, or something that is not on this machine, were dropped.")
        )
        choose = CardAction(self.tr("Choose a model…"), self.open_picker)
        self._cards.show_card(CARD, "error", CardText(what, why), [choose])

    def close(self) -> bool:
        """End the threads; False when a download could not be ended in time."""
        self.library.close()
        return self.downloads.close()

    # --- private --------------------------------------------------------------------------

    def _on_theme_changed(self, theme: Theme) -> None:
        if self._picker is not None:
            self._picker.set_theme(theme)

    def _forget_picker(self) -> None:
        self._picker = None

    def _on_load_requested(self, path: str) -> None:
        if self._picker is not None:
            self._picker.reject()
        self.path_chosen.emit(path)

    def _on_download_ended(self, outcome: object) -> None:
        if isinstance(outcome, str) and self._picker is not None:
            self._picker.refresh()
