"""The window: puts the parts together and connects what happens in one with the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QSize, Qt, QUrl
from PySide6.QtGui import (
    QCloseEvent,
    QDesktopServices,
    QDragEnterEvent,
    QDropEvent,
    QGuiApplication,
    QResizeEvent,
)
from PySide6.QtWidgets import (
    QInputDialog,
    QMainWindow,
    QMenu,
    QToolBar,
    QVBoxLayout,
    QWidget,
)

from app import folders
from app.actions import Actions
from app.appearance import Appearance
from app.cards import CardAction, CardStack, CardText
from app.chat.chats_list import ChatsList
from app.chat.composer import Composer
from app.chat.message_list import MessageList
from app.chat.model import ChatModel
from app.chat.store import ChatStore
from app.chat.view import ChatView
from app.chat_paces import ChatPaces
from app.context_choice import ContextPolicyMenu
from app.conversations import Conversations
from app.dialogs import pages
from app.dialogs.text_page import TextPage
from app.draft_count import DraftCount
from app.engine_display import EngineDisplay, EngineWidgets
from app.engine_link.controller import EngineController
from app.explained.anchors import Anchors
from app.explained.opening import Explanations
from app.file_actions import FileActions
from app.instruments import Instruments
from app.model_library.finding import ModelFinding
from app.model_loading import ModelLoading
from app.model_menus import ModelMenus
from app.planner.planning import PlannerLink
from app.request_chats import RequestChats
from app.run_bar import RunBar
from app.sampling import SAMPLING_SETTINGS
from app.sampling_popover import SamplingPopover
from app.settings.schema import (
    CONTEXT_POLICY,
    EXPLAIN,
    RECENT_MODELS,
    SHOW_BLOCKS,
    SHOW_CHATS,
    SHOW_STAGES,
    SHOW_TELEMETRY,
    WINDOW_GEOMETRY,
    WINDOW_STATE,
)
from app.settings.store import Settings
from app.status_line import StatusLine
from app.telemetry.dock import TelemetryPanel
from app.telemetry.format import count
from app.telemetry.phase_badge import PhaseBadge
from app.telemetry.strip import TelemetryStrip
from app.telemetry_link import TelemetryLink
from app.theme import Theme
from app.timeline_choice import TimelineChoice
from app.view_choices import ViewChoices
from app.window_layout import WindowLayout

DEFAULT_SIZE = QSize(1440, 900)
SCREEN_SHARE = 0.94


class MainWindow(QMainWindow):
    """Owns every part of the window and the controller's shutdown.

    Attributes:
        controller, conversations, loading, telemetry: what the parts of the window work with.

    `clock` gives nanoseconds, comparable with the times of engine events.
    """

    def __init__(
        self,
        appearance: Appearance,
        settings: Settings,
        controller: EngineController,
        chats_folder: Path | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        super().__init__()
        self._appearance = appearance
        self._settings = settings
        self.controller = controller
        self._closes_at_once = False
        self.setAcceptDrops(True)
        theme = appearance.theme
        self.cards = CardStack(theme)
        self.loading = ModelLoading(controller, settings, self.cards, self)
        self.telemetry = TelemetryLink(controller, settings, clock, self)
        store = ChatStore(chats_folder or folders.chats_folder())
        self.conversations = Conversations(controller, store, settings, clock, self)
        self._make_parts(theme)
        self._make_menus()
        self._lay_out(theme)
        self._connect_engine()
        self._connect_chats()
        self._connect_rest()
        self._restore()
        self._show_chat(self.conversations.current)
        self._explain()
        self.display.show_model()

    # --- what others call -----------------------------------------------------------------

    def start(self, given: dict[str, Any] | None = None) -> None:
        """Begin to work, once the window is shown: engine, sensors, saved chats, first model."""
        self.controller.start()
        self.telemetry.start()
        self.conversations.library.read()
        if self._settings.problem:
            self._tell(CardText(self._settings.problem), "settings")
        self.loading.load_first(given)

    def close_at_once(self) -> None:
        """Close without a question; work in the background is stopped."""
        self._closes_at_once = True
        self.close()

    def tell_crash(self, line: str) -> None:
        """Say that something uncaught happened; the log has the details."""
        text = CardText(
            self.tr("Something went wrong in the window."),
            line,
            self.tr("You can go on; the log has the details."),
        )
        folder = QUrl.fromLocalFile(str(folders.log_folder()))
        show = CardAction(self.tr("Show the log"), lambda: QDesktopServices.openUrl(folder))
        self.cards.show_card("crash", "error", text, [show])

    def empty_curves(self) -> list[str]:
        """Names of the plotted curves that have no point, after a last redraw."""
        self.panel.plots.redraw()
        return [name for name, (x, _) in self.panel.plots.curves().items() if len(x) == 0]

    # --- building -------------------------------------------------------------------------

    def _make_parts(self, theme: Theme) -> None:
        self.chats_list = ChatsList(theme)
        self.chats_list.setObjectName("chatsList")
        self.chats_list.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.chat_view = ChatView(theme)
        self.composer = Composer(theme)
        self.panel = TelemetryPanel(theme, self.telemetry.model)
        self.strip = TelemetryStrip(theme, self.telemetry.model)
        self.badge = PhaseBadge(theme)
        self.run_bar = RunBar(theme, self.badge)
        self.status = StatusLine(theme)
        self.sampling = SamplingPopover(self._settings, self)
        self.view_choices = ViewChoices(self._appearance, self._settings, self)
        self.timeline = TimelineChoice(self.panel, self._settings, self)
        self.files = FileActions(self, self._settings, self.cards, self.telemetry, self.panel)
        self.finding = ModelFinding(
            self, self._appearance, self._settings, self.controller, self.cards
        )
        self.planner = PlannerLink(
            self, self._appearance, self._settings, self.controller, self.loading
        )
        self.instruments = Instruments(
            self,
            self._appearance,
            self.cards,
            self.controller,
            self.loading,
            self.conversations,
            self.telemetry,
            self.panel,
            self.finding.job,
        )
        self._themed = (
            self.chats_list,
            self.chat_view,
            self.composer,
            self.panel,
            self.strip,
            self.badge,
            self.run_bar,
            self.status,
            self.cards,
        )

    def _make_menus(self) -> None:
        self.menus = ModelMenus(ContextPolicyMenu(self._settings, self), self)
        self.menus.set_recent(self._settings.get(RECENT_MODELS))
        self.actions_table = Actions(
            self,
            self._handlers(),
            {
                "recent": self.menus.recent,
                "device": self.menus.device,
                "threads": self.menus.threads,
                "weights": self.menus.weights,
                "cache": self.menus.cache,
                "theme": self.view_choices.fill_theme_menu,
            },
        )
        model, weights, kv, context = (QMenu(t, self) for t in self._bar_titles())
        for name in ("choose", "download", "plan", "starter", "open_file", "open_folder"):
            model.addAction(self.actions_table[f"model.{name}"])
        self.menus.recent(model)
        model.addSeparator()
        model.addAction(self.actions_table["model.quantize"])
        model.addAction(self.actions_table["model.sweep"])
        model.addSeparator()
        self.menus.device(model)
        self.menus.threads(model)
        model.addSeparator()
        model.addAction(self.actions_table["model.reload"])
        model.addAction(self.actions_table["model.unload"])
        self.menus.weights(weights)
        self.menus.kv(kv)
        self.menus.context(context)
        self.run_bar.set_menus(model, weights, kv, context)

    def _bar_titles(self) -> tuple[str, str, str, str]:
        return self.tr("Model"), self.tr("Weights"), self.tr("KV cache"), self.tr("Context")

    def _handlers(self) -> dict[str, Callable[..., Any]]:
        return {
            "file.new_chat": self.conversations.new_chat,
            "file.export": self.files.export,
            "file.record": self.files.record,
            "file.save_picture": self.files.save_picture,
            "file.quit": self.close,
            "chat.send": lambda: self._send(self.composer.text()),
            "chat.stop": self.conversations.stop,
            "chat.regenerate": self.conversations.regenerate,
            "chat.copy_answer": self.chat_view.copy_last_answer,
            "chat.rename": self._rename_chat,
            "chat.delete": self._delete_chat,
            "model.starter": self.loading.open_starter,
            "model.choose": self.finding.open_picker,
            "model.download": self.finding.open_download,
            "model.plan": self.planner.open_planner,
            "model.open_file": self.files.open_model_file,
            "model.open_folder": self.files.open_model_folder,
            "model.quantize": self._quantize,
            "model.reload": self.loading.reload,
            "model.unload": self.controller.unload,
            "view.chats": self._want_chats,
            "view.telemetry": self._want_panels,
            "view.blocks": lambda on: self._settings.set(SHOW_BLOCKS, on),
            "view.explain": lambda on: self._settings.set(EXPLAIN, on),
            "view.stages": lambda on: self._settings.set(SHOW_STAGES, on),
            "view.larger": self.view_choices.larger,
            "view.smaller": self.view_choices.smaller,
            "view.reset_text": self.view_choices.reset_text,
            "help.metrics": lambda: self._page(self.tr("Metric definitions"), pages.metrics_page()),
            "help.shortcuts": lambda: self._page(
                self.tr("Keyboard shortcuts"), pages.shortcuts_page()
            ),
            "help.about": lambda: self._page(self.tr("About Phasescope"), pages.about_page()),
            **self.timeline.handlers(),
            **self.instruments.handlers(),
        }

    def _lay_out(self, theme: Theme) -> None:
        conversation = QWidget()
        column = QVBoxLayout(conversation)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.cards)
        column.addWidget(self.chat_view, 1)
        column.addWidget(self.composer)
        self.parts = WindowLayout(
            self, theme, self.chats_list, conversation, self.panel, self.strip
        )
        bar = QToolBar(self.tr("Toolbar"), self)
        bar.setObjectName("toolbar")
        bar.setMovable(False)
        bar.toggleViewAction().setEnabled(False)
        bar.setContextMenuPolicy(Qt.ContextMenuPolicy.PreventContextMenu)
        bar.addWidget(self.run_bar)
        self.addToolBar(bar)
        self.statusBar().setSizeGripEnabled(False)
        self.statusBar().addWidget(self.status, 1)

    # --- connecting -----------------------------------------------------------------------

    def _connect_engine(self) -> None:
        widgets = EngineWidgets(
            self.run_bar,
            self.badge,
            self.status,
            self.chat_view,
            self.composer,
            self.sampling,
            self.menus,
            self.actions_table,
        )
        self.display = EngineDisplay(
            self.controller, self.conversations, self.loading, self._settings, widgets, self
        )
        draft = DraftCount(self.controller, self)
        self.composer.draft_changed.connect(draft.set_draft)
        draft.counted.connect(self.display.show_draft)
        self.loading.estimate_answered.connect(self.menus.show_estimate)
        self.loading.open_requested.connect(self.files.open_model_file)
        self.menus.change_requested.connect(self.loading.change)
        self.menus.estimate_requested.connect(self.loading.ask_estimate)
        self.menus.custom_context_requested.connect(self._ask_context)
        self.menus.recent_requested.connect(self.loading.open)
        self.menus.quality_requested.connect(self._measure_quality)
        self.files.model_chosen.connect(self.loading.open)
        self.finding.path_chosen.connect(self.loading.open)
        self.finding.config_chosen.connect(self.loading.load)
        self.finding.job_changed.connect(self.status.set_job)
        self.status.job_requested.connect(self.finding.show_job)
        self.instruments.sweeps.job_changed.connect(self.status.set_job)
        self.status.job_requested.connect(self.instruments.sweeps.show_job)

    def _connect_chats(self) -> None:
        chats, view = self.conversations, self.chat_view
        self.composer.send_requested.connect(self._send)
        self.composer.stop_requested.connect(chats.stop)
        view.regenerate_requested.connect(chats.regenerate)
        view.compare_requested.connect(self.instruments.comparisons.open)
        view.action_requested.connect(self._on_chat_action)
        view.example_chosen.connect(self._on_example)
        view.loading_card.example_requested.connect(self.instruments.replay.play_example)
        self.chats_list.new_requested.connect(chats.new_chat)
        self.chats_list.chat_selected.connect(self._on_chat_selected)
        self.chats_list.rename_requested.connect(chats.library.rename)
        self.chats_list.delete_requested.connect(chats.delete)
        self.chats_list.undo_delete_requested.connect(chats.undo_delete)
        self.chats_list.stop_requested.connect(chats.stop_chat)
        ChatPaces(chats, self.telemetry.model, self.chats_list, self)
        self.panel.block_map.set_chat_lookup(RequestChats(chats, self).chat_of)
        chats.library.chats_changed.connect(self._show_chats)
        chats.current_changed.connect(self._show_chat)
        chats.request_sent.connect(self.telemetry.request_sent)
        chats.draft_returned.connect(self._on_draft_returned)
        chats.library.problem_found.connect(
            lambda what, why: self._tell(CardText(what, why), "chats")
        )

    def _connect_rest(self) -> None:
        self._appearance.theme_changed.connect(self._on_theme_changed)
        self._settings.changed.connect(self._on_setting_changed)
        self.run_bar.sampling_requested.connect(self.sampling.open_under)
        self.run_bar.chats_requested.connect(self.parts.open_drawer)
        self.sampling.system_prompt_edited.connect(self.conversations.set_system_prompt)
        self.strip.panels_requested.connect(lambda: self.parts.want_panels(True))
        self.parts.arranged.connect(self._on_arranged)
        self.parts.panels_wanted.connect(lambda on: self._settings.set(SHOW_TELEMETRY, on))
        self.parts.chats_wanted.connect(lambda on: self._settings.set(SHOW_CHATS, on))
        self.status.notice_requested.connect(self._show_notices)
        self.telemetry.recording_changed.connect(self._on_recording_changed)
        self.telemetry.slowdown_changed.connect(self.status.set_slowdown)
        self.telemetry.watch_painting(self.chat_view.findChildren(MessageList)[0].viewport())

    def _explain(self) -> None:
        messages = self.chat_view.findChildren(MessageList)[0]
        self.explained = Explanations(
            self,
            self._appearance,
            self._settings,
            self.telemetry.model,
            self.controller.events_received,
            Anchors(self.panel, self.strip, messages),
        )
        self.timeline.keep_checked(self.actions_table["view.tokens"])
        self.explained.keep_checked(self.actions_table["view.explain"])
        self.explained.offer_in(self.chat_view.empty_state, self.conversations.request_sent)

    # --- chats ----------------------------------------------------------------------------

    def _send(self, text: str) -> None:
        if self.conversations.send(text):
            self.composer.clear()

    def _on_example(self, text: str) -> None:
        if not self.conversations.send(text):
            self.composer.set_text(text)
            self.composer.setFocus()

    def _on_draft_returned(self, text: str) -> None:
        if not self.composer.text().strip():
            self.composer.set_text(text)

    def _on_chat_action(self, action: str) -> None:
        name, _, value = action.partition(":")
        if name == "context":
            self.loading.change({"context_length": int(value)})
        elif name == "new-chat":
            self.conversations.new_chat()
        else:
            self.instruments.take_action(action)

    def _on_chat_selected(self, chat_id: str) -> None:
        self.conversations.select(chat_id)
        self.parts.close_drawer()

    def _rename_chat(self) -> None:
        self._want_chats(True)
        self.chats_list.rename_current()

    def _delete_chat(self) -> None:
        self._want_chats(True)
        self.chats_list.delete_current()

    def _show_chats(self) -> None:
        self.chats_list.set_chats(self.conversations.library.chats)
        self.chats_list.set_current(self.conversations.current.chat.id)
        self._show_title()

    def _show_chat(self, model: ChatModel) -> None:
        self.chat_view.set_model(model)
        self.sampling.set_system_prompt(model.chat.system_prompt)
        self.telemetry.model.select(self.conversations.current_request)
        self._show_chats()
        self.conversations.refresh_context()
        self.composer.setFocus()

    def _show_title(self) -> None:
        title = self.conversations.current.chat.title
        self.setWindowTitle(f"{title} — Phasescope" if title else "Phasescope")

    # --- window ---------------------------------------------------------------------------

    def _want_chats(self, wanted: bool) -> None:
        self.parts.want_chats(wanted)

    def _want_panels(self, wanted: bool) -> None:
        self.parts.want_panels(wanted)

    def _on_arranged(self) -> None:
        for name, shown in (
            ("view.chats", self.parts.chats_shown),
            ("view.telemetry", self.parts.panels_shown),
        ):
            action = self.actions_table[name]
            action.blockSignals(True)
            action.setChecked(shown)
            action.blockSignals(False)
        self.run_bar.show_chats_button(not self.parts.chats_shown)

    def _on_recording_changed(self, on: bool) -> None:
        action = self.actions_table["file.record"]
        action.blockSignals(True)
        action.setChecked(on)
        action.blockSignals(False)
        self.status.set_recording(on)

    def _on_setting_changed(self, key: str) -> None:
        if key == RECENT_MODELS.key:
            self.menus.set_recent(self._settings.get(RECENT_MODELS))
        elif key == CONTEXT_POLICY.key:
            self.display.show_context()
        elif key in (SHOW_BLOCKS.key, SHOW_STAGES.key):
            self._show_panels()
        elif key in (setting.key for setting in SAMPLING_SETTINGS):
            self.display.show_sampling()

    def _show_panels(self) -> None:
        blocks, stages = self._settings.get(SHOW_BLOCKS), self._settings.get(SHOW_STAGES)
        self.panel.want_map(blocks)
        self.panel.want_stages(stages)
        self.actions_table["view.blocks"].setChecked(blocks)
        self.actions_table["view.stages"].setChecked(stages)

    def _on_theme_changed(self, theme: Theme) -> None:
        for part in self._themed:
            part.set_theme(theme)
        self.parts.set_theme(theme)
        self.display.show_state()

    def _quantize(self) -> None:
        loaded = self.controller.model
        if loaded is not None:
            self.finding.open_quantize(loaded.model)

    def _measure_quality(self) -> None:
        loaded = self.controller.model
        if loaded is not None:
            self.finding.open_quality(loaded.model, loaded.config)

    def _ask_context(self) -> None:
        loaded = self.controller.model
        if loaded is None:
            return
        dialog = QInputDialog(self)
        dialog.setWindowTitle(self.tr("Context length"))
        dialog.setLabelText(self.tr("Tokens, up to {0}").format(count(loaded.model.context_length)))
        dialog.setInputMode(QInputDialog.InputMode.IntInput)
        dialog.setIntRange(16, loaded.model.context_length)
        dialog.setIntValue(loaded.config.context_length or 0)
        dialog.intValueSelected.connect(lambda n: self.loading.change({"context_length": n}))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _show_notices(self) -> None:
        loaded = self.controller.model
        for notice in loaded.notices if loaded else ():
            copy = CardAction(self.tr("Copy"), partial(QGuiApplication.clipboard().setText, notice))
            self.cards.show_card(f"notice {notice}", "notice", CardText(notice), [copy])

    def _tell(self, text: CardText, topic: str) -> None:
        self.cards.show_card(topic, "error", text)

    def _page(self, title: str, html: str) -> None:
        TextPage(self._appearance.theme, title, html, self).show()

    def _restore(self) -> None:
        size = DEFAULT_SIZE
        # The offscreen platform's screen is a made-up small square.
        if QGuiApplication.platformName() != "offscreen":
            size = size.boundedTo(self.screen().availableSize() * SCREEN_SHARE)
        self.resize(size)
        self.parts.restore(self._settings.get(WINDOW_GEOMETRY), self._settings.get(WINDOW_STATE))
        if not self._settings.get(SHOW_CHATS):
            self.parts.want_chats(False)
        if not self._settings.get(SHOW_TELEMETRY):
            self.parts.want_panels(False)
        self._show_panels()
        self.parts.rearrange()

    # Qt overrides

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if event.mimeData().hasUrls():
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        if event.mimeData().hasUrls():
            event.acceptProposedAction()
            self.finding.take_dropped(event.mimeData().urls())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.parts.rearrange()

    def closeEvent(self, event: QCloseEvent) -> None:
        if not self._closes_at_once and self.finding.ask_before_closing(self.close_at_once):
            event.ignore()
            return
        geometry, state = self.parts.save()
        self._settings.set(WINDOW_GEOMETRY, geometry)
        self._settings.set(WINDOW_STATE, state)
        self.hide()
        self.conversations.close()
        self.telemetry.close()
        self.finding.close()
        self.planner.close()
        self.instruments.close()
        self.controller.shutdown()
        super().closeEvent(event)
