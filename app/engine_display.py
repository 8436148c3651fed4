"""Shows what the engine is doing in toolbar, badge, status bar, chat view and composer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QObject, QTimer

from app.actions import Actions
from app.chat.composer import Composer
from app.chat.view import ChatView
from app.context_choice import policy_effect
from app.conversations import Conversations
from app.engine_link.controller import EngineController, EngineState
from app.model_loading import ModelLoading
from app.model_menus import ModelMenus
from app.run_bar import RunBar, run_values
from app.sampling import effective_sampling
from app.sampling_popover import SamplingPopover
from app.settings.schema import CONTEXT_POLICY, EXPLAIN_OFFERED
from app.settings.store import Settings
from app.status_line import StatusLine
from app.telemetry.phase_badge import BadgePhase, PhaseBadge
from engine.config import EngineConfig
from engine.events import Event, LoadFailed, LoadProgress, ModelLoaded, PrefillProgress, TokenEvent

# Gauges need not be repainted with every batch of tokens: it costs the engine's threads.
FIGURES_MS = 250

_BADGE: dict[EngineState, BadgePhase] = {
    EngineState.LOADING: "loading",
    EngineState.PREFILLING: "prefill",
    EngineState.DECODING: "decode",
    EngineState.STOPPING: "stopping",
}


@dataclass(frozen=True, slots=True)
class EngineWidgets:
    """The parts of the window that say what the engine is doing."""

    run_bar: RunBar
    badge: PhaseBadge
    status: StatusLine
    chat_view: ChatView
    composer: Composer
    sampling: SamplingPopover
    menus: ModelMenus
    actions: Actions


class EngineDisplay(QObject):
    """Keeps the widgets in line with controller, loads and the open chat. Decides nothing."""

    def __init__(
        self,
        controller: EngineController,
        conversations: Conversations,
        loading: ModelLoading,
        settings: Settings,
        widgets: EngineWidgets,
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._controller = controller
        self._conversations = conversations
        self._loading = loading
        self._settings = settings
        self._on = widgets
        self._kv_used = 0
        self._context_used = 0
        self._draft_tokens = 0
        self._figures = QTimer(self, interval=FIGURES_MS, singleShot=True)
        self._figures.timeout.connect(self._show_figures)
        controller.state_changed.connect(self.show_state)
        controller.load_started.connect(self._on_load_started)
        controller.load_progressed.connect(self._on_load_progressed)
        controller.model_loaded.connect(self._on_model_loaded)
        controller.load_failed.connect(self._on_load_failed)
        controller.model_unloaded.connect(self.show_model)
        controller.events_received.connect(self._on_events)
        loading.wanted_changed.connect(self._on_wanted_changed)
        conversations.activity_changed.connect(self.show_state)
        conversations.context_changed.connect(self._on_context_changed)
        widgets.chat_view.loading_card.cancel_requested.connect(self._cancel_load)

    def show_model(self) -> None:
        """Name the model, its formats and what they take."""
        on, loaded = self._on, self._controller.model
        self._on_wanted_changed(self._loading.wanted)
        on.status.set_model(loaded)
        on.status.set_kv_used(self._kv_used)
        on.status.set_notice(loaded.notices[0] if loaded and loaded.notices else "")
        name = loaded.model.name if loaded else ""
        on.chat_view.set_model_name(name)
        on.composer.set_model_name(name)
        self.show_sampling()
        self._conversations.refresh_context()
        self.show_state()

    def show_sampling(self) -> None:
        """Say how the next token is chosen."""
        default = self._conversations.default_sampling
        self._on.sampling.set_defaults(default)
        if self._controller.model is None:
            text = self.tr("auto")
        else:
            temperature = effective_sampling(self._settings, default).temperature
            text = f"{temperature:g}" if temperature else self.tr("greedy")
        self._on.run_bar.sampling.set_value(text)
        self._on.run_bar.arrange()

    def show_draft(self, tokens: int) -> None:
        """Count the draft in the context gauge too."""
        self._draft_tokens = tokens
        self.show_context()

    def show_context(self) -> None:
        """Say how full the context is, and what happens when it is full."""
        used, loaded = self._context_used, self._controller.model
        limit = loaded.config.context_length if loaded else None
        effect = policy_effect(self._settings.get(CONTEXT_POLICY))
        self._on.composer.set_context(
            used if limit else None, limit, self._draft_tokens if limit else 0, effect
        )

    def show_state(self) -> None:
        """Say what is going on in the open chat, and allow what is possible now."""
        on, controller = self._on, self._controller
        running = self._conversations.running_request
        loading = controller.loading is not None
        ready = controller.model is not None and not loading
        shown = controller.phase(running) if running else controller.state
        if ready and not running:
            shown = EngineState.READY
        on.badge.set_phase(_BADGE.get(shown, "idle"))
        on.status.set_state(shown)
        on.chat_view.set_loading(loading)
        on.composer.set_generating(running is not None)
        on.composer.set_ready(ready, "" if ready else self._why_not(loading))
        has_messages = bool(self._conversations.current.chat.messages)
        on.actions.enable(
            chat_send=ready and running is None,
            chat_stop=running is not None,
            chat_regenerate=ready and running is None and has_messages,
            chat_copy_answer=has_messages,
            chat_compare_cache=ready and running is None and has_messages,
            chat_race=ready and running is None and has_messages,
            chat_pin=running is None and has_messages,
            chat_rename=has_messages,
            chat_delete=has_messages,
            model_quantize=ready,
            model_sweep=ready,
            model_reload=ready,
            model_unload=ready or loading,
        )

    def _why_not(self, loading: bool) -> str:
        if loading:
            return self.tr("The model is loading")
        return self.tr("Load a model first")

    def _on_load_started(self, config: EngineConfig) -> None:
        card = self._on.chat_view.loading_card
        card.start(Path(config.model_path).stem)
        # Until a first message was sent: whoever comes again needs no introduction.
        card.offer_example(not self._settings.get(EXPLAIN_OFFERED))
        self.show_state()

    def _on_load_progressed(self, progress: LoadProgress) -> None:
        if self._controller.state is EngineState.LOADING:
            self._on.chat_view.loading_card.update_progress(progress)

    def _on_model_loaded(self, _loaded: ModelLoaded) -> None:
        self._kv_used = 0
        self.show_model()
        self._on.composer.setFocus()

    def _on_load_failed(self, _failure: LoadFailed) -> None:
        self.show_model()

    def _cancel_load(self) -> None:
        self._on.chat_view.loading_card.set_cancelling()
        self._controller.stop_loading()

    def _on_events(self, events: Sequence[Event]) -> None:
        request = self._conversations.current_request
        for event in reversed(events):
            if isinstance(event, TokenEvent | PrefillProgress) and event.request_id == request:
                self._kv_used = event.kv_bytes_used
                self._show_figures_soon()
                break
        # Prefill turns into decode without an answer beginning or ending.
        self._show_phase()

    def _show_phase(self) -> None:
        running = self._conversations.running_request
        if running:
            phase = self._controller.phase(running)
            badge = _BADGE.get(phase, "idle")
            if badge != self._on.badge.phase:
                self._on.badge.set_phase(badge)
            self._on.status.set_state(phase)

    def _on_wanted_changed(self, config: EngineConfig | None) -> None:
        self._on.menus.set_model(self._controller.model, config)
        self._on.run_bar.show_values(run_values(self._controller.model, config))

    def _on_context_changed(self, used: int) -> None:
        self._context_used = used
        if self._conversations.running_request:
            self._show_figures_soon()
        else:
            self._show_figures()

    def _show_figures_soon(self) -> None:
        if not self._figures.isActive():
            self._figures.start()

    def _show_figures(self) -> None:
        self.show_context()
        self._on.status.set_kv_used(self._kv_used)
