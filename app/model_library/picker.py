"""The dialog in which a model is found and chosen."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QModelIndex, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QDialog,
    QFileDialog,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QLayout,
    QLineEdit,
    QPushButton,
    QStackedLayout,
    QTreeView,
    QVBoxLayout,
    QWidget,
)

from app.chat.elided_label import ElidedLabel
from app.chevron_box import ChevronBox
from app.engine_link.worker import EngineProblem
from app.model_library.library import Library
from app.model_library.picker_delegate import PickerDelegate
from app.model_library.picker_model import ENTRY_ROLE, LOADABLE_ROLE, PickerModel, search_filter
from app.model_library.row_texts import memory_sentence, problem_row, survey_row, unread_row
from app.model_menus import FORMAT_NAMES
from app.settings.schema import LAST_MODEL, MODEL_FOLDERS, RECENT_MODELS
from app.settings.store import Settings
from app.telemetry.format import count
from app.theme import Theme
from engine.config import WEIGHT_FORMATS, EngineConfig
from engine.model_library.entries import ModelEntry
from engine.model_library.measured import MeasuredSpeed, MeasuredSpeeds, SpeedKey
from engine.prediction import ModelSurvey

SIZE = QSize(1040, 640)
MARGIN = 16
# Below this width the least telling columns, file size and context, give room to the others.
NARROW = 900
FILE_COLUMN, CONTEXT_COLUMN = 3, 4
CONTEXTS = (None, 1024, 2048, 4096, 8192, 16384, 32768)


class ModelPicker(QDialog):
    """Lists the models on this machine with what each takes and reaches as the chosen formats.

    `base` says on which device and with how many threads. The list stands at once; figures fill
    in as headers are read.

    Attributes:
        surveys: what is known of each model by its path. listed: whether the list is complete.

    Signals:
        chosen(EngineConfig): load this.
        download_requested(): the person wants a model that is not here.
        quantize_requested(ModelInfo): the person wants this one in fewer bits, as files.
    """

    chosen = Signal(object)
    download_requested = Signal()
    quantize_requested = Signal(object)

    def __init__(
        self,
        theme: Theme,
        library: Library,
        speeds: MeasuredSpeeds,
        settings: Settings,
        base: EngineConfig,
        parent: QWidget,
    ) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(self.tr("Models"))
        self.setObjectName("modelPicker")
        self._library, self._speeds, self._settings, self._base = library, speeds, settings, base
        self.surveys: dict[str, ModelSurvey] = {}
        self.listed = False
        self.model = PickerModel(self)
        self.proxy = search_filter(self.model, self)
        self._delegate = PickerDelegate(theme)
        self._make_controls(theme)
        self._make_list()
        self._make_buttons()
        self._lay_out()
        library.entry_found.connect(self._on_entry_found)
        library.listing_ended.connect(self._on_listing_ended)
        library.surveyed.connect(self.show_survey)
        self.finished.connect(library.rest)
        self.fit_into(parent.size())
        self.refresh()

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or text size."""
        self._delegate = PickerDelegate(theme)
        self.view.setItemDelegate(self._delegate)
        for box in (self.weights, self.context):
            box.set_theme(theme)

    def fit_into(self, size: QSize) -> None:
        """Leave a margin of a window of this size."""
        self.resize(SIZE.boundedTo(size - QSize(2 * MARGIN, 2 * MARGIN)))

    def refresh(self) -> None:
        """List everything anew."""
        self.model.clear_entries()
        self.surveys.clear()
        self.listed = False
        recent = self._settings.get(RECENT_MODELS)
        last = self._settings.get(LAST_MODEL)
        remembered = list(dict.fromkeys([last, *recent] if last else recent))
        folders = self._settings.get(MODEL_FOLDERS)
        self.show_rows()
        self._library.refresh(folders, remembered, self._config(""))

    def show_rows(self) -> None:
        """Bring headings and rows in line with what is listed and searched for."""
        rows = self.proxy.rowCount()
        self._stack.setCurrentIndex(0 if rows else 1)
        self.empty.setText(self._why_empty())
        for row in range(rows):
            heading = self.proxy.index(row, 0)
            self.view.setFirstColumnSpanned(row, QModelIndex(), True)
            self.view.setExpanded(heading, True)
            for each in range(self.proxy.rowCount(heading)):
                usable = bool(self.proxy.index(each, 0, heading).data(LOADABLE_ROLE))
                self.view.setFirstColumnSpanned(each, heading, not usable)
        if rows and not self.view.currentIndex().isValid():
            self.view.setCurrentIndex(self.proxy.index(0, 0, self.proxy.index(0, 0)))
        self._on_current_changed()

    def show_survey(self, path: str, answer: ModelSurvey | EngineProblem) -> None:
        """Fill the row of a listed model in, or say why it cannot be opened."""
        entry = self.model.entry(path)
        if entry is None:
            return
        if isinstance(answer, EngineProblem):
            self.surveys.pop(path, None)
            why = f"{answer.what} {answer.why}" if len(answer.why) < 60 else answer.why
            self.model.show_cells(path, problem_row(entry, why), loadable=False)
        else:
            self.surveys[path] = answer
            cells = survey_row(entry, answer, self._measured(answer))
            self.model.show_cells(path, cells, loadable=True)
        self.show_rows()

    # --- building -------------------------------------------------------------------------

    def _make_controls(self, theme: Theme) -> None:
        self.search = QLineEdit(self)
        self.search.setPlaceholderText(self.tr("Search by name, architecture, format or folder"))
        self.search.setAccessibleName(self.tr("Search models"))
        self.search.setClearButtonEnabled(True)
        self.search.textChanged.connect(self._on_search)
        self.search.returnPressed.connect(self._load_current)
        self.weights = ChevronBox(theme, self)
        self.weights.setAccessibleName(self.tr("Weights to load as"))
        for name in WEIGHT_FORMATS:
            self.weights.addItem(FORMAT_NAMES.get(name, self.tr("As stored")), name)
        self.context = ChevronBox(theme, self)
        self.context.setAccessibleName(self.tr("Context length to load with"))
        for tokens in CONTEXTS:
            self.context.addItem(count(tokens) if tokens else self.tr("Automatic"), tokens)
        for box in (self.weights, self.context):
            box.currentIndexChanged.connect(self._survey_again)

    def _make_list(self) -> None:
        self.view = QTreeView(self)
        self.view.setObjectName("modelList")
        self.view.setAccessibleName(self.tr("Models on this machine"))
        self.view.setModel(self.proxy)
        self.view.setItemDelegate(self._delegate)
        self.view.setRootIsDecorated(False)
        self.view.setIndentation(0)
        self.view.setItemsExpandable(False)
        self.view.setAllColumnsShowFocus(True)
        self.view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.view.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        header = self.view.header()
        header.setStretchLastSection(False)
        header.setSectionsMovable(False)
        header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        self.view.activated.connect(self._load_current)
        self.view.selectionModel().currentChanged.connect(self._on_current_changed)
        self.empty = QLabel(self)
        self.empty.setProperty("tone", "muted")
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.empty.setWordWrap(True)
        self.facts = ElidedLabel()
        self.facts.setProperty("tone", "label")
        self.place = ElidedLabel()
        self.place.setProperty("tone", "label")

    def _make_buttons(self) -> None:
        self.add_folder = QPushButton(self.tr("&Add folder…"), self)
        self.add_folder.clicked.connect(self._ask_folder)
        self.remove_folder = QPushButton(self.tr("&Remove folder"), self)
        self.remove_folder.setToolTip(
            self.tr("Take the folder of this model off the list; nothing is deleted")
        )
        self.remove_folder.clicked.connect(self._remove_folder)
        self.download = QPushButton(self.tr("&Download…"), self)
        self.download.clicked.connect(self.download_requested)
        self.quantize = QPushButton(self.tr("&Quantize…"), self)
        self.quantize.setToolTip(self.tr("Write this model in 4 or 8 bits into a new folder"))
        self.quantize.clicked.connect(self._quantize_current)
        self.cancel = QPushButton(self.tr("Cancel"), self)
        self.cancel.clicked.connect(self.reject)
        self.load = QPushButton(self.tr("&Load"), self)
        self.load.setProperty("kind", "primary")
        self.load.clicked.connect(self._load_current)
        self._left = (self.add_folder, self.remove_folder, self.download, self.quantize)
        for button in (*self._left, self.cancel, self.load):
            button.setAutoDefault(False)

    def _lay_out(self) -> None:
        top = QHBoxLayout()
        top.setSpacing(8)
        top.addWidget(self.search, 1)
        for title, box in ((self.tr("Weights"), self.weights), (self.tr("Context"), self.context)):
            caption = QLabel(title, self)
            caption.setProperty("tone", "muted")
            caption.setBuddy(box)
            top.addSpacing(8)
            top.addWidget(caption)
            top.addWidget(box)
        self._stack = QStackedLayout()
        self._stack.addWidget(self.view)
        self._stack.addWidget(self.empty)
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        for button in self._left:
            buttons.addWidget(button)
        buttons.addStretch(1)
        buttons.addWidget(self.cancel)
        buttons.addWidget(self.load)
        column = QVBoxLayout(self)
        column.setSizeConstraint(QLayout.SizeConstraint.SetNoConstraint)
        column.setContentsMargins(MARGIN, MARGIN, MARGIN, MARGIN)
        column.setSpacing(12)
        column.addLayout(top)
        column.addLayout(self._stack, 1)
        words = QVBoxLayout()
        words.setSpacing(4)
        words.addWidget(self.facts)
        words.addWidget(self.place)
        column.addLayout(words)
        column.addLayout(buttons)

    # --- what comes in --------------------------------------------------------------------

    def _on_entry_found(self, entry: ModelEntry) -> None:
        self.model.add(entry, unread_row(entry))
        self.show_rows()

    def _on_listing_ended(self) -> None:
        self.listed = True
        self.show_rows()

    def _measured(self, survey: ModelSurvey) -> MeasuredSpeed:
        try:
            return self._speeds.get(SpeedKey.of(survey.config, survey.device, survey.threads))
        except OSError:  # the file went away since its headers were read
            return MeasuredSpeed()

    # --- what the person does -------------------------------------------------------------

    def _on_search(self, text: str) -> None:
        self.proxy.setFilterFixedString(text)
        self.show_rows()

    def _why_empty(self) -> str:
        if self.search.text() and self.model.rowCount():
            text = self.tr("No model has “{0}” in its name or facts.")
            return text.format(self.search.text())
        if not self.listed:
            return self.tr("Looking for models…")
        return self.tr(
            "No models were found on this machine.\n\n"
            "Add the folder where yours lie, or download one from the Hugging Face Hub."
        )

    def _on_current_changed(self, _current: QModelIndex | None = None) -> None:
        entry, loadable = self._current()
        survey = self.surveys.get(entry.path) if entry else None
        self.load.setEnabled(loadable)
        self.quantize.setEnabled(survey is not None)
        self.remove_folder.setVisible(entry is not None and entry.source == "folder")
        self.facts.set_whole_text(memory_sentence(survey) if survey else "")
        self.place.set_whole_text(entry.path if entry else "")

    def _load_current(self) -> None:
        entry, loadable = self._current()
        if entry and loadable:
            self.chosen.emit(self._config(entry.path))
            self.accept()

    def _quantize_current(self) -> None:
        entry, _ = self._current()
        if entry and entry.path in self.surveys:
            self.quantize_requested.emit(self.surveys[entry.path].info)

    def _survey_again(self) -> None:
        paths = [entry.path for entry in self.model.entries if not entry.problem]
        self._library.survey_again(paths, self._config(""))

    def _ask_folder(self) -> None:
        dialog = QFileDialog(self, self.tr("Add a folder with models"))
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly)
        dialog.fileSelected.connect(self.take_folder)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def take_folder(self, folder: str) -> None:
        """Look for models in another folder, now and from now on."""
        folders = self._settings.get(MODEL_FOLDERS)
        path = str(Path(folder).absolute())
        self._settings.set(MODEL_FOLDERS, [*(f for f in folders if f != path), path])
        self.refresh()

    def _remove_folder(self) -> None:
        entry, _ = self._current()
        if entry:
            folders = self._settings.get(MODEL_FOLDERS)
            self._settings.set(MODEL_FOLDERS, [f for f in folders if f != entry.place])
            self.refresh()

    # --- private --------------------------------------------------------------------------

    def _config(self, path: str) -> EngineConfig:
        return EngineConfig(
            path,
            weight_format=self.weights.currentData(),
            context_length=self.context.currentData(),
            device=self._base.device,
            threads=self._base.threads,
        )

    def _current(self) -> tuple[ModelEntry | None, bool]:
        """The entry under the cursor, and whether it can be loaded."""
        index = self.view.currentIndex().siblingAtColumn(0)
        return index.data(ENTRY_ROLE), bool(index.data(LOADABLE_ROLE))

    # Qt overrides

    def keyPressEvent(self, event: QKeyEvent) -> None:
        # From the search field too: the line edit leaves these keys to the dialog.
        if event.key() in (Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_PageUp, Qt.Key.Key_PageDown):
            self.view.keyPressEvent(event)
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        for column in (FILE_COLUMN, CONTEXT_COLUMN):
            self.view.setColumnHidden(column, self.width() < NARROW)
