"""Pinned runs in a window of their own: choose two to six, see them over each other."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QGuiApplication, QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QFileDialog,
    QLabel,
    QListWidget,
    QListWidgetItem,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.chevron_box import ChevronBox
from app.latency_overlay import LatencyLine, LatencyOverlay
from app.model_library.quality_texts import change_text
from app.plot_dialog import PlotDialog
from app.race.words import factor
from app.run_comparison import words
from app.run_comparison.figures import FIGURES, Cell, as_rows, cells, differing
from app.run_comparison.pinned_run import PinnedRun
from app.run_comparison.pinned_runs import PinnedRuns
from app.run_comparison.table import FiguresTable, TableCell, TableRow
from app.telemetry.format import count
from app.telemetry.series import Array
from app.theme import LABEL_PX, Theme
from engine.paths import quality_file
from engine.quality.kept import kept_qualities

SIZE = QSize(1080, 720)
LIST_WIDTH = 290
MIN_PLOT_HEIGHT = 150
FEWEST, MOST = 2, 6
MEDIAN_OF = 5
# The baseline as the earlier run of a race; then what tells apart without the colours of phases.
LINES = (
    ("muted", True),
    ("decode", False),
    ("kv", False),
    ("device", False),
    ("text", False),
    ("decode", True),
)


class RunsDialog(PlotDialog):
    """Beside the window; it follows what is pinned and let go meanwhile.

    Attributes:
        list: every pinned run with a box to choose it. baseline: what the ratios are to.
    """

    def __init__(self, theme: Theme, pins: PinnedRuns, parent: QWidget) -> None:
        self.overlay = LatencyOverlay(theme)
        self.table = FiguresTable(theme)
        super().__init__(theme, self.tr("Compare runs"), SIZE, self._figures(), parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._pins = pins
        self._let_go: PinnedRun | None = None
        self.list = QListWidget()
        self.against = QLabel(self.tr("&Baseline"))
        self.baseline = ChevronBox(theme)
        self.unpin = QPushButton(self.tr("&Unpin"))
        self.undo = QPushButton(self.tr("Und&o"))
        self.copy_table = QPushButton(self.tr("Copy &table"))
        self.save_table = QPushButton(self.tr("Save CS&V…"))
        self._lay_out_choices()
        self._connect()
        self._fill_list(chosen=self._proposed())
        self.reading.hide()
        self.list.setFocus()
        self.close_button.setDefault(True)

    def set_theme(self, theme: Theme) -> None:
        super().set_theme(theme)
        self.overlay.set_theme(theme)
        self.table.set_theme(theme)
        self.baseline.set_theme(theme)
        self.list.setFont(theme.font(LABEL_PX + 0.5))

    @property
    def chosen(self) -> list[PinnedRun]:
        """The runs whose box is ticked, the baseline first."""
        ticked = [run for run in self._pins.runs if run.id in self._ticked()]
        base = self.baseline.currentData()
        return sorted(ticked, key=lambda run: run.id != base)

    def choose(self, run_ids: Sequence[str]) -> None:
        """Tick these, the first as the baseline, and no others."""
        self._fill_list(run_ids)

    def refresh(self) -> None:
        """Say and draw what is chosen."""
        runs = self.chosen
        is_enough = FEWEST <= len(runs) <= MOST
        if is_enough:
            self._show(runs)
        else:
            self._ask_to_choose(len(runs))
        self.overlay.setVisible(is_enough)
        self.header.setVisible(is_enough)
        self.table.setVisible(is_enough)
        self.copy_table.setEnabled(is_enough)
        self.save_table.setEnabled(is_enough)
        self.unpin.setEnabled(self.list.currentRow() >= 0)
        self.undo.setVisible(self._let_go is not None)
        self.offer_copy(is_enough)

    # --- building -------------------------------------------------------------------------

    def _figures(self) -> QWidget:
        both = QWidget()
        column = QVBoxLayout(both)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(12)
        self.overlay.setMinimumHeight(MIN_PLOT_HEIGHT)
        column.addWidget(self.overlay, 1)
        column.addWidget(self.table)
        return both

    def _lay_out_choices(self) -> None:
        column = QVBoxLayout()
        column.setSpacing(6)
        title = QLabel(self.tr("&Pinned runs"))
        title.setBuddy(self.list)
        self.against.setBuddy(self.baseline)
        for label in (title, self.against):
            label.setProperty("tone", "muted")
        self.list.setAccessibleName(self.tr("Pinned runs"))
        self.list.setFixedWidth(LIST_WIDTH)
        self.list.setFont(self._theme.font(LABEL_PX + 0.5))
        self.list.setWordWrap(True)
        self.list.setSpacing(2)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.baseline.setFixedWidth(LIST_WIDTH)
        self.baseline.setAccessibleName(self.tr("Baseline"))
        for widget in (title, self.list, self.against, self.baseline):
            column.addWidget(widget)
        self.body.insertLayout(0, column)
        for place, button in enumerate((self.unpin, self.undo, self.copy_table, self.save_table)):
            button.setAutoDefault(False)
            self.buttons.insertWidget(place + (place > 1), button)  # the stretch is between them
        self.header.set_title(self.tr("Inter-token latency"))
        self.header.set_subtitle(self.tr("ms, the median of 5 tokens"), self.tr("ms"))

    def _connect(self) -> None:
        self.list.itemChanged.connect(self._on_ticked)
        self.list.currentRowChanged.connect(self.refresh)
        self.baseline.activated.connect(self.refresh)
        self.unpin.clicked.connect(self._unpin)
        self.undo.clicked.connect(self._pin_again)
        self.copy_table.clicked.connect(self._copy_table)
        self.save_table.clicked.connect(self._ask_where_to_save)
        QShortcut(QKeySequence.StandardKey.Delete, self.list, self._unpin)
        self._pins.changed.connect(lambda: self._fill_list([run.id for run in self.chosen]))

    # --- choosing -------------------------------------------------------------------------

    def _proposed(self) -> list[str]:
        """The newest run and the one before it, which is what it is compared with."""
        return [run.id for run in self._pins.runs[:FEWEST]][::-1]

    def _ticked(self) -> list[str]:
        items = (self.list.item(row) for row in range(self.list.count()))
        checked = Qt.CheckState.Checked
        return [i.data(Qt.ItemDataRole.UserRole) for i in items if i.checkState() is checked]

    def _fill_list(self, chosen: Sequence[str]) -> None:
        current = self.list.currentRow()
        self.list.blockSignals(True)
        self.list.clear()
        for run in self._pins.runs:
            item = QListWidgetItem(words.described(run), self.list)
            item.setData(Qt.ItemDataRole.UserRole, run.id)
            ticked = run.id in chosen
            item.setCheckState(Qt.CheckState.Checked if ticked else Qt.CheckState.Unchecked)
        self.list.setCurrentRow(min(max(0, current), self.list.count() - 1))
        self.list.blockSignals(False)
        self._fill_baseline(chosen[0] if chosen else None)
        self.refresh()

    def _fill_baseline(self, wanted: str | None) -> None:
        ticked = set(self._ticked())
        runs = [run for run in self._pins.runs if run.id in ticked]
        self.baseline.clear()
        for run, name in zip(runs, words.names(runs), strict=True):
            self.baseline.addItem(name, run.id)
        place = self.baseline.findData(wanted)
        self.baseline.setCurrentIndex(place if place >= 0 else self.baseline.count() - 1)
        self.against.setVisible(len(runs) >= FEWEST)
        self.baseline.setVisible(len(runs) >= FEWEST)

    def _on_ticked(self) -> None:
        self._fill_baseline(self.baseline.currentData())
        self.refresh()

    def _unpin(self) -> None:
        item = self.list.currentItem()
        if item is None:
            return
        run_id = item.data(Qt.ItemDataRole.UserRole)
        self._let_go = next((run for run in self._pins.runs if run.id == run_id), None)
        self._pins.unpin(run_id)

    def _pin_again(self) -> None:
        if self._let_go is not None:
            run, self._let_go = self._let_go, None
            self._pins.pin(run)

    # --- showing --------------------------------------------------------------------------

    def _ask_to_choose(self, number: int) -> None:
        self.source.setText("")
        if len(self._pins.runs) < FEWEST:
            self.headline.setText(self.tr("Pin at least two runs"))
            self.summary.setText(
                self.tr(
                    "Under an answer, in its menu, choose “Pin this run”; after a race, “Pin both”."
                )
            )
        elif number > MOST:
            self.headline.setText(self.tr("{0} runs are too many at once").format(count(number)))
            self.summary.setText(self.tr("Tick six at most."))
        else:
            self.headline.setText(self.tr("Tick two to six runs"))
            self.summary.setText(self.tr("Their latencies and figures then stand side by side."))

    def _show(self, runs: list[PinnedRun]) -> None:
        called, base = words.names(runs), runs[0]
        self.headline.setText(words.headline(runs, base, called))
        self.summary.setText(
            self.tr("Ratios are to {0}. {1}").format(called[0], words.notes(runs, base)).strip()
        )
        same = runs[0].metrics
        self.source.setText(
            self.tr("{0}; a prompt of {1} tokens").format(same.model, count(same.prompt_tokens))
            if len({(r.metrics.model, r.metrics.prompt_tokens) for r in runs}) == 1
            else ", ".join(dict.fromkeys(run.metrics.model for run in runs))
        )
        lines = [
            LatencyLine(name, token, running_median(run.itl_ms), is_dashed=is_dashed)
            for run, name, (token, is_dashed) in zip(runs, called, LINES, strict=False)
        ]
        self.overlay.set_lines(max(len(run.itl_ms) for run in runs) + 1, lines)
        self.overlay.setAccessibleName(self.headline.text())
        self.header.set_legend([line.legend for line in lines])
        self.table.set_table(called, self._rows(runs))

    def _rows(self, runs: list[PinnedRun]) -> list[TableRow]:
        fields = differing(runs)
        rows = [
            TableRow(
                words.setting_title(field),
                tuple(TableCell(words.setting(run.metrics, field)) for run in runs),
            )
            for field in (fields if len(fields) > 1 else ())
        ]
        rows += [
            TableRow(
                words.figure_title(figure.name),
                tuple(
                    TableCell(
                        words.figure_text(figure.name, cell.value),
                        _ratio_text(run, runs[0], cell),
                        cell.is_best,
                    )
                    for run, cell in zip(runs, cells(figure, runs, runs[0]), strict=True)
                ),
            )
            for figure in FIGURES
        ]
        quality = [self._quality(run) for run in runs]
        if any(quality):
            texts = tuple(TableCell(text or words.UNKNOWN) for text in quality)
            rows.append(TableRow(self.tr("Quality"), texts))
        return rows

    def _quality(self, run: PinnedRun) -> str:
        kept = kept_qualities(quality_file(), run.model_path).get(run.metrics.weight_format)
        return change_text(kept) if kept else ""

    # --- taking away ----------------------------------------------------------------------

    def _copy_table(self) -> None:
        lines = ("\t".join(line) for line in self.table.texts())
        QGuiApplication.clipboard().setText("\n".join(lines))

    def _ask_where_to_save(self) -> None:
        dialog = QFileDialog(self, self.tr("Save CSV"))
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilter(self.tr("Tables (*.csv)"))
        dialog.setDefaultSuffix("csv")
        dialog.selectFile("phasescope-comparison.csv")
        dialog.fileSelected.connect(self.save_csv)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def save_csv(self, file: str) -> None:
        """Write the table with a row a run; where it cannot be written, say so."""
        runs = self.chosen
        rows = as_rows(runs, runs[0])
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        try:
            Path(file).write_text(text.getvalue(), "utf-8", newline="")
        except OSError as error:
            self.tell_not_saved(self.tr("The table could not be saved."), error)


def running_median(itl_ms: Sequence[float]) -> Array:
    """Each latency as the median of MEDIAN_OF around it, shape [n], so that lines stay apart.

    What is late for once is in the table's percentiles.
    """
    reach = MEDIAN_OF // 2
    if not itl_ms:
        return np.empty(0)
    padded = np.pad(np.asarray(itl_ms, np.float64), reach, mode="edge")
    found: Array = np.median(np.lib.stride_tricks.sliding_window_view(padded, MEDIAN_OF), axis=1)
    return found


def _ratio_text(run: PinnedRun, baseline: PinnedRun, cell: Cell) -> str:
    if run is baseline:
        return "1x"
    return factor(cell.ratio) if cell.ratio is not None else ""
