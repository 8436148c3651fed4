"""The memory planner: choose a model, formats and a context, and see what they take and reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from PySide6.QtCore import QEvent, QSize, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QDialog,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLayout,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.chat.elided_label import ElidedLabel
from app.chevron_box import ChevronBox
from app.engine_link.worker import EngineProblem
from app.planner.curves import kv_curves
from app.planner.figures import (
    empty_figures,
    figures,
    format_name,
    kv_row,
    kv_titles,
    level_row,
    level_titles,
    origin,
    verdict,
)
from app.planner.parts import ContextField, FigureCard, LevelTable
from app.planner.plot import PlannerPlot
from app.theme import Theme
from engine.config import EngineConfig
from engine.footprint import resolve_kv_format
from engine.planner.plan import Plan, Planning, Question, make_plan
from engine.planner.shapes import SHAPES

SIZE = QSize(1000, 640)
MARGIN = 16
_GAP = 8
# What the plot keeps at least; where there is less, the tables beside it go, whose figures stand in
# the readings for the chosen formats.
_PLOT_WIDTH = 360


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A model on this machine that the planner offers by name."""

    name: str
    path: str


class MemoryPlanner(QDialog):
    """Beside the window, live: every change is answered at once from what was read once.

    `files` are offered before the built-in shapes, the first one at the start.

    Attributes:
        plan: the answer shown, None before the first. shown_model: what it is for.

    Signals:
        model_wanted(str model): headers and free memory are to be read; `show_answer` follows.
        load_requested(EngineConfig): load the planned file so; device and threads are open.
    """

    model_wanted = Signal(str)
    load_requested = Signal(object)

    def __init__(self, theme: Theme, files: Sequence[PlannedFile], parent: QWidget) -> None:
        super().__init__(parent)
        self._theme, self._window = theme, parent
        self._columns = 0
        self.setWindowTitle(self.tr("Memory planner"))
        self.setObjectName("memoryPlanner")
        self.plan: Plan | None = None
        self._planning: Planning | None = None
        self.shown_model = ""
        self._start: EngineConfig | None = None
        self._make_controls(theme)
        self._make_answer(theme)
        self._make_buttons()
        self._lay_out()
        self.set_files(files)
        self.fit_into(parent.size())

    def fit_into(self, size: QSize) -> None:
        """Leave a margin of a window of this size; larger text takes more room."""
        wanted = SIZE * self._theme.scale
        self.resize(wanted.boundedTo(size - QSize(2 * MARGIN, 2 * MARGIN)))

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or text size."""
        for box in (self.model, self.weights, self.kv):
            box.set_theme(theme)
        for card in self.cards:
            card.set_theme(theme)
        self.levels.set_theme(theme)
        self.kv_levels.set_theme(theme)
        self.plot.set_theme(theme)
        self._theme = theme
        self.fit_into(self._window.size())

    def set_files(self, files: Sequence[PlannedFile]) -> None:
        """Offer these before the built-in shapes; the chosen one stays if it is still there."""
        before = self.model.currentData()
        self.model.blockSignals(True)
        self.model.clear()
        for each in files:
            self.model.addItem(each.name, each.path)
        if files:
            self.model.insertSeparator(self.model.count())
        for shape in SHAPES:
            self.model.addItem(shape.name, shape.name)
        # The separator's data is None too.
        self.model.setCurrentIndex(max(0, self.model.findData(before)) if before else 0)
        self.model.blockSignals(False)

    def start_from(self, config: EngineConfig | None) -> None:
        """Begin the loaded model's plan as it is loaded."""
        self._start = config

    def choose(self, model: str) -> None:
        """Plan for a model that is offered, by path or built-in name."""
        index = self.model.findData(model)
        if index == self.model.currentIndex():
            self.ask()
        else:
            self.model.setCurrentIndex(index)

    def ask(self) -> None:
        """Have the model and the machine read again; what is shown stays until then."""
        self.model_wanted.emit(self.model.currentData())

    def show_answer(self, model: str, answer: Planning | EngineProblem) -> None:
        """Plan with what was read; an answer for a model that is not chosen any more is old."""
        if model != self.model.currentData():
            return
        if isinstance(answer, EngineProblem):
            self._show_problem(answer)
            return
        is_new, self.shown_model = model != self.shown_model, model
        self._planning = answer
        if is_new:
            self._offer(answer)
        self._refresh()

    # --- building -------------------------------------------------------------------------

    def _make_controls(self, theme: Theme) -> None:
        self.model = ChevronBox(theme, self)
        self.model.setAccessibleName(self.tr("Model to plan for"))
        self.model.setMaxVisibleItems(16)
        self.weights = ChevronBox(theme, self)
        self.weights.setAccessibleName(self.tr("Weights"))
        self.kv = ChevronBox(theme, self)
        self.kv.setAccessibleName(self.tr("KV cache format"))
        self.context = ContextField()
        for box in (self.model, self.weights, self.kv):
            # Its text shortens where the row is narrow.
            box.setSizeAdjustPolicy(
                ChevronBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
            )
            box.setMinimumContentsLength(6)
        self.model.currentIndexChanged.connect(self.ask)
        self.weights.currentIndexChanged.connect(self._refresh)
        self.kv.currentIndexChanged.connect(self._refresh)
        self.context.changed.connect(self._refresh)

    def _make_answer(self, theme: Theme) -> None:
        self.cards = [FigureCard(theme) for _ in empty_figures()]
        for card, figure in zip(self.cards, empty_figures(), strict=True):
            card.show_figure(figure)
        self.plot = PlannerPlot(theme)
        self.levels = LevelTable(theme)
        self.kv_levels = LevelTable(theme)
        self.verdict = ElidedLabel()
        self.verdict.setProperty("tone", "strong")
        self.verdict.set_whole_text(self.tr("Waiting for the engine…"))
        self.origin = ElidedLabel()
        self.origin.setProperty("tone", "label")

    def _make_buttons(self) -> None:
        self.close_button = QPushButton(self.tr("Close"), self)
        self.close_button.clicked.connect(self.reject)
        self.load = QPushButton(self.tr("&Load with this"), self)
        self.load.setProperty("kind", "primary")
        self.load.setEnabled(False)
        self.load.clicked.connect(self._on_load)
        for button in (self.close_button, self.load):
            button.setAutoDefault(False)

    def _lay_out(self) -> None:
        choices = QHBoxLayout()
        choices.setSpacing(8)
        named: tuple[tuple[str, QWidget, int], ...] = (
            (self.tr("Model"), self.model, 5),
            (self.tr("Weights"), self.weights, 5),
            (self.tr("KV cache"), self.kv, 4),
        )
        for index, (title, box, stretch) in enumerate(named):
            if index:
                choices.addSpacing(8)
            choices.addWidget(self._caption(title, box))
            choices.addWidget(box, stretch)
        length = QHBoxLayout()
        length.setSpacing(8)
        length.addWidget(self._caption(self.tr("Context"), self.context.spin))
        length.addWidget(self.context, 1)
        self._readings = QGridLayout()
        self._readings.setSpacing(_GAP)
        picture = QHBoxLayout()
        picture.setSpacing(8)
        picture.addWidget(self._card(self.plot), 1)
        self._tables = self._card(self.levels, self.kv_levels)
        # Both stand at the top, whatever the height.
        layout = self._tables.layout()
        assert isinstance(layout, QVBoxLayout), "as _card made it"
        layout.addStretch(1)
        picture.addWidget(self._tables)
        words = QVBoxLayout()
        words.setSpacing(4)
        words.addWidget(self.verdict)
        words.addWidget(self.origin)
        last = QHBoxLayout()
        last.setSpacing(8)
        last.addLayout(words, 1)
        last.addWidget(self.close_button)
        last.addWidget(self.load)
        column = QVBoxLayout(self)
        column.setSizeConstraint(QLayout.SizeConstraint.SetNoConstraint)
        column.setContentsMargins(MARGIN, MARGIN, MARGIN, MARGIN)
        column.setSpacing(12)
        column.addLayout(choices)
        column.addLayout(length)
        column.addLayout(self._readings)
        column.addLayout(picture, 1)
        column.addLayout(last)

    def _card(self, *parts: QWidget) -> QFrame:
        card = QFrame(self)
        card.setObjectName("planCard")
        column = QVBoxLayout(card)
        column.setContentsMargins(12, 12, 12, 12)
        column.setSpacing(20)
        for part in parts:
            column.addWidget(part)
        return card

    def _caption(self, title: str, field: QWidget) -> QLabel:
        caption = QLabel(title, self)
        caption.setProperty("tone", "muted")
        caption.setBuddy(field)
        return caption

    # --- planning -------------------------------------------------------------------------

    def _offer(self, planning: Planning) -> None:
        """Fill the fields with what this model can be, as it is loaded or would be by itself."""
        model, start = planning.model, self._start
        question = Question()
        if start is not None and start.model_path == model.source:
            question = Question(start.weight_format, start.kv_format, start.context_length)
        chosen = make_plan(planning, replace(question, context=None)).choice
        for box in (self.weights, self.kv):
            box.blockSignals(True)
            box.clear()
        for level in model.levels:
            if level.num_bytes is not None:
                self.weights.addItem(level.label, level.name)
        self.kv.addItem(self.tr("Automatic"), "auto")
        for name in model.kv_formats:
            self.kv.addItem(format_name(name), name)
        self.weights.setCurrentIndex(self.weights.findData(chosen.weights))
        self.kv.setCurrentIndex(self.kv.findData(question.kv))
        for box in (self.weights, self.kv):
            box.blockSignals(False)
        own = model.footprint.context_length
        self.context.set_range(own, min(question.context or chosen.context, own))

    def _refresh(self) -> None:
        planning = self._planning
        if planning is None or self.shown_model != self.model.currentData():
            return
        weights, kv = self.weights.currentData(), self.kv.currentData()
        self.kv.setItemText(0, self._automatic(weights))
        self.plan = plan = make_plan(planning, Question(weights, kv, self.context.tokens))
        for card, figure in zip(self.cards, figures(planning, plan), strict=True):
            card.show_figure(figure)
        self._show_tables(planning, plan)
        curves = kv_curves(planning, plan.choice)
        self.plot.show_curves(curves, plan)
        self.verdict.set_whole_text(verdict(planning, plan))
        self.origin.set_whole_text(origin(planning))
        self._allow_loading(planning, plan)

    def _show_tables(self, planning: Planning, plan: Plan) -> None:
        rows = [level_titles(), *(level_row(each, plan) for each in planning.model.levels)]
        names = [level.name for level in planning.model.levels]
        self.levels.show_rows(rows, 1 + names.index(plan.choice.weights))
        kv_rows = [kv_titles(plan), *(kv_row(each) for each in plan.kv_levels)]
        names = [level.name for level in plan.kv_levels]
        self.kv_levels.show_rows(kv_rows, 1 + names.index(plan.choice.kv))

    def _automatic(self, weights: str) -> str:
        return self.tr("Automatic ({0})").format(format_name(resolve_kv_format(weights, "auto")))

    def _allow_loading(self, planning: Planning, plan: Plan) -> None:
        on_disk = not planning.model.is_built_in
        self.load.setEnabled(on_disk and plan.fits)
        reasons = (
            (not on_disk, self.tr("Only its shape is here: download the model first")),
            (not plan.fits, self.tr("It does not fit")),
        )
        self.load.setToolTip(next((why for applies, why in reasons if applies), ""))

    def _show_problem(self, problem: EngineProblem) -> None:
        self.shown_model, self._planning, self.plan = "", None, None
        for card, figure in zip(self.cards, empty_figures(), strict=True):
            card.show_figure(figure)
        self.verdict.set_whole_text(problem.what)
        self.origin.set_whole_text(f"{problem.why} {problem.next}".strip())
        self.load.setEnabled(False)

    def _on_load(self) -> None:
        if self._planning is not None:
            path = self._planning.model.source
            weights, kv = self.weights.currentData(), self.kv.currentData()
            self.load_requested.emit(EngineConfig(path, weights, kv, self.context.tokens))

    def _arrange(self) -> None:
        """Readings in one row or two, and the tables where there is room for them."""
        inner = self.width() - 2 * MARGIN
        widest = max(card.sizeHint().width() for card in self.cards) + _GAP
        columns = len(self.cards) if widest * len(self.cards) <= inner else len(self.cards) // 2
        if columns != self._columns:
            self._columns = columns
            for index, card in enumerate(self.cards):
                self._readings.addWidget(card, index // columns, index % columns)
                self._readings.setColumnStretch(index, 1 if index < columns else 0)
        beside = inner - _GAP - self._tables.sizeHint().width()
        self._tables.setVisible(beside >= self._theme.px(_PLOT_WIDTH))

    # Qt overrides

    def event(self, event: QEvent) -> bool:
        handled = super().event(event)
        if event.type() == QEvent.Type.LayoutRequest:  # what the parts need has changed
            self._arrange()
        return handled

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()
