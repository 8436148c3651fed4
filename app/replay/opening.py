"""What the File menu does with recordings of sessions."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QCheckBox, QFileDialog, QMessageBox, QWidget

from app import resources
from app.appearance import Appearance
from app.cards import CardAction, CardStack, CardText
from app.replay.recording import SUFFIX, RecordingError, read_recording
from app.replay.session_recorder import SessionRecorder
from app.replay.window import ReplayWindow

CARD = "recording"
EXAMPLE = f"recordings/first-answer.{SUFFIX}"


class ReplayLink(QObject):
    """Saves this session's recording and opens others; tells on a card how it went."""

    def __init__(
        self,
        window: QWidget,
        appearance: Appearance,
        cards: CardStack,
        session: SessionRecorder,
    ) -> None:
        super().__init__(window)
        self._window, self._appearance = window, appearance
        self._cards, self._session = cards, session

    def open(self) -> None:
        """Let the person choose a recording and play it in a window of its own."""
        dialog = self._dialog(self.tr("Open recording"), QFileDialog.FileMode.ExistingFile)
        dialog.fileSelected.connect(lambda file: self.play(Path(file)))
        dialog.open()

    def play(self, path: Path) -> ReplayWindow | None:
        """Play a recording from its beginning; None when it cannot be, which a card says."""
        try:
            recording = read_recording(path)
        except RecordingError as error:
            what = self.tr("{0} cannot be played.").format(path.name)
            again = CardAction(self.tr("Open another…"), self.open)
            self._cards.show_card(CARD, "error", CardText(what, str(error)), [again])
            return None
        return self._show(ReplayWindow(self._appearance.theme, recording, path.name, self._window))

    def play_example(self) -> ReplayWindow:
        """Play the recording that came with the program, made on another machine."""
        with resources.as_file(EXAMPLE) as path:
            recording = read_recording(path)
        name = self.tr("Example")
        window = ReplayWindow(self._appearance.theme, recording, name, self._window)
        window.title.setText(self.tr("Example recording, not this machine"))
        return self._show(window)

    def save(self) -> None:
        """Ask whether texts go into the recording, then where it goes."""
        box = QMessageBox(self._window)
        box.setWindowTitle(self.tr("Save recording"))
        box.setText(self.tr("Save this session, to be played again without a model?"))
        box.setInformativeText(
            self.tr("Times, token counts, cache and sensor readings are saved, and the settings.")
        )
        with_text = QCheckBox(self.tr("Include the text of prompts and answers"), box)
        box.setCheckBox(with_text)
        box.setStandardButtons(QMessageBox.StandardButton.Save | QMessageBox.StandardButton.Cancel)
        box.setDefaultButton(QMessageBox.StandardButton.Save)
        box.accepted.connect(lambda: self._ask_where(with_text.isChecked()))
        box.finished.connect(box.deleteLater)
        box.open()

    def _ask_where(self, with_text: bool) -> None:
        dialog = self._dialog(self.tr("Save recording"), QFileDialog.FileMode.AnyFile)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix(SUFFIX)
        dialog.selectFile(f"session.{SUFFIX}")
        dialog.fileSelected.connect(lambda file: self._save_as(Path(file), with_text))
        dialog.open()

    def _save_as(self, path: Path, with_text: bool) -> None:
        try:
            self._session.save(path, with_text=with_text)
        except OSError as error:
            what = self.tr("The recording could not be saved.")
            again = CardAction(self.tr("Save elsewhere…"), lambda: self._ask_where(with_text))
            text = CardText(what, f"{error.strerror or error} ({path}).")
            self._cards.show_card(CARD, "error", text, [again])
        else:
            text = CardText(self.tr("The session's recording is saved."), str(path))
            self._cards.show_card(CARD, "notice", text)

    def _show(self, window: ReplayWindow) -> ReplayWindow:
        self._appearance.theme_changed.connect(window.set_theme)
        window.show()
        window.player.play()
        return window

    def _dialog(self, title: str, mode: QFileDialog.FileMode) -> QFileDialog:
        dialog = QFileDialog(self._window, title)
        dialog.setFileMode(mode)
        dialog.setNameFilter(self.tr("Recordings (*.{0})").format(SUFFIX))
        dialog.finished.connect(dialog.deleteLater)
        return dialog
