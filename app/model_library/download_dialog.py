"""The dialog that brings a model from the Hugging Face Hub."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QPushButton,
    QWidget,
)

from app.engine_link.worker import EngineProblem
from app.model_library.downloads import Downloads
from app.model_library.job_dialog import STEPS, JobDialog
from app.telemetry.format import about_seconds, memory
from engine.model_library.hub import Hub, HubChoice, HubModel
from engine.model_library.hub_download import DownloadProgress, free_bytes

SIZE = QSize(640, 520)
CHOICE_ROLE = Qt.ItemDataRole.UserRole + 1


class DownloadDialog(JobDialog):
    """Look a repository up, choose a format, watch it come. Closing leaves a download running.

    `hub` says where and into which cache; a token typed here is held by this dialog alone.

    Signals:
        load_requested(str path): a finished download is to be loaded.
    """

    load_requested = Signal(str)

    def __init__(self, downloads: Downloads, hub: Hub, parent: QWidget) -> None:
        super().__init__(self.tr("Download a model"), SIZE, parent)
        self.setObjectName("downloadDialog")
        self._downloads, self._hub = downloads, hub
        self._model: HubModel | None = None
        self._path = ""
        self._make_fields()
        self._make_buttons()
        self._lay_out()
        downloads.found.connect(self._on_found)
        downloads.progressed.connect(self.show_progress)
        downloads.ended.connect(self._on_ended)
        self.fit_into(parent.size())
        self._refresh()

    def show_model(self, model: HubModel) -> None:
        """Offer what a repository holds."""
        self._model = model
        for choice in model.choices:
            self._add(choice)
        if not model.choices:
            what = self.tr("Nothing in {0} can be loaded.").format(model.repository)
            why = self.tr("It holds neither GGUF files nor safetensors with a config.json.")
            self.tell(EngineProblem(what, why, self.tr("Look for a GGUF version of the model.")))
        self.choices.setCurrentRow(0)
        self.choices.setFocus()
        self.show_running(False)

    def show_running(self, running: bool) -> None:
        """Offer what makes sense while a download runs, or while none does."""
        choice = self._choice()
        for each in (self.name, self.look_up, self.token, self.choices):
            each.setEnabled(not running)
        self.stop.setVisible(running)
        self.stop.setEnabled(running)
        self.bar.setVisible(running or bool(self._path))
        self.load.setVisible(bool(self._path))
        self.download.setVisible(not self._path)
        self.download.setEnabled(not running and choice is not None and not choice.problem)
        self.facts.setText(self._facts())

    def show_progress(self, progress: DownloadProgress) -> None:
        """Say how far the download is, how fast, and how long it takes yet."""
        self.show_share(progress.done_bytes / max(1, progress.total_bytes))
        if not self.stop.isEnabled():
            return
        if progress.checking:
            self.detail.set_whole_text(self.tr("Checking {0}").format(progress.file))
            return
        done, total = memory(progress.done_bytes), memory(progress.total_bytes)
        parts = [self.tr("{0} of {1}").format(done.text, total.text)]
        if progress.bytes_per_s:
            parts.append(f"{memory(progress.bytes_per_s).text}/s")
        if progress.left_s is not None:
            parts.append(self.tr("{0} left").format(about_seconds(progress.left_s)))
        self.detail.set_whole_text("   ".join(parts))

    # --- building -------------------------------------------------------------------------

    def _make_fields(self) -> None:
        self.name = QLineEdit(self)
        self.name.setPlaceholderText("HuggingFaceTB/SmolLM2-135M-Instruct")
        self.name.setAccessibleName(self.tr("Name of the model on the Hugging Face Hub"))
        self.name.returnPressed.connect(self._find)
        self.look_up = QPushButton(self.tr("&Look up"), self)
        self.look_up.clicked.connect(self._find)
        self.token = QLineEdit(self)
        self.token.setEchoMode(QLineEdit.EchoMode.Password)
        self.token.setPlaceholderText(self.tr("only for gated or private models; not saved"))
        self.token.setAccessibleName(self.tr("Access token"))
        self.token.returnPressed.connect(self._find)
        self.choices = QListWidget(self)
        self.choices.setObjectName("hubChoices")
        self.choices.setAccessibleName(self.tr("Formats"))
        self.choices.currentItemChanged.connect(lambda *_: self._refresh())
        self.choices.itemActivated.connect(lambda _: self._begin())
        self.facts = QLabel(self)
        self.facts.setProperty("tone", "muted")
        self.facts.setWordWrap(True)
        self.facts.setTextFormat(Qt.TextFormat.PlainText)

    def _make_buttons(self) -> None:
        self.stop = QPushButton(self.tr("&Stop"), self)
        self.stop.setToolTip(self.tr("What has come is kept; a later download goes on from there"))
        self.stop.clicked.connect(self._stop)
        self.close_button = QPushButton(self.tr("Close"), self)
        self.close_button.clicked.connect(self.reject)
        self.download = QPushButton(self.tr("&Download"), self)
        self.download.setProperty("kind", "primary")
        self.download.clicked.connect(self._begin)
        self.load = QPushButton(self.tr("&Load"), self)
        self.load.setProperty("kind", "primary")
        self.load.clicked.connect(self._load)
        self.look_up.setAutoDefault(False)

    def _lay_out(self) -> None:
        top = QHBoxLayout()
        top.setSpacing(8)
        top.addWidget(self.name, 1)
        top.addWidget(self.look_up)
        secret = QHBoxLayout()
        secret.setSpacing(8)
        caption = QLabel(self.tr("Access token"), self)
        caption.setProperty("tone", "muted")
        secret.addWidget(caption)
        secret.addWidget(self.token, 1)
        self.column.addLayout(top)
        self.column.addLayout(secret)
        self.column.addWidget(self.problem)
        self.column.addWidget(self.choices, 1)
        self.column.addWidget(self.facts)
        self.column.addWidget(self.detail)
        self.column.addWidget(self.bar)
        self.add_buttons((self.stop, self.close_button, self.download, self.load))

    # --- what the person does -------------------------------------------------------------

    def _find(self) -> None:
        if not self.name.text().strip() or self._downloads.running:
            return
        self._model = None
        self._path = ""
        self.choices.clear()
        self.tell(None)
        self.detail.set_whole_text(self.tr("Asking the Hub…"))
        self._downloads.find(self._trusted(), self.name.text())
        self._refresh()

    def _begin(self) -> None:
        choice = self._choice()
        if self._model and choice and not choice.problem and not self._downloads.running:
            self.tell(None)
            self._path = ""
            self._downloads.download(self._trusted(), self._model, choice)
            self.bar.setValue(0)
            self.detail.set_whole_text(self.tr("Connecting…"))
            self._refresh()

    def _stop(self) -> None:
        self._downloads.stop()
        self.stop.setEnabled(False)
        self.detail.set_whole_text(self.tr("Stopping…"))

    def _load(self) -> None:
        self.load_requested.emit(self._path)
        self.accept()

    def _trusted(self) -> Hub:
        token = self.token.text().strip() or self._hub.token
        return Hub(self._hub.endpoint, token, self._hub.cache)

    # --- what comes in --------------------------------------------------------------------

    def _on_found(self, answer: HubModel | EngineProblem) -> None:
        self.detail.set_whole_text("")
        if isinstance(answer, EngineProblem):
            self.tell(answer)
        else:
            self.show_model(answer)
        self.show_running(False)

    def _add(self, choice: HubChoice) -> None:
        number = len(choice.files)
        files = "" if number == 1 else self.tr(" · {0} files").format(number)
        text = f"{choice.label}\n{memory(choice.size).text}{files}"
        if choice.problem:
            text = f"{choice.label}\n{choice.problem}"
        item = QListWidgetItem(text, self.choices)
        item.setData(CHOICE_ROLE, choice)
        if choice.problem:
            item.setFlags(Qt.ItemFlag.NoItemFlags)

    def _on_ended(self, outcome: str | EngineProblem | None) -> None:
        if isinstance(outcome, EngineProblem):
            self.tell(outcome)
            self.detail.set_whole_text(self.tr("What has come is kept."))
        elif outcome is None:
            self.detail.set_whole_text(
                self.tr("Stopped. What has come is kept; Download goes on from there.")
            )
        else:
            self._path = outcome
            self.detail.set_whole_text(self.tr("Downloaded and checked."))
            self.bar.setValue(STEPS)
        self._refresh()

    # --- private --------------------------------------------------------------------------

    def _choice(self) -> HubChoice | None:
        item = self.choices.currentItem()
        choice = item.data(CHOICE_ROLE) if item else None
        return choice if isinstance(choice, HubChoice) else None

    def _refresh(self) -> None:
        self.show_running(self._downloads.running)

    def _facts(self) -> str:
        free = self.tr("{0} free on the disk of the Hugging Face cache").format(
            memory(free_bytes(self._hub.cache)).text
        )
        if self._model is None:
            return free
        license_name = self._model.license or self.tr("not stated")
        gate = self.tr(" · gated: its makers decide who may download") if self._model.gated else ""
        return self.tr("Licence: {0}{1}\n{2}").format(license_name, gate, free)
