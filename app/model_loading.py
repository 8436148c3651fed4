"""Which model runs and as what: opening, changing, what is remembered, what went wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from app.cards import CardAction, CardStack, CardText
from app.engine_link.controller import EngineController
from app.engine_link.worker import EngineProblem
from app.settings.schema import CONTEXT, DEVICE, KV, LAST_MODEL, RECENT_MODELS, THREADS, WEIGHTS
from app.settings.store import Settings
from app.telemetry.format import count
from engine.config import EngineConfig, MemoryEstimate
from engine.events import LoadFailed, ModelLoaded
from engine.starter import starter_model_path

MAX_RECENT = 8
MAX_BUTTONS = 3
HOVER_MS = 120
CARD = "load"
MISSING_CARD = "missing"


class ModelLoading(QObject):
    """Keeps the wanted configuration and turns the outcome of loads into cards and settings.

    Signals:
        wanted_changed(EngineConfig | None): what the menus should show as chosen.
        estimate_answered(MemoryEstimate | EngineProblem): for the choice asked about last.
        open_requested(): the person wants to choose another model file.
    """

    wanted_changed = Signal(object)
    estimate_answered = Signal(object)
    open_requested = Signal()

    def __init__(
        self,
        controller: EngineController,
        settings: Settings,
        cards: CardStack,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._controller = controller
        self._settings = settings
        self._cards = cards
        self._wanted: EngineConfig | None = None
        self._good: EngineConfig | None = None
        self._asked: EngineConfig | None = None
        # Device and threads named on the command line hold for this run only.
        self._passing: frozenset[str] = frozenset()
        self._ask = QTimer(self, interval=HOVER_MS, singleShot=True)
        self._ask.timeout.connect(self._ask_estimate)
        controller.model_loaded.connect(self._on_loaded)
        controller.load_failed.connect(self._on_failed)
        controller.model_unloaded.connect(self._on_unloaded)
        controller.memory_estimated.connect(self._on_estimated)

    @property
    def wanted(self) -> EngineConfig | None:
        """The configuration in force or being loaded, automatic choices not yet resolved."""
        return self._wanted

    def load_first(self, given: dict[str, Any] | None = None) -> None:
        """Load at start: what the command line names, else the last model, else the starter."""
        given = given or {}
        self._passing = frozenset(given) & {"device", "threads"}
        last = self._settings.get(LAST_MODEL)
        remembered = last if last and Path(last).exists() else starter_model_path()
        path = given.get("model_path") or remembered
        if path is None:
            self._offer_a_model()
            return
        base = {} if "model_path" in given else self._remembered(path)
        self.load(EngineConfig(**{"model_path": path, **base, **given}))
        if last and path != last and "model_path" not in given:
            self._tell_missing(last)

    def open(self, path: str) -> None:
        """Load another model as it is stored, with the context the engine finds right."""
        now = self._wanted or self._good
        device = now.device if now else self._settings.get(DEVICE)
        threads = now.threads if now else self._settings.get(THREADS)
        self.load(EngineConfig(str(Path(path).absolute()), device=device, threads=threads))

    def open_starter(self) -> None:
        """Load the starter model, or say that it is not installed."""
        path = starter_model_path()
        if path:
            self.open(path)
        else:
            self._offer_a_model()

    def change(self, fields: dict[str, Any]) -> None:
        """Load the present model differently; without a difference nothing happens."""
        if self._wanted is None:
            return
        self._passing -= frozenset(fields)
        config = replace(self._wanted, **fields)
        if config != self._wanted:
            self.load(config)

    def reload(self) -> None:
        """Load the present model anew."""
        if self._wanted is not None:
            self.load(self._wanted)

    def load(self, config: EngineConfig) -> None:
        """Load; the chat stays."""
        self._cards.dismiss(CARD)
        self._want(config)
        self._controller.load(config)

    def ask_estimate(self, fields: dict[str, Any]) -> None:
        """Ask what the present model would take with these changes.

        Not while an answer runs: reading the file's headers would hold up its tokens.
        """
        idle = self._controller.loading is None and not self._controller.active_requests
        if self._wanted is not None and idle:
            self._asked = replace(self._wanted, **fields)
            self._ask.start()

    # --- outcomes -------------------------------------------------------------------------

    def _on_loaded(self, loaded: ModelLoaded) -> None:
        if self._controller.model is not loaded:
            return
        config = self._wanted or loaded.config
        self._good = config
        self._remember(config)
        self.wanted_changed.emit(config)

    def _on_unloaded(self) -> None:
        if self._controller.loading is None:
            self._good = None
            self._want(None)
            self._offer_a_model()

    def _on_failed(self, failure: LoadFailed) -> None:
        failed = self._wanted
        if failed == self._good:
            self._good = None
        # The good one is still loaded, or comes back by itself: the menus should show it.
        self._want(self._good)
        if failure.kind == "cancelled":
            if self._good is None:
                self._offer_a_model()
            return
        text = CardText(failure.what, failure.why, failure.next)
        self._cards.show_card(CARD, "error", text, self._remedies(failure, failed))

    def _remedies(self, failure: LoadFailed, failed: EngineConfig | None) -> list[CardAction]:
        actions: list[CardAction] = []
        if failed is not None and failure.estimate is not None:
            actions += self._what_fits(failure.estimate, failed)
        if failed is not None and failure.kind == "internal":
            actions.append(CardAction(self.tr("Try again"), lambda: self.load(failed)))
        starter = starter_model_path()
        if starter and failed is not None and failed.model_path != starter:
            actions.append(CardAction(self.tr("Load the starter model"), self.open_starter))
        another = CardAction(self.tr("Open another model…"), self.open_requested.emit)
        return [*actions, another][:MAX_BUTTONS]

    def _what_fits(self, estimate: MemoryEstimate, failed: EngineConfig) -> list[CardAction]:
        actions = []
        shorter = [c for c in estimate.fitting_contexts if c < estimate.context_length]
        if shorter:
            label = self.tr("Load with {0} context").format(count(shorter[0]))
            actions.append(CardAction(label, self._loader(failed, context_length=shorter[0])))
        smaller = [f for f in estimate.fitting_weight_formats if f != failed.weight_format]
        for name in [f for f in ("int4", "int8") if f in smaller][:1]:
            label = self.tr("Load as {0}").format(name.upper())
            actions.append(CardAction(label, self._loader(failed, weight_format=name)))
        return actions

    def _loader(self, config: EngineConfig, **changes: Any) -> Callable[[], None]:
        return lambda: self.load(replace(config, **changes))

    def _tell_missing(self, path: str) -> None:
        text = CardText(
            self.tr("{0} is not there any more.").format(Path(path).name),
            self.tr("It was loaded from {0}.").format(path),
            self.tr("The starter model takes its place for now."),
        )
        self._cards.show_card(MISSING_CARD, "notice", text)

    def _offer_a_model(self) -> None:
        starter = starter_model_path()
        actions = [CardAction(self.tr("Open a model…"), self.open_requested.emit)]
        if starter:
            actions.insert(0, CardAction(self.tr("Load the starter model"), self.open_starter))
            text = CardText(self.tr("No model is loaded."))
        else:
            text = CardText(
                self.tr("There is no model to load."),
                self.tr("The starter model is not installed."),
                self.tr("Open a GGUF file or a safetensors folder."),
            )
        self._cards.show_card(CARD, "notice", text, actions)

    def _on_estimated(self, config: EngineConfig, answer: MemoryEstimate | EngineProblem) -> None:
        if config == self._asked:
            self.estimate_answered.emit(answer)

    def _ask_estimate(self) -> None:
        if self._asked is not None:
            self._controller.estimate_memory(self._asked)

    # --- what is remembered ---------------------------------------------------------------

    def _want(self, config: EngineConfig | None) -> None:
        self._wanted = config
        self.wanted_changed.emit(config)

    def _remembered(self, path: str) -> dict[str, Any]:
        base: dict[str, Any] = {
            "device": self._settings.get(DEVICE),
            "threads": self._settings.get(THREADS),
        }
        # Formats and context were chosen for the last model; another begins with the defaults.
        if path == (self._settings.get(LAST_MODEL) or starter_model_path()):
            base["weight_format"] = self._settings.get(WEIGHTS)
            base["kv_format"] = self._settings.get(KV)
            base["context_length"] = self._settings.get(CONTEXT)
        return base

    def _remember(self, config: EngineConfig) -> None:
        settings = self._settings
        starter = config.model_path == starter_model_path()
        settings.set(LAST_MODEL, "" if starter else config.model_path)
        settings.set(WEIGHTS, config.weight_format)
        settings.set(KV, config.kv_format)
        settings.set(CONTEXT, config.context_length)
        if "device" not in self._passing:
            settings.set(DEVICE, config.device)
        if "threads" not in self._passing:
            settings.set(THREADS, config.threads)
        if not starter:
            others = [p for p in settings.get(RECENT_MODELS) if p != config.model_path]
            settings.set(RECENT_MODELS, [config.model_path, *others][:MAX_RECENT])
