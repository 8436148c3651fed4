"""The dialog that measures what weight formats cost in quality."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QCheckBox, QGridLayout, QLabel, QPushButton, QWidget

from app.engine_link.worker import EngineProblem
from app.model_library.job_dialog import JobDialog
from app.model_library.measuring import REFERENCE, MeasureProgress, Measuring
from app.model_library.quality_texts import change_text, quality_tip
from app.telemetry.format import about_seconds, memory, tokens_per_second
from engine.config import EngineConfig, ModelInfo
from engine.paths import quality_file
from engine.quality.kept import kept_qualities

SIZE = QSize(640, 400)


class QualityDialog(JobDialog):
    """Choose formats, watch them being measured. Closing leaves the work running."""

    def __init__(self, job: Measuring, parent: QWidget) -> None:
        super().__init__(self.tr("Measure quality"), SIZE, parent)
        self.setObjectName("qualityDialog")
        self._job = job
        self._info: ModelInfo | None = None
        self._config: EngineConfig | None = None
        self.formats: dict[str, QCheckBox] = {}
        self._figures: dict[str, QLabel] = {}
        self._cells: list[QWidget] = []
        self._make_parts()
        self._lay_out()
        job.progressed.connect(self.show_progress)
        job.measured.connect(self.show_figures)
        job.ended.connect(self.show_end)
        self.fit_into(parent.size())

    def show_model(self, info: ModelInfo, config: EngineConfig) -> None:
        """Offer to measure this model, on the config's device."""
        self._info, self._config = info, config
        self.model.setText(info.name)
        self._list_formats(info)
        self.show_figures()
        self.tell(None)
        self.detail.set_whole_text("")
        self.show_running(False)
        self.measure.setFocus()

    def show_figures(self) -> None:
        """What is known of each format; those that are not measured yet are meant."""
        assert self._info is not None
        kept = kept_qualities(quality_file(), self._info.path)
        for name, box in self.formats.items():
            quality = kept.get(name)
            figure = self._figures[name]
            figure.setText(change_text(quality) if quality else self.tr("not measured"))
            figure.setToolTip(quality_tip(quality) if quality else "")
            box.setChecked(quality is None)

    def show_running(self, running: bool) -> None:
        """Offer what makes sense while formats are measured, or while none are."""
        for box in self.formats.values():
            box.setEnabled(not running)
        self.stop.setVisible(running)
        self.stop.setEnabled(running)
        self.bar.setVisible(running)
        self.detail.setVisible(running or bool(self.detail.accessibleName()))
        self.measure.setVisible(not running)
        self._on_toggled()

    def show_progress(self, progress: MeasureProgress) -> None:
        """Say which format it is at, how fast, and how long all of them take yet."""
        self.show_share(progress.share)
        if not self.stop.isEnabled():
            return
        name = self.formats[progress.weight_format].text()
        if progress.is_reference:
            name = self.tr("{0}: first {1}, to compare with").format(name, REFERENCE.upper())
        parts = [name, tokens_per_second(progress.tokens_per_s).text]
        if progress.remaining_s is not None:
            parts.append(self.tr("{0} left").format(about_seconds(progress.remaining_s)))
        self.detail.set_whole_text("   ".join(parts))

    def show_end(self, problem: EngineProblem | None) -> None:
        """Say what came of it: a problem, or the figures, which stand beside the formats."""
        self.tell(problem)
        self.detail.set_whole_text("")
        self.show_running(False)

    # --- building -------------------------------------------------------------------------

    def _make_parts(self) -> None:
        self.model = QLabel(self)
        self.model.setProperty("tone", "strong")
        self.words = QLabel(
            self.tr(
                "Perplexity says how well a model predicts a text: lower is better. Each format is "
                "compared with {0}, over evaluation.txt, which comes along."
            ).format(REFERENCE.upper()),
            self,
        )
        self.words.setProperty("tone", "muted")
        self.words.setWordWrap(True)
        self.stop = QPushButton(self.tr("&Stop"), self)
        self.stop.setToolTip(self.tr("What has been measured is kept"))
        self.stop.clicked.connect(self._stop)
        self.close_button = QPushButton(self.tr("Close"), self)
        self.close_button.clicked.connect(self.reject)
        self.measure = QPushButton(self.tr("&Measure"), self)
        self.measure.setProperty("kind", "primary")
        self.measure.clicked.connect(self._begin)

    def _lay_out(self) -> None:
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(24)
        self._grid.setVerticalSpacing(8)
        self._grid.setColumnStretch(2, 1)
        self.column.addWidget(self.model)
        self.column.addWidget(self.words)
        self.column.addLayout(self._grid)
        self.column.addStretch(1)
        self.column.addWidget(self.problem)
        self.column.addWidget(self.detail)
        self.column.addWidget(self.bar)
        self.add_buttons((self.stop, self.close_button, self.measure))

    def _list_formats(self, info: ModelInfo) -> None:
        for cell in self._cells:
            self._grid.removeWidget(cell)
            cell.deleteLater()
        self._cells.clear()
        self.formats.clear()
        self._figures.clear()
        offered = [each for each in info.weight_formats if each.name != REFERENCE]
        for row, each in enumerate(offered):
            box, figure = QCheckBox(each.label, self), QLabel(self)
            box.toggled.connect(self._on_toggled)
            size = QLabel(memory(each.weight_bytes).text, self)
            size.setProperty("tone", "muted")
            size.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
            figure.setProperty("tone", "muted")
            for column, widget in enumerate((box, size, figure)):
                self._grid.addWidget(widget, row, column)
                self._cells.append(widget)
            self.formats[each.name], self._figures[each.name] = box, figure

    # --- what the person does -------------------------------------------------------------

    def _on_toggled(self) -> None:
        self.measure.setEnabled(any(box.isChecked() for box in self.formats.values()))

    def _begin(self) -> None:
        if self._config is None or self._job.running:
            return
        if self._job.busy:
            self.tell_busy()
            return
        self.tell(None)
        self.bar.setValue(0)
        self.detail.set_whole_text(self.tr("Starting…"))
        self.close_button.setFocus()
        chosen = [name for name, box in self.formats.items() if box.isChecked()]
        self._job.begin(self._config, chosen)
        self.show_running(True)

    def _stop(self) -> None:
        self._job.stop()
        self.stop.setEnabled(False)
        self.detail.set_whole_text(self.tr("Stopping…"))
