"""A sweep in a window of its own: choose, watch the rows come, use one of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QSize, Signal
from PySide6.QtWidgets import (
    QFileDialog,
    QLabel,
    QProgressBar,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.chevron_box import ChevronBox
from app.plot_dialog import PlotDialog
from app.race.plans import RacePlans
from app.sweep import words
from app.sweep.choices import SweepChoices
from app.sweep.plot import SweepPlot
from app.sweep.sweeping import Sweeping, SweepRow
from app.sweep.table import SweepTable, as_csv
from app.telemetry.format import about_seconds, count
from app.theme import Theme
from engine.config import EngineConfig
from engine.events import ModelLoaded
from engine.sweep import SweepPlan, predicted_s, refusal

SIZE = QSize(1120, 760)
CHOICES_WIDTH = 250
MIN_TABLE_HEIGHT = 130
STEPS = 1_000


class SweepDialog(PlotDialog):
    """Beside the window; closing it leaves the sweep running.

    Attributes:
        choices: what to measure; None before a model was shown. figure: which one is drawn.

    Signals:
        use_requested(EngineConfig): load what a row was measured with.
    """

    use_requested = Signal(object)

    def __init__(self, theme: Theme, sweeping: Sweeping, plans: RacePlans, parent: QWidget) -> None:
        self.plot = SweepPlot(theme)
        super().__init__(theme, self.tr("Sweep"), SIZE, self.plot, parent)
        self._sweeping, self._plans = sweeping, plans
        self._config: EngineConfig | None = None
        self._loaded: ModelLoaded | None = None
        self.choices: SweepChoices | None = None
        self._make_parts(theme)
        self._lay_out_parts()
        self._connect()

    def set_theme(self, theme: Theme) -> None:
        super().set_theme(theme)
        self.plot.set_theme(theme)
        self.figure.set_theme(theme)

    def show_model(self, loaded: ModelLoaded, wanted: EngineConfig) -> None:
        """Offer to measure this model; `wanted` is its config as it was asked for."""
        is_new = self._loaded is None or self._loaded.model.path != loaded.model.path
        self._loaded, self._config = loaded, wanted
        self._plans.ask(wanted)
        if is_new:
            self._sweeping.forget()
            self.choices = SweepChoices(loaded)
            self.choices.changed.connect(self.refresh)
            self._scroll.setWidget(self.choices)
        self.refresh()

    @property
    def plan(self) -> SweepPlan | None:
        """What is chosen; None before a model was shown."""
        if self.choices is None or self._config is None:
            return None
        return self.choices.plan(self._config)

    def refresh(self) -> None:
        """Say and draw what there is now."""
        sweeping = self._sweeping
        self.headline.setText(words.headline(sweeping.rows))
        self.summary.setText(self._summary())
        self.source.setText(self._source())
        self.table.set_rows(sweeping.rows)
        name = self.figure.currentData()
        self.plot.set_rows(sweeping.rows, name)
        self.plot.setAccessibleName(f"{self.headline.text()} {self.figure.currentText()}")
        self.header.set_title(self.figure.currentText())
        self.header.set_subtitle(self.tr("over the context"), "")
        self.bar.setValue(round(STEPS * sweeping.share))
        self._show_buttons()

    # --- building -------------------------------------------------------------------------

    def _make_parts(self, theme: Theme) -> None:
        self.table = SweepTable()
        self.table.setMinimumHeight(MIN_TABLE_HEIGHT)
        self.figure = ChevronBox(theme)
        self.figure.setAccessibleName(self.tr("Figure in the plot"))
        for name in words.PLOTTED:
            self.figure.addItem(words.title(name), name)
        self.bar = QProgressBar(textVisible=False)
        self.bar.setRange(0, STEPS)
        self.bar.setFixedHeight(6)
        self.bar.setAccessibleName(self.tr("Sweep"))
        self.estimate = QLabel()
        self.estimate.setProperty("tone", "muted")
        self.estimate.setWordWrap(True)
        self.start = QPushButton(self.tr("&Start"))
        self.start.setProperty("kind", "primary")
        self.stop = QPushButton(self.tr("S&top"))
        self.stop.setToolTip(self.tr("What has been measured stays"))
        self.use = QPushButton(self.tr("&Use this"))
        self.use.setToolTip(self.tr("Load the model as the chosen row was measured"))
        self.save_table = QPushButton(self.tr("Save CS&V…"))
        self._scroll = QScrollArea()
        self._scroll.setWidgetResizable(True)
        self._scroll.setFrameShape(QScrollArea.Shape.NoFrame)
        self.reading.hide()

    def _lay_out_parts(self) -> None:
        left = QWidget()
        left.setFixedWidth(CHOICES_WIDTH)
        column = QVBoxLayout(left)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addWidget(self._scroll, 1)
        shown = QLabel(self.tr("&Plot"))
        shown.setProperty("tone", "muted")
        shown.setBuddy(self.figure)
        for widget in (self.estimate, shown, self.figure):
            column.addWidget(widget)
        right = QVBoxLayout()
        right.setSpacing(8)
        self.body.removeWidget(self.picture)
        right.addWidget(self.picture, 3)
        right.addWidget(self.bar)
        right.addWidget(self.table, 2)
        self.body.addWidget(left)
        self.body.addLayout(right, 1)
        for place, button in enumerate((self.start, self.stop, self.use, self.save_table)):
            self.buttons.insertWidget(place + (place > 2), button)  # the stretch is between them
            button.setAutoDefault(False)
        self.start.setDefault(True)

    def _connect(self) -> None:
        self.start.clicked.connect(self._begin)
        self.stop.clicked.connect(self._sweeping.stop)
        self.use.clicked.connect(self._use)
        self.save_table.clicked.connect(self._ask_where_to_save)
        self.figure.currentIndexChanged.connect(self.refresh)
        self.table.chosen.connect(self._on_chosen)
        self.plot.pointed.connect(self.table.choose)
        self._sweeping.changed.connect(self.refresh)
        self._plans.ready.connect(self.refresh)

    # --- what the person does -------------------------------------------------------------

    def _begin(self) -> None:
        plan = self.plan
        if plan is None:
            return
        if self._sweeping.busy:
            self.summary.setText(
                self.tr("Other work is under way: wait for its end, or stop it in the status bar.")
            )
            return
        self._sweeping.begin(plan)
        self.stop.setFocus()

    def _use(self) -> None:
        row = self.table.current
        if row is None or self._config is None or self._loaded is None:
            return
        needed = row.prompt_tokens + int(row.figures["completion_tokens"])
        context = max(needed, self._loaded.config.context_length or 0)
        self.use_requested.emit(
            replace(
                self._config, weight_format=row.weights, kv_format=row.kv, context_length=context
            )
        )

    def _on_chosen(self, row: SweepRow | None) -> None:
        self.plot.choose(row)
        self.summary.setText(self._summary())
        self._show_buttons()

    def _ask_where_to_save(self) -> None:
        dialog = QFileDialog(self, self.tr("Save CSV"))
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilter(self.tr("Tables (*.csv)"))
        dialog.setDefaultSuffix("csv")
        dialog.selectFile("phasescope-sweep.csv")
        dialog.fileSelected.connect(self.save_csv)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def save_csv(self, file: str) -> None:
        """Write all rows; where they cannot be written, say so."""
        try:
            Path(file).write_text(as_csv(self._sweeping.rows), "utf-8", newline="")
        except OSError as error:
            self.tell_not_saved(self.tr("The table could not be saved."), error)

    # --- words ----------------------------------------------------------------------------

    def _show_buttons(self) -> None:
        running, rows = self._sweeping.running, self._sweeping.rows
        plan, row = self.plan, self.table.current
        self.start.setVisible(not running)
        self.start.setEnabled(plan is not None and bool(plan.cells()))
        self.stop.setVisible(running)
        self.bar.setVisible(running)
        self.use.setEnabled(row is not None and not row.why and not running)
        self.save_table.setEnabled(bool(rows))
        if self.choices is not None:
            self.choices.setEnabled(not running)
        self.estimate.setText(self._estimate(plan))
        self.offer_copy(any(row.figures for row in rows))

    def _estimate(self, plan: SweepPlan | None) -> str:
        """How many combinations are chosen, how many cannot be, and how long they take."""
        if plan is None or not plan.cells():
            return self.tr("Tick at least one of each.")
        cells, planning = plan.cells(), self._plans.planning(plan.config)
        parts = [self.tr("Combinations: {0}.").format(count(len(cells)))]
        if planning is None:
            return parts[0]
        out = sum(bool(refusal(planning, plan, cell)) for cell in cells)
        if out:
            parts.append(self.tr("Left out, with the reason: {0}.").format(count(out)))
        seconds = predicted_s(planning, plan)
        if seconds:
            parts.append(
                self.tr("The runs take {0}, loading apart.").format(about_seconds(seconds))
            )
        return " ".join(parts)

    def _summary(self) -> str:
        sweeping = self._sweeping
        if sweeping.running:
            share = f"{100 * sweeping.share:.0f} %"
            return self.tr("{0}, {1}. A chat that answers meanwhile slows it down.").format(
                share, sweeping.text
            )
        if sweeping.problem is not None:
            problem = sweeping.problem
            return f"{problem.what} {problem.why} {problem.next}"
        if not sweeping.rows:
            return self.tr(
                "In a process of its own, which takes memory beside the loaded model. Each prompt "
                "is computed anew; the first run of each warms up and is not counted."
            )
        chosen = self.table.current
        if chosen is not None:
            if chosen.why:
                return self.tr("{0} was left out: {1}").format(words.row_text(chosen), chosen.why)
            return self.tr("{0} is chosen.").format(words.row_text(chosen))
        out = sum(bool(row.why) for row in sweeping.rows)
        hint = self.tr("Click a dot or a row to choose it.")
        return f"{hint} {self.tr('Left out: {0}.').format(count(out))}" if out else hint

    def _source(self) -> str:
        loaded, plan = self._loaded, self._sweeping.plan
        if loaded is None:
            return ""
        if plan is None:
            return loaded.model.name
        work = plan.workload
        text = self.tr("{0}; {1} tokens generated").format(loaded.model.name, count(work.generate))
        if work.repeat == 1:
            return self.tr("{0}, one run each").format(text)
        return self.tr("{0}, median of {1} runs").format(text, count(work.repeat))
