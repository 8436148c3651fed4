"""Opens the list of models and its dialogs, and takes what is dropped on the window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QObject, QUrl, Signal
from PySide6.QtWidgets import QWidget

from app import folders
from app.appearance import Appearance
from app.cards import CardAction, CardStack, CardText
from app.command_job import CommandJob
from app.engine_link.controller import EngineController
from app.engine_link.worker import EngineProblem
from app.model_library.download_dialog import DownloadDialog
from app.model_library.downloads import Downloads
from app.model_library.library import Library
from app.model_library.measuring import MeasureProgress, Measuring
from app.model_library.picker import ModelPicker
from app.model_library.quality_dialog import QualityDialog
from app.model_library.quantize_dialog import QuantizeDialog
from app.model_library.quantizing import Quantizing
from app.model_library.speed_recorder import SpeedRecorder
from app.settings.schema import DEVICE, MODEL_FOLDERS, THREADS
from app.settings.store import Settings
from app.theme import Theme
from engine.config import EngineConfig, ModelInfo
from engine.model_library.hub import Hub
from engine.model_library.measured import MeasuredSpeeds
from engine.quantization.plan import Quantized, QuantizeProgress

CARD = "drop"
QUANTIZE_CARD = "quantize"
SUFFIXES = (".gguf", ".safetensors")


class ModelFinding(QObject):
    """Owns what finds and makes models in the background; `close` ends it.

    Attributes:
        library, downloads, quantizing, measuring: what works in the background.
        job: runs one command at a time; others may use it as well.

    Signals:
        config_chosen(EngineConfig): load this.
        path_chosen(str): load what lies there, as it is stored.
        job_changed(str): how far the work in the background is, empty when there is none.
    """

    config_chosen = Signal(object)
    path_chosen = Signal(str)
    job_changed = Signal(str)

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
        self.job = CommandJob(self)
        self.quantizing = Quantizing(self.job, self)
        self.measuring = Measuring(self.job, self)
        self.quantizing.started.connect(lambda: self.job_changed.emit(self.tr("Quantizing")))
        self.quantizing.progressed.connect(self._on_quantizing_progressed)
        self.quantizing.ended.connect(self._on_quantizing_ended)
        self.measuring.progressed.connect(self._on_measuring_progressed)
        self.measuring.ended.connect(lambda _: self.job_changed.emit(""))
        self._quantize: QuantizeDialog | None = None
        self._quality: QualityDialog | None = None
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
            picker.quantize_requested.connect(self.open_quantize)
            picker.finished.connect(self._forget_picker)
            self._picker = picker
        self._picker.show()
        self._picker.activateWindow()
        self._picker.search.setFocus()
        return self._picker

    def open_download(self, hub: Hub | None = None) -> DownloadDialog:
        """Show the download dialog; a download under way is still in it."""
        if self._download is None:
            self._download = DownloadDialog(self.downloads, hub or Hub(), self._window)
            self._download.load_requested.connect(self._on_load_requested)
            self.downloads.ended.connect(self._on_download_ended)
        self._download.show()
        self._download.activateWindow()
        self._download.name.setFocus()
        return self._download

    def open_quantize(self, info: ModelInfo) -> QuantizeDialog:
        """Offer to quantize a model; a job under way is shown in its place."""
        if self._quantize is None:
            self._quantize = QuantizeDialog(
                self._appearance.theme, self.quantizing, self._own_folder(), self._window
            )
            self._quantize.load_requested.connect(self._on_load_requested)
        if not self.quantizing.running:
            self._quantize.show_model(info)
        return self.show_quantize()

    def open_quality(self, info: ModelInfo, config: EngineConfig) -> QualityDialog:
        """Offer to measure a model's weight formats; work under way is shown in its place."""
        if self._quality is None:
            self._quality = QualityDialog(self.measuring, self._window)
        if not self.measuring.running:
            self._quality.show_model(info, config)
        self._quality.show()
        self._quality.activateWindow()
        return self._quality

    def show_job(self) -> None:
        """Show the dialog of the work that is under way."""
        if self.measuring.running and self._quality is not None:
            self._quality.show()
            self._quality.activateWindow()
        elif self.quantizing.running:
            self.show_quantize()

    def show_quantize(self) -> QuantizeDialog:
        """Show how far quantizing is, or what came of it."""
        self._cards.dismiss(QUANTIZE_CARD)
        assert self._quantize is not None, "it was opened for a model before"
        self._quantize.show()
        self._quantize.activateWindow()
        return self._quantize

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

    def ask_before_closing(self, close: Callable[[], object]) -> bool:
        """Say on a card what closing would stop; False when there is nothing."""
        plan = self.quantizing.plan
        if plan is None or not self.quantizing.running:
            return False
        text = CardText(
            self.tr("{0} is still being made.").format(plan.out.name),
            self.tr("Closing the window stops that, and nothing is left of it."),
        )
        stop = CardAction(self.tr("Stop it and close"), close)
        look = CardAction(self.tr("See how far it is"), self.show_quantize)
        self._cards.show_card(QUANTIZE_CARD, "notice", text, [stop, look])
        return True

    def close(self) -> bool:
        """End the threads; False when a download could not be ended in time."""
        self.library.close()
        self.job.close()
        return self.downloads.close()

    # --- private --------------------------------------------------------------------------

    def _on_theme_changed(self, theme: Theme) -> None:
        if self._picker is not None:
            self._picker.set_theme(theme)
        if self._quantize is not None:
            self._quantize.set_theme(theme)

    def _forget_picker(self) -> None:
        self._picker = None

    def _on_load_requested(self, path: str) -> None:
        if self._picker is not None:
            self._picker.reject()
        self.path_chosen.emit(path)

    def _on_download_ended(self, outcome: object) -> None:
        if isinstance(outcome, str) and self._picker is not None:
            self._picker.refresh()

    def _own_folder(self) -> Path:
        """Where models that are made here go: the person's own folder before the program's."""
        own = [Path(each) for each in self._settings.get(MODEL_FOLDERS) if Path(each).is_dir()]
        return own[0] if own else folders.models_folder()

    def _on_quantizing_progressed(self, progress: QuantizeProgress) -> None:
        share = f"{100 * progress.fraction:.0f}"
        self.job_changed.emit(self.tr("Quantizing, {0} %").format(share))

    def _on_measuring_progressed(self, progress: MeasureProgress) -> None:
        share = f"{100 * progress.share:.0f}"
        self.job_changed.emit(self.tr("Measuring quality, {0} %").format(share))

    def _on_quantizing_ended(self, outcome: Quantized | EngineProblem | None) -> None:
        self.job_changed.emit("")
        if isinstance(outcome, Quantized):
            self._list_folder_of(outcome.out)
            if self._picker is not None:
                self._picker.refresh()
        self._cards.dismiss(QUANTIZE_CARD)
        if outcome is not None and self._quantize is not None and self._quantize.isHidden():
            self._tell_quantized(outcome)

    def _list_folder_of(self, out: Path) -> None:
        """Let the list of models find what was made, wherever the person has put it."""
        listed = self._settings.get(MODEL_FOLDERS)
        if not any(out.is_relative_to(each) for each in listed):
            own = folders.models_folder()
            new = own if out.parent == own else out
            self._settings.set(MODEL_FOLDERS, [*listed, str(new)])

    def _tell_quantized(self, outcome: Quantized | EngineProblem) -> None:
        """Nobody looks at the dialog: a card says what came of the job."""
        if isinstance(outcome, EngineProblem):
            text = CardText(outcome.what, outcome.why, outcome.next)
            again = CardAction(self.tr("Open the dialog"), self.show_quantize)
            self._cards.show_card(QUANTIZE_CARD, "error", text, [again])
            return
        path = str(outcome.out)
        text = CardText(self.tr("{0} is ready.").format(outcome.out.name), path)
        load = CardAction(self.tr("Load it"), lambda: self.path_chosen.emit(path))
        details = CardAction(self.tr("Details"), self.show_quantize)
        self._cards.show_card(QUANTIZE_CARD, "notice", text, [load, details])
