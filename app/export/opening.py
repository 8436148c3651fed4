"""The File menu's report and JSON: asks, copies the session, writes it in a thread, tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from PySide6.QtCore import QObject, QThread, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFileDialog, QWidget

from app.cards import CardAction, CardStack, CardText
from app.conversations import Conversations
from app.export.dialog import ExportDialog
from app.export.report import write_report
from app.export.request_words import RequestTexts
from app.export.session_data import RequestWords, SessionData, session_data
from app.export.vllm_json import write_json
from app.telemetry.telemetry_model import TelemetryModel

CARD = "export"
CLOSE_MS = 10_000

Write = Callable[[Path, SessionData, datetime], None]


@dataclass(frozen=True, slots=True)
class _Kind:
    """A file that can be made: its dialog's words, its name, who writes it."""

    title: str
    what: str
    filter: str
    file_name: str
    write: Write


class _Writer(QThread):
    """Writes one file; `problem` is why not, "" when it is written."""

    def __init__(self, kind: _Kind, path: Path, session: SessionData, parent: QObject) -> None:
        super().__init__(parent)
        self.setObjectName("export")
        self.kind, self.path = kind, path
        self.problem = self.tr("Something unexpected happened; the log has the details")
        self._session = session

    # Qt overrides

    def run(self) -> None:
        try:
            self.kind.write(self.path, self._session, datetime.now())
        except OSError as error:
            self.problem = error.strerror or str(error)
        else:
            self.problem = ""


class SessionExports(QObject):
    """Makes files of the session. One is written at a time; `close` waits for it.

    Signals:
        written(str path, str problem): a file is done, or why not ("" is done).
    """

    written = Signal(str, str)

    def __init__(
        self,
        window: QWidget,
        cards: CardStack,
        conversations: Conversations,
        model: TelemetryModel,
    ) -> None:
        super().__init__(window)
        self._window, self._cards, self._model = window, cards, model
        self._texts = RequestTexts(conversations, self)
        self._writer: _Writer | None = None

    def open_report(self) -> None:
        """Ask for a report and where it goes."""
        self._ask(self._report_kind())

    def open_vllm_json(self) -> None:
        """Ask for the JSON with vLLM's names and where it goes."""
        what = self.tr(
            "One JSON object with the names and units of vLLM's\nserving benchmark (ttfts, itls, "
            "mean_ttft_ms, p99_itl_ms, ...),\nfor scripts that read its results."
        )
        title, kinds = self.tr("Export for vLLM tools"), self.tr("JSON (*.json)")
        self._ask(_Kind(title, what, kinds, "phasescope-vllm.json", write_json))

    def write_report_now(self, path: Path) -> None:
        """Write a report without prompts and answers before it returns. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_report(path, self._session(with_text=False), datetime.now())

    def close(self) -> None:
        """Let a file that is being written be finished."""
        if self._writer is not None:
            self._writer.wait(CLOSE_MS)

    # --- private --------------------------------------------------------------------------

    def _report_kind(self) -> _Kind:
        what = self.tr(
            "One HTML file with the settings, this machine,\na table of all requests, their "
            "timelines and the roofline.\nIt needs no network and opens in any browser."
        )
        title, kinds = self.tr("Export report"), self.tr("Web pages (*.html)")
        return _Kind(title, what, kinds, "phasescope-report.html", write_report)

    def _ask(self, kind: _Kind) -> None:
        dialog = ExportDialog(kind.title, kind.what, self._window)
        dialog.accepted.connect(lambda: self._ask_where(kind, dialog.with_text.isChecked()))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _ask_where(self, kind: _Kind, with_text: bool) -> None:
        dialog = QFileDialog(self._window, kind.title)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilter(kind.filter)
        dialog.setDefaultSuffix(Path(kind.file_name).suffix[1:])
        dialog.selectFile(kind.file_name)
        dialog.fileSelected.connect(lambda path: self._start(kind, Path(path), with_text=with_text))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _start(self, kind: _Kind, path: Path, *, with_text: bool) -> None:
        if self._writer is not None:
            self._writer.wait()

        writer = _Writer(kind, path, self._session(with_text=with_text), self)
        writer.finished.connect(lambda: self._on_finished(writer))
        self._writer = writer
        writer.start()

    def _session(self, *, with_text: bool) -> SessionData:
        def words_of(request_id: str) -> RequestWords:
            return self._texts.words_of(request_id, with_text=with_text)

        return session_data(self._model, words_of)

    def _on_finished(self, writer: _Writer) -> None:
        if self._writer is writer:
            self._writer = None
        writer.deleteLater()
        if writer.problem:
            self._tell_problem(writer)
        else:
            url = QUrl.fromLocalFile(str(writer.path))
            show = CardAction(self.tr("Open"), lambda: QDesktopServices.openUrl(url))
            text = CardText(self.tr("The session is exported."), str(writer.path))
            self._cards.show_card(CARD, "notice", text, [show])
        self.written.emit(str(writer.path), writer.problem)

    def _tell_problem(self, writer: _Writer) -> None:
        what = self.tr("The file could not be written.")
        why = f"{writer.problem} ({writer.path})."
        text = CardText(what, why, self.tr("Free some space or choose another folder."))
        again = CardAction(self.tr("Save elsewhere…"), lambda: self._ask(writer.kind))
        self._cards.show_card(CARD, "error", text, [again])
