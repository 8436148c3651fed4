"""What the File and Model menus do with files: open, export, record, save a picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QFileDialog, QWidget

from app.cards import CardAction, CardStack, CardText
from app.settings.schema import LAST_MODEL, RECORD, RECORD_FOLDER
from app.settings.store import Settings
from app.telemetry.dock import TelemetryPanel
from app.telemetry.recorder import RecordProblem
from app.telemetry_link import TelemetryLink

CARD = "files"


class FileActions(QObject):
    """Opens file dialogs, none of which holds up the window, and tells the outcome on a card.

    Signals:
        model_chosen(str path)
    """

    model_chosen = Signal(str)

    def __init__(
        self,
        window: QWidget,
        settings: Settings,
        cards: CardStack,
        telemetry: TelemetryLink,
        panel: TelemetryPanel,
    ) -> None:
        super().__init__(window)
        self._window = window
        self._settings = settings
        self._cards = cards
        self._telemetry = telemetry
        self._panel = panel
        telemetry.problem_occurred.connect(self._tell_problem)

    def open_model_file(self) -> None:
        """Let the person choose a model file."""
        kinds = self.tr("Models (*.gguf *.safetensors);;All files (*)")
        dialog = self._dialog(self.tr("Open model file"), QFileDialog.FileMode.ExistingFile)
        dialog.setNameFilter(kinds)
        self._start_where_models_are(dialog)
        self._ask(dialog, self.model_chosen.emit)

    def open_model_folder(self) -> None:
        """Let the person choose a safetensors folder."""
        dialog = self._dialog(self.tr("Open model folder"), QFileDialog.FileMode.Directory)
        self._start_where_models_are(dialog)
        self._ask(dialog, self.model_chosen.emit)

    def export(self) -> None:
        """Let the person choose a folder and write the session's tables into it."""
        title = self.tr("Export session metrics into a folder")
        self._ask(self._dialog(title, QFileDialog.FileMode.Directory), self._export_into)

    def record(self, on: bool) -> None:
        """Switch continuous recording; the first time it asks where."""
        if on and not self._settings.get(RECORD_FOLDER):
            title = self.tr("Record metrics into a folder")
            dialog = self._dialog(title, QFileDialog.FileMode.Directory)
            dialog.rejected.connect(lambda: self._telemetry.recording_changed.emit(False))
            self._ask(dialog, self._record_into)
        else:
            self._settings.set(RECORD, on)

    def save_picture(self) -> None:
        """Let the person choose where the panels' picture goes."""
        dialog = self._dialog(self.tr("Save panels as picture"), QFileDialog.FileMode.AnyFile)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilters([self.tr("Picture (*.png)"), self.tr("Vector drawing (*.svg)")])
        dialog.setDefaultSuffix("png")
        dialog.selectFile("phasescope.png")
        self._ask(dialog, self._save_picture_as)

    # --- private --------------------------------------------------------------------------

    def _export_into(self, folder: str) -> None:
        problem = self._telemetry.export(Path(folder))
        if problem:
            self._tell_problem(problem)
        else:
            text = CardText(self.tr("The session's metrics are exported."), folder)
            self._cards.show_card(CARD, "notice", text)

    def _record_into(self, folder: str) -> None:
        self._settings.set(RECORD_FOLDER, folder)
        self._settings.set(RECORD, True)

    def _save_picture_as(self, file: str) -> None:
        try:
            self._panel.save_picture(Path(file))
        except OSError as error:
            what = self.tr("The picture could not be saved.")
            again = CardAction(self.tr("Save elsewhere…"), self.save_picture)
            self._cards.show_card(CARD, "error", CardText(what, str(error)), [again])

    def _tell_problem(self, problem: RecordProblem) -> None:
        again = CardAction(self.tr("Choose a folder…"), self.export)
        text = CardText(problem.what, problem.why, problem.next)
        self._cards.show_card(CARD, "error", text, [again])

    def _dialog(self, title: str, mode: QFileDialog.FileMode) -> QFileDialog:
        dialog = QFileDialog(self._window, title)
        dialog.setFileMode(mode)
        if mode is QFileDialog.FileMode.Directory:
            dialog.setOption(QFileDialog.Option.ShowDirsOnly)
        return dialog

    def _start_where_models_are(self, dialog: QFileDialog) -> None:
        last = self._settings.get(LAST_MODEL)
        if last:
            dialog.setDirectory(str(Path(last).parent))

    def _ask(self, dialog: QFileDialog, then: Callable[[str], object]) -> None:
        dialog.fileSelected.connect(then)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
