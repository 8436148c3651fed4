"""What a sweep is to measure: boxes to tick and two numbers, as a plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from PySide6.QtCore import Signal
from PySide6.QtWidgets import (
    QCheckBox,
    QGridLayout,
    QLabel,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from app.model_menus import context_choices
from app.sweep import words
from app.telemetry.format import count
from engine.config import EngineConfig
from engine.events import ModelLoaded
from engine.measuring import Workload
from engine.sweep import SweepPlan

Value = TypeVar("Value", str, int)
COLUMNS = 2
DEFAULT_KV = ("auto",)
DEFAULT_CONTEXTS = (512, 2_048)
DEFAULT_TOKENS, MOST_TOKENS = 32, 4_096
DEFAULT_RUNS, MOST_RUNS = 1, 20


class SweepChoices(QWidget):
    """Made anew for each model.

    Attributes:
        weights, kv, contexts: boxes by what they stand for. tokens, runs: the two numbers.

    Signals:
        changed(): something else is chosen.
    """

    changed = Signal()

    def __init__(self, loaded: ModelLoaded) -> None:
        super().__init__()
        present = loaded.config.context_length or 0
        contexts = [
            n for n in context_choices(loaded.model, present) if n < loaded.model.context_length
        ]
        formats = loaded.capabilities.weight_formats
        self.weights = self._boxes(formats, (loaded.config.weight_format, "int8", "int4"))
        self.kv = self._boxes(dict.fromkeys(("auto", *loaded.model.kv_formats)), DEFAULT_KV)
        self.contexts = self._boxes(contexts, DEFAULT_CONTEXTS)
        self.tokens, self.runs = QSpinBox(), QSpinBox()
        for spin, most, value in (
            (self.tokens, MOST_TOKENS, DEFAULT_TOKENS),
            (self.runs, MOST_RUNS, DEFAULT_RUNS),
        ):
            spin.setRange(1, most)
            spin.setValue(value)
            spin.setGroupSeparatorShown(True)
            spin.lineEdit().setTextMargins(6, 0, 6, 0)
            spin.valueChanged.connect(self.changed)
        self.tokens.setMinimum(2)  # the first has no latency
        self._lay_out()

    def plan(self, config: EngineConfig) -> SweepPlan:
        """What is chosen, with model, device and threads of `config`."""
        workload = Workload(generate=self.tokens.value(), repeat=self.runs.value())
        weights, kv = _ticked(self.weights), _ticked(self.kv)
        return SweepPlan(config, workload, weights, kv, _ticked(self.contexts))

    # --- private --------------------------------------------------------------------------

    def _boxes(self, values: Iterable[Value], ticked: Sequence[Value]) -> dict[Value, QCheckBox]:
        boxes = {}
        for value in values:
            name = count(value) if isinstance(value, int) else words.format_name(value)
            boxes[value] = QCheckBox(name)
            boxes[value].setChecked(value in ticked)
            boxes[value].toggled.connect(self.changed)
        return boxes

    def _lay_out(self) -> None:
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        groups: tuple[tuple[str, Sequence[QCheckBox]], ...] = (
            (self.tr("Weights"), tuple(self.weights.values())),
            (self.tr("KV cache"), tuple(self.kv.values())),
            (self.tr("Context, tokens of prompt"), tuple(self.contexts.values())),
        )
        for title, boxes in groups:
            column.addWidget(_caption(title))
            grid = QGridLayout()
            grid.setVerticalSpacing(4)
            for number, box in enumerate(boxes):
                box.setAccessibleDescription(title)
                grid.addWidget(box, number // COLUMNS, number % COLUMNS)
            column.addLayout(grid)
            column.addSpacing(8)
        numbers = QGridLayout()
        numbers.setColumnStretch(1, 1)
        named = ((self.tr("&Generate"), self.tokens), (self.tr("&Runs each"), self.runs))
        for row, (text, spin) in enumerate(named):
            label = _caption(text)
            label.setBuddy(spin)
            numbers.addWidget(label, row, 0)
            numbers.addWidget(spin, row, 1)
        column.addLayout(numbers)
        self.tokens.setSuffix(self.tr(" tokens"))
        column.addStretch(1)


def _ticked(boxes: dict[Value, QCheckBox]) -> tuple[Value, ...]:
    return tuple(value for value, box in boxes.items() if box.isChecked())


def _caption(text: str) -> QLabel:
    label = QLabel(text)
    label.setProperty("tone", "muted")
    return label
