"""The race in a window of its own: choose a change, watch both runs, keep it or go back."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QGridLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.chevron_box import ChevronBox
from app.model_menus import context_choices, thread_choices
from app.plot_dialog import PlotDialog
from app.race.comparison import Speedup, measured_speedup
from app.race.plans import RacePlans
from app.race.plot import RacePlot
from app.race.race import Race, Stage
from app.race.words import (
    changed_fields,
    factor,
    figures,
    outcome,
    short_name,
    value_text,
)
from app.telemetry.format import count
from app.theme import Theme
from engine.config import EngineConfig
from engine.diagnosis.cures import Suggestion
from engine.diagnosis.facts import Phase
from engine.events import ModelLoaded

SIZE = QSize(820, 600)


class RaceDialog(PlotDialog):
    """Beside the window. Closed while the race runs, it stops it; afterwards what runs stays."""

    def __init__(
        self,
        theme: Theme,
        race: Race,
        plans: RacePlans,
        loaded: ModelLoaded,
        wanted: EngineConfig,
        parent: QWidget,
    ) -> None:
        """Offer changes of `wanted`, which is what is loaded now."""
        self.plot = RacePlot(theme)
        super().__init__(theme, self.tr("Race"), SIZE, self.plot, parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.race, self._plans, self._wanted = race, plans, wanted
        race.setParent(self)
        self._predicted = Speedup(None, None)
        self.boxes: dict[str, ChevronBox] = {}
        self.start = QPushButton(self.tr("&Race"))
        self.stop = QPushButton(self.tr("&Stop"))
        self.keep, self.back = QPushButton(), QPushButton()
        self.pin = QPushButton(self.tr("&Pin both"))
        self._add_choices(theme, loaded)
        self._add_buttons()
        self.header.set_title(self.tr("Inter-token latency and KV cache"))
        self.header.set_subtitle(self.tr("from Send"), "")
        self.header.set_legend(self.plot.legend())
        race.changed.connect(self.refresh)
        plans.ready.connect(self.refresh)
        self.finished.connect(race.stop)
        plans.ask(race.first.wanted)
        self.refresh()

    def set_theme(self, theme: Theme) -> None:
        super().set_theme(theme)
        self.plot.set_theme(theme)
        for box in self.boxes.values():
            box.set_theme(theme)

    @property
    def config(self) -> EngineConfig:
        """What is chosen."""
        fields: dict[str, Any] = {name: box.currentData() for name, box in self.boxes.items()}
        return replace(self._wanted, **fields)

    def choose(self, fields: dict[str, Any]) -> None:
        """Choose these values of the config's fields, where they are offered."""
        for name, value in fields.items():
            index = self.boxes[name].findData(value)
            if index >= 0:
                self.boxes[name].setCurrentIndex(index)

    def begin_with(self, suggestion: Suggestion, phase: Phase) -> None:
        """Race a suggestion at once; what its gain was said to be is held to."""
        self.choose({suggestion.field: suggestion.value})
        if phase == "stream" and suggestion.gain is not None:
            self._predicted = replace(self._predicted, decode=suggestion.gain)
        self._begin()

    def refresh(self) -> None:
        """Say and draw what there is now."""
        race = self.race
        if not race.is_running and race.stage is Stage.IDLE:
            self._plans.ask(self.config)
            self._predicted = self._plans.predicted(race.first, self.config)
        self.headline.setText(self._headline())
        self.summary.setText(self._summary())
        self.reading.setText(
            self.tr(
                "The same prompt for as many tokens, which no end token cuts short. The load has "
                "just emptied the cache, so the whole prompt is computed."
            )
        )
        self.source.setText(self._source())
        self.plot.set_runs(race.earlier, race.trace)
        self.plot.setAccessibleName(f"{self.headline.text()} {self.summary.text()}")
        self._show_buttons()

    # --- building -------------------------------------------------------------------------

    def _add_choices(self, theme: Theme, loaded: ModelLoaded) -> None:
        now = self._wanted
        context = loaded.config.context_length or 0
        devices = ("auto", *loaded.capabilities.devices)
        cores = thread_choices(os.cpu_count() or 1, now.threads)
        offered: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
            (self.tr("Weights"), "weight_format", loaded.capabilities.weight_formats),
            (
                self.tr("KV cache"),
                "kv_format",
                tuple(dict.fromkeys(("auto", *loaded.model.kv_formats))),
            ),
            (
                self.tr("Context"),
                "context_length",
                (now.context_length, *context_choices(loaded.model, context)),
            ),
            (self.tr("Threads"), "threads", (None, *cores)),
            (self.tr("Device"), "device", devices),
        )
        grid = QGridLayout()
        grid.setHorizontalSpacing(12)
        grid.setVerticalSpacing(4)
        for column, (title, name, values) in enumerate(offered):
            box = ChevronBox(theme, self)
            box.setSizeAdjustPolicy(
                ChevronBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
            )
            box.setMinimumContentsLength(6)
            box.setAccessibleName(title)
            for value in dict.fromkeys(values):
                box.addItem(self._choice(name, value), value)
            present = getattr(now, name)
            if box.findData(present) < 0:
                box.addItem(self._choice(name, present), present)
            box.setCurrentIndex(box.findData(present))
            box.currentIndexChanged.connect(self.refresh)
            caption = QLabel(title, self)
            caption.setProperty("tone", "muted")
            caption.setBuddy(box)
            grid.addWidget(caption, 0, column)
            grid.addWidget(box, 1, column)
            grid.setColumnStretch(column, 1)
            self.boxes[name] = box
        layout = self.layout()
        assert isinstance(layout, QVBoxLayout), "as PlotDialog made it"
        layout.insertLayout(0, grid)

    def _choice(self, name: str, value: Any) -> str:
        if value in (None, "auto"):
            return self.tr("Automatic")
        if name in ("context_length", "threads"):
            return count(value)
        if name == "kv_format":
            return str(value).upper()
        text = value_text(name, value)
        return text[0].upper() + text[1:]

    def _add_buttons(self) -> None:
        self.start.setProperty("kind", "primary")
        own = (self.start, self.stop, self.keep, self.back, self.pin)
        for place, button in enumerate(own):
            self.buttons.insertWidget(place, button)
        self.start.clicked.connect(self._begin)
        self.stop.clicked.connect(self.race.stop)
        self.keep.clicked.connect(self.accept)
        self.back.clicked.connect(self._go_back)
        self.start.setDefault(True)

    # --- what happens ---------------------------------------------------------------------

    def _begin(self) -> None:
        if not self.race.start(self.config):
            self.summary.setText(self.tr("A chat is answering: stop it or wait for its end."))

    def _go_back(self) -> None:
        self.race.go_back()
        self.accept()

    def _show_buttons(self) -> None:
        race, config = self.race, self.race.config
        is_new = race.stage is Stage.IDLE
        ran = race.stage is Stage.DONE and race.metrics is not None
        self.start.setVisible(is_new)
        self.start.setEnabled(bool(self._changes()))
        self.stop.setVisible(race.is_running)
        self.pin.setVisible(ran)
        self.keep.setVisible(ran)
        self.back.setVisible(ran)
        if ran and config is not None and race.previous is not None:
            self.keep.setText(self.tr("Keep {0}").format(short_name(config, race.previous)))
            self.back.setText(self.tr("Back to {0}").format(short_name(race.previous, config)))
            has_change = bool(changed_fields(config, race.previous))
            self.keep.setVisible(has_change)
            self.back.setVisible(has_change)
        for box in self.boxes.values():
            box.setEnabled(is_new)
        self.offer_copy(ran)

    def _changes(self) -> list[str]:
        return changed_fields(self.config, self.race.first.wanted)

    def _headline(self) -> str:
        race = self.race
        if race.stage is Stage.IDLE:
            return self.tr("The same prompt once more, with a change")
        name = short_name(race.config or self.config, race.first.wanted)
        if race.stage is Stage.LOADING:
            return self.tr("Loading {0}").format(name)
        if race.stage is Stage.RUNNING:
            trace = race.trace
            done, total = len(trace.tokens) if trace else 0, race.first.metrics.completion_tokens
            return self.tr("{0}: token {1} of {2}").format(name, count(done), count(total))
        if race.metrics is None:
            return self.tr("{0} did not run").format(name)
        return outcome(self._predicted, measured_speedup(race.first.metrics, race.metrics))

    def _summary(self) -> str:
        race = self.race
        if race.stage is Stage.IDLE:
            if not self._changes():
                return self.tr("Choose what is to be different from the earlier run.")
            return self._prediction_text()
        if race.is_running:
            return self._prediction_text()
        if race.metrics is None:
            return self.tr("{0} What was loaded before stays.").format(race.problem)
        measured = measured_speedup(race.first.metrics, race.metrics)
        return figures(race, race.metrics, self._predicted, measured)

    def _prediction_text(self) -> str:
        predicted = self._predicted
        if predicted.decode is None:
            return self.tr("This cannot be predicted here: it is only measured.")
        text = self.tr("Bytes and FLOPs predict decode {0}").format(factor(predicted.decode))
        if predicted.ttft is None:
            return f"{text}."
        return self.tr("{0} and first token {1}.").format(text, factor(predicted.ttft))

    def _source(self) -> str:
        race, first = self.race, self.race.first
        config = race.config or self.config
        parts = [first.metrics.model]
        if changed_fields(config, first.wanted):
            before, now = short_name(first.wanted, config), short_name(config, first.wanted)
            parts.append(self.tr("{0} → {1}").format(before, now))
        parts.append(
            self.tr("a prompt of {0} tokens, {1} generated").format(
                count(first.metrics.prompt_tokens), count(first.metrics.completion_tokens)
            )
        )
        return "; ".join(parts)
