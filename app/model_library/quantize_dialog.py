"""The dialog that makes a model smaller: how, where to, and how far it is."""

from __future__ import annotations

import re
from pathlib import Path

from PySide6.QtCore import QSize, Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices, QStandardItemModel
from PySide6.QtWidgets import (
    QButtonGroup,
    QFileDialog,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QRadioButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.chevron_box import ChevronBox
from app.engine_link.worker import EngineProblem
from app.model_library.job_dialog import STEPS, JobDialog
from app.model_library.quantizing import Quantizing
from app.telemetry.format import about_seconds, count, memory, three_digits
from app.theme import Theme
from engine.config import ModelInfo
from engine.model_library.hub_download import free_bytes
from engine.quantization.plan import (
    BITS,
    GROUP_SIZES,
    METHODS,
    GridSpec,
    Method,
    Quantized,
    QuantizePlan,
    QuantizeProgress,
    expected_bytes,
    group_sizes,
)

SIZE = QSize(640, 548)
# What a checkpoint stores plainly; everything else has lost something before.
PLAIN_FORMATS = {"F32", "F16", "BF16"}


class QuantizeDialog(JobDialog):
    """Choose how, watch it being made, load it. Closing leaves the job running.

    `folder` is where models that are made here go, unless another place is typed.

    Signals:
        load_requested(str path): the finished model is to be loaded.
    """

    load_requested = Signal(str)

    def __init__(self, theme: Theme, job: Quantizing, folder: Path, parent: QWidget) -> None:
        super().__init__(self.tr("Quantize a model"), SIZE, parent)
        self.setObjectName("quantizeDialog")
        self._job, self._folder = job, folder
        self._info: ModelInfo | None = None
        self._result: Quantized | None = None
        self._suggested = ""
        self._make_methods()
        self._make_grid_choices(theme)
        self._make_places()
        self._make_buttons()
        self._lay_out()
        job.progressed.connect(self.show_progress)
        job.ended.connect(self.show_end)
        self.fit_into(parent.size())

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or text size."""
        for box in (self.bits, self.group_size):
            box.set_theme(theme)

    def show_model(self, info: ModelInfo) -> None:
        """Offer to quantize this model; the outcome of the one before is gone."""
        self._info = info
        stored, size = info.stored_format, memory(info.file_bytes).text
        self.model.setText(info.name)
        self.model_facts.setText(f"{stored} · {size}")
        self.model_facts.setToolTip(info.path)
        text = self.tr(
            "It is quantized already ({0}): what it lost then is not brought back. A 16-bit "
            "version of the model gives a better result."
        )
        self._warn("" if _formats(stored) <= PLAIN_FORMATS else text.format(stored))
        self._offer_group_sizes(group_sizes(info))
        self.out.clear()
        self._on_changed()
        self.methods[self._method()].setFocus()

    def show_running(self, running: bool) -> None:
        """Offer what makes sense while a job runs, or while none does."""
        done = self._result is not None
        for each in self._choices():
            each.setEnabled(not running)
        self.bits.setEnabled(self.bits.isEnabled() and self._method() != "awq")
        for each in (self.calibration, self.choose_text):
            each.setEnabled(each.isEnabled() and self._method() != "rtn")
        self.stop.setVisible(running)
        self.stop.setEnabled(running)
        self.facts.setVisible(not done)
        self.detail.setVisible(running or bool(self.detail.accessibleName()))
        self.bar.setVisible(running or done)
        self.quantize.setVisible(not running and not done)
        for each in (self.load, self.show_folder):
            each.setVisible(done)
        self._show_facts()

    def show_progress(self, progress: QuantizeProgress) -> None:
        """Say which layer it is at, and how long it takes yet."""
        self.show_share(progress.fraction)
        if not self.stop.isEnabled():
            return
        layer = self.tr("Layer {0} of {1}")
        parts = [layer.format(count(progress.layer), count(progress.num_layers))]
        if progress.remaining_s is not None:
            parts.append(self.tr("{0} left").format(about_seconds(progress.remaining_s)))
        self.detail.set_whole_text("   ".join(parts))

    def show_end(self, outcome: Quantized | EngineProblem | None) -> None:
        """Say what came of it."""
        if isinstance(outcome, EngineProblem):
            self.tell(outcome)
            self.detail.set_whole_text("")
        elif outcome is None:
            self.detail.set_whole_text(self.tr("Stopped. Nothing is left of it."))
        else:
            self._result = outcome
            self.bar.setValue(STEPS)
            self.detail.set_whole_text(self._summary(outcome))
            if outcome.notices:
                self._warn("\n".join(outcome.notices))
            self.load.setFocus()
        self.show_running(False)

    # --- building -------------------------------------------------------------------------

    def _make_methods(self) -> None:
        self.model = QLabel(self)
        self.model.setProperty("tone", "strong")
        self.model_facts = self._quiet()
        self.warning = QLabel(self)
        self.warning.setObjectName("jobWarning")
        self.warning.setWordWrap(True)
        self.warning.setTextFormat(Qt.TextFormat.PlainText)
        self._methods = QButtonGroup(self)
        self.methods: dict[Method, QRadioButton] = {}
        for name in METHODS:
            button = QRadioButton(name.upper(), self)
            self.methods[name] = button
            self._methods.addButton(button)
        self.methods["gptq"].setChecked(True)
        self._methods.buttonToggled.connect(self._on_method)

    def _method_sentences(self) -> dict[Method, str]:
        return {
            "rtn": self.tr("Rounds each weight to the nearest value. Minutes; loses the most."),
            "gptq": self.tr("Makes up for rounding errors in later weights. Minutes to hours."),
            "awq": self.tr("Spares weights whose inputs are large. Minutes to hours, 4 bits only."),
        }

    def _make_grid_choices(self, theme: Theme) -> None:
        self.bits = ChevronBox(theme, self)
        self.bits.setAccessibleName(self.tr("Bits a weight"))
        for bits in BITS:
            self.bits.addItem(self.tr("{0} bits").format(bits), bits)
        self.group_size = ChevronBox(theme, self)
        self.group_size.setAccessibleName(self.tr("Group size"))
        self.group_size.setToolTip(
            self.tr("Weights that share a scale: fewer are more exact and take more room")
        )
        for size in GROUP_SIZES:
            self.group_size.addItem(self.tr("groups of {0}").format(size), size)
        self.group_size.setCurrentIndex(self.group_size.findData(GridSpec().group_size))
        for box in (self.bits, self.group_size):
            box.currentIndexChanged.connect(self._on_changed)

    def _make_places(self) -> None:
        self.calibration = QLineEdit(self)
        self.calibration.setPlaceholderText(self.tr("calibration.txt, which comes along"))
        self.calibration.setAccessibleName(self.tr("Calibration text"))
        self.calibration.setClearButtonEnabled(True)
        self.calibration.textChanged.connect(self._on_changed)
        self.choose_text = QPushButton(self.tr("Choose…"), self)
        self.choose_text.clicked.connect(self._ask_text)
        self.out = QLineEdit(self)
        self.out.setAccessibleName(self.tr("Output folder"))
        self.out.textEdited.connect(self._on_changed)
        self.choose_folder = QPushButton(self.tr("Choose…"), self)
        self.choose_folder.clicked.connect(self._ask_folder)
        self.facts = self._quiet()

    def _make_buttons(self) -> None:
        self.stop = QPushButton(self.tr("&Stop"), self)
        self.stop.setToolTip(self.tr("Nothing is left of a stopped job"))
        self.stop.clicked.connect(self._stop)
        self.close_button = QPushButton(self.tr("Close"), self)
        self.close_button.clicked.connect(self.reject)
        self.quantize = QPushButton(self.tr("&Quantize"), self)
        self.quantize.setProperty("kind", "primary")
        self.quantize.clicked.connect(self._begin)
        self.show_folder = QPushButton(self.tr("Show in &folder"), self)
        self.show_folder.clicked.connect(self._show_in_folder)
        self.load = QPushButton(self.tr("&Load it"), self)
        self.load.setProperty("kind", "primary")
        self.load.clicked.connect(self._load)
        for each in (self.choose_text, self.choose_folder):
            each.setAutoDefault(False)

    def _lay_out(self) -> None:
        grid = QGridLayout()
        grid.setHorizontalSpacing(16)
        grid.setVerticalSpacing(12)
        grid.setColumnStretch(1, 1)
        name = QHBoxLayout()
        name.setSpacing(8)
        name.addWidget(self.model)
        name.addWidget(self.model_facts, 1)
        choices = QHBoxLayout()
        choices.setSpacing(8)
        choices.addWidget(self.bits)
        choices.addWidget(self.group_size)
        choices.addStretch(1)
        rows = (
            (self.tr("Model"), name),
            (self.tr("Method"), self._method_rows()),
            (self.tr("Precision"), choices),
            (self.tr("Calibration"), _beside(self.calibration, self.choose_text)),
            (self.tr("Output folder"), _beside(self.out, self.choose_folder)),
        )
        for row, (caption, content) in enumerate(rows):
            label = QLabel(caption, self)
            label.setProperty("tone", "muted")
            if row == 1:
                label.setContentsMargins(0, 2, 0, 0)  # on the line of the first method
            top = Qt.AlignmentFlag.AlignTop if row == 1 else Qt.AlignmentFlag.AlignVCenter
            grid.addWidget(label, row, 0, top)
            grid.addLayout(content, row, 1)
        self.column.addWidget(self._scrolled(grid), 1)
        self.column.addWidget(self.problem)
        self.column.addWidget(self.facts)
        self.column.addWidget(self.detail)
        self.column.addWidget(self.bar)
        self.add_buttons((self.stop, self.close_button, self.show_folder, self.quantize, self.load))

    def _scrolled(self, grid: QGridLayout) -> QScrollArea:
        """Choices and warning: with large text in a small window they need more than there is."""
        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(12)
        column.addLayout(grid)
        column.addWidget(self.warning)
        column.addStretch(1)
        area = QScrollArea(self)
        area.setObjectName("choices")
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.setWidgetResizable(True)
        area.setWidget(content)
        return area

    def _method_rows(self) -> QVBoxLayout:
        """Each method with a sentence on what it does and costs."""
        column = QVBoxLayout()
        column.setSpacing(8)
        for name, sentence in self._method_sentences().items():
            words = self._quiet()
            words.setText(sentence)
            words.setIndent(24)
            self.methods[name].setAccessibleDescription(sentence)
            one = QVBoxLayout()
            one.setSpacing(2)
            one.addWidget(self.methods[name])
            one.addWidget(words)
            column.addLayout(one)
        return column

    def _quiet(self) -> QLabel:
        label = QLabel(self)
        label.setProperty("tone", "muted")
        label.setWordWrap(True)
        label.setTextFormat(Qt.TextFormat.PlainText)
        return label

    # --- what the person does -------------------------------------------------------------

    def _on_method(self, _button: QRadioButton, checked: bool) -> None:
        if not checked:
            return
        if self._method() == "awq":
            self.bits.setCurrentIndex(self.bits.findData(4))
        self._on_changed()

    def _on_changed(self) -> None:
        """Another choice is another job: what came of the last one is gone."""
        self._result = None
        self.tell(None)
        self.detail.set_whole_text("")
        self._name_output()
        self.show_running(self._job.running)

    def _begin(self) -> None:
        if self._info is None or self._job.running:
            return
        if self._job.busy:
            self.tell_busy()
            return
        plan = self._plan(self._info)
        self.tell(None)
        self.bar.setValue(0)
        self.detail.set_whole_text(self.tr("Starting…"))
        if plan.out.parent == self._folder:
            self._folder.mkdir(parents=True, exist_ok=True)
        self._job.begin(plan)
        self.close_button.setFocus()  # of a hidden button the focus would go to Stop
        self.show_running(True)

    def _stop(self) -> None:
        self._job.stop()
        self.stop.setEnabled(False)
        self.detail.set_whole_text(self.tr("Stopping…"))

    def _load(self) -> None:
        if self._result is not None:
            self.load_requested.emit(str(self._result.out))
            self.accept()

    def _show_in_folder(self) -> None:
        if self._result is not None:
            QDesktopServices.openUrl(QUrl.fromLocalFile(str(self._result.out)))

    def _ask_text(self) -> None:
        dialog = QFileDialog(self, self.tr("Calibration text"))
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.setNameFilter(self.tr("Texts (*.txt *.md);;All files (*)"))
        dialog.fileSelected.connect(self.calibration.setText)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _ask_folder(self) -> None:
        dialog = QFileDialog(self, self.tr("Make the model's folder in"))
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly)
        dialog.fileSelected.connect(self.take_folder)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def take_folder(self, folder: str) -> None:
        """Make the model's folder in this one."""
        self.out.setText(str(Path(folder) / Path(self.out.text()).name))

    # --- private --------------------------------------------------------------------------

    def _choices(self) -> list[QWidget]:
        places = (self.calibration, self.choose_text, self.out, self.choose_folder)
        return [*self.methods.values(), self.bits, self.group_size, *places]

    def _method(self) -> Method:
        return next(name for name, button in self.methods.items() if button.isChecked())

    def _grid(self) -> GridSpec:
        return GridSpec(self.bits.currentData(), self.group_size.currentData())

    def _plan(self, info: ModelInfo) -> QuantizePlan:
        text = self.calibration.text().strip()
        calibration = Path(text).expanduser() if text and self._method() != "rtn" else None
        return QuantizePlan(
            info.path, self._out(), self._method(), self._grid(), calibration=calibration
        )

    def _out(self) -> Path:
        return Path(self.out.text().strip()).expanduser()

    def _offer_group_sizes(self, possible: tuple[int, ...]) -> None:
        """Gray out what does not divide this model's matrices; the largest of the rest is meant."""
        items = self.group_size.model()
        assert isinstance(items, QStandardItemModel)
        for row, size in enumerate(GROUP_SIZES):
            item = items.item(row)
            item.setEnabled(size in possible or not possible)
            why = self.tr("This model's matrices cannot be divided into groups of {0}")
            item.setToolTip("" if item.isEnabled() else why.format(size))
        if possible and self.group_size.currentData() not in possible:
            self.group_size.setCurrentIndex(self.group_size.findData(possible[-1]))

    def _name_output(self) -> None:
        """Follow the choices with the folder's name, as long as the person has not typed one."""
        present = self.out.text()
        if self._info is None or (present and Path(present).name != self._suggested):
            return
        grid, name = self._grid(), re.sub(r'[\\/:*?"<>|\s]+', "-", self._info.name)
        name = f"{name}-{self._method()}-int{grid.bits}-g{grid.group_size}"
        path = _free_path(Path(present).parent if present else self._folder, name)
        self._suggested = path.name
        self.out.setText(str(path))

    def _show_facts(self) -> None:
        if self._info is None:
            return
        size, free = expected_bytes(self._info, self._grid()), free_bytes(self._out())
        text = self.tr("About {size} will be written; {free} free on that disk.")
        text = text.format(size=memory(size).text, free=memory(free).text)
        self.facts.setText(text if size <= free else self.tr("{0} Not enough.").format(text))
        self.quantize.setEnabled(bool(self.out.text().strip()))

    def _warn(self, text: str) -> None:
        self.warning.setVisible(bool(text))
        self.warning.setText(text)

    def _summary(self, result: Quantized) -> str:
        text = self.tr("Done in {time}: {size}, {bits} bits a weight")
        return text.format(
            size=memory(result.file_bytes).text,
            bits=three_digits(result.bits_per_weight),
            time=about_seconds(result.elapsed_s),
        )


def _beside(field: QLineEdit, button: QPushButton) -> QHBoxLayout:
    row = QHBoxLayout()
    row.setSpacing(8)
    row.addWidget(field, 1)
    row.addWidget(button)
    return row


def _formats(stored: str) -> set[str]:
    """The formats in a description like "Q4_K + Q6_K, head Q8_0"."""
    return set(re.split(r", head | \+ ", stored))


def _free_path(parent: Path, name: str) -> Path:
    """`name` there, numbered when it is taken."""
    path, number = parent / name, 2
    while path.exists():
        path, number = parent / f"{name}-{number}", number + 1
    return path
